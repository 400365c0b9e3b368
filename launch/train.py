"""Trains the experiment of a config, after a preflight memory check.

  python -m launch.train --config=configs/quickstart.py --workdir=DIR [--plan]

Started again with the same workdir it resumes from its last checkpoint. On
Ctrl-C or SIGTERM it writes a checkpoint and ends with status 75. For several
processes start the same command in each, with --coordinator=HOST:PORT,
--num_processes=N and --process_id=0 ... N-1, or use `launch.hosts`.
"""

import sys

from absl import app, flags
from fl_sketch import experiment, planning, reporting, training
from fl_sketch.rounds import processes
from fl_sketch.training import devices
import jax
import launch
from launch import errors
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file('config', lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where the results go.')
_DATA_DIR = flags.DEFINE_string(
  'data_dir', None, 'Where tensorflow-datasets keeps its files.'
)
_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'HOST:PORT of process 0, for several processes.'
)
_NUM_PROCESSES = flags.DEFINE_integer('num_processes', 1, 'Process count.')
_PROCESS_ID = flags.DEFINE_integer('process_id', 0, 'Number of this process.')
_CPU_DEVICES = flags.DEFINE_integer(
  'cpu_devices', None, 'Devices a process makes of a CPU; one a core if unset.'
)
_DETERMINISTIC = flags.DEFINE_boolean(
  'deterministic', True, 'Bit-identical results, on GPUs at some cost.'
)
_PLAN = flags.DEFINE_boolean(
  'plan', False, 'Only print memory, bytes, operations and time of the run.'
)
flags.mark_flag_as_required('config')


@flags.multi_flags_validator(
  ['plan', 'workdir'], '--workdir is required without --plan.'
)
def _has_workdir(values):
  return values['plan'] or values['workdir'] is not None


def main(argv):
  """Builds the experiment, trains it, prints its last metrics."""
  launch.begin(argv)
  c = _CONFIG.value
  try:
    devices.start(
      # More devices than clients would only compute padding.
      cpu_devices=_CPU_DEVICES.value or min(devices.cores(), c.cohort),
      coordinator=_COORDINATOR.value,
      num_processes=_NUM_PROCESSES.value,
      process_id=_PROCESS_ID.value,
      deterministic=_DETERMINISTIC.value,
    )
  except ValueError as e:
    launch.refuse(e)
  try:
    fields = c.to_dict() | {'sweep': None}  # one run, whatever is swept
    exp = experiment.build(fields, _DATA_DIR.value)
  except errors.USER_ERRORS as e:
    launch.refuse(e)
  if _PLAN.value:
    print(planning.plan(exp).text(), end='')
    return
  try:
    result = training.train(exp, str(_WORKDIR.value))
  except errors.USER_ERRORS as e:
    launch.refuse(e)
  except (jax.errors.JaxRuntimeError, processes.PeerLostError) as e:
    if _NUM_PROCESSES.value == 1:
      raise
    launch.leave(e)
  if jax.process_index() == 0:
    print(reporting.sentence(result.row, result.finished), _WORKDIR.value)
    if exp.guarantee is not None:
      print(exp.guarantee.statement.sentence())
  if not result.finished:
    sys.exit(launch.STOPPED)


if __name__ == '__main__':
  app.run(main, flags_parser=launch.parse_flags)
