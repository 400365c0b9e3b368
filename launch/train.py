"""Trains the experiment of a config, after a preflight memory check.

  fl-sketch train quickstart [--workdir=DIR] [--config.FIELD=VALUE] [--plan]

Started again with the same workdir it resumes from its last checkpoint; of a
finished run it only compares config, model and data, unless there are more
rounds. On Ctrl-C or SIGTERM it writes a checkpoint and ends with status 75.
--log_to=tensorboard,wandb writes its metrics for these as well. For several
processes start the same command in each: by Slurm, Open MPI or Kubernetes, or
with --coordinator=HOST:PORT, --num_processes=N and --process_id=0 ... N-1.
"""

import sys

from absl import app, flags
from fl_sketch import experiment, reporting, training
from fl_sketch.experiment import config as config_lib
from fl_sketch.rounds import processes
from fl_sketch.training import devices, identity, initial, sinks, workdir
import jax

from . import STOPPED, begin, configs, define_folders, errors, parse_flags

_CONFIG = configs.define_flag()
_WORKDIR, _DATA_DIR = define_folders(unset='runs/CONFIG')
_COORDINATOR = flags.DEFINE_string(
  'coordinator', None, 'HOST:PORT of process 0 of several processes.'
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, "Process count (default: the launcher's, or 1).", 1
)
_PROCESS_ID = flags.DEFINE_integer(
  'process_id', None, 'Number of this process, from 0.', 0
)
_CPU_DEVICES = flags.DEFINE_integer(
  'cpu_devices', None, 'Devices of the CPU of a process (default: cores).', 1
)
_DETERMINISTIC = flags.DEFINE_boolean(
  'deterministic', True, 'Bit-identical results; slower on GPUs.'
)
_EXTEND = flags.DEFINE_boolean(
  'extend', False, 'Let a private run have more rounds, and a larger epsilon.'
)
_INIT_FROM = flags.DEFINE_string(
  'init_from', None, 'Folder of a run, or its best/, whose parameters start.'
)
_PLAN = flags.DEFINE_bool('plan', False, 'Print memory, bytes and time; exit.')
_ADVISE = flags.DEFINE_integer(
  'advise', None, 'Compare compressors for so many uplink bytes, then exit.', 4
)
_ADVISE_DOWN = flags.DEFINE_integer(
  'advise_down', None, 'The same for so many downlink bytes, or for both.', 4
)
_LOG_TO = flags.DEFINE_list(
  'log_to', [], f'Loggers beside metrics.jsonl: {", ".join(sinks.NAMES)}.'
)


def main(argv):
  """Builds the experiment, trains it, prints its last metrics."""
  begin(argv)
  c, folder = _CONFIG.value, _WORKDIR.value or configs.workdir()
  with errors.refused(ValueError):
    devices.start(
      # More devices than clients would only compute padding.
      cpu_devices=_CPU_DEVICES.value or min(devices.cores(), c.cohort),
      coordinator=_COORDINATOR.value, num_processes=_NUM_PROCESSES.value,
      process_id=_PROCESS_ID.value, deterministic=_DETERMINISTIC.value,
    )  # fmt: skip
  alone = not (jax.distributed.is_initialized() or _PLAN.value)
  if not {_ADVISE.value, _ADVISE_DOWN.value} <= {None}:
    _advise(folder)
    return
  with errors.refused():
    fields = configs.fields() | {'sweep': None}  # one run, whatever is swept
    done = alone and workdir.is_finished(folder, c.rounds)
    exp = experiment.build(fields, _DATA_DIR.value, draw=not done)
  if _PLAN.value:
    from fl_sketch import planning  # a run needs none of it

    print(planning.plan(exp).text(), end='')
    return
  try:
    with errors.refused():
      exp = initial.begun(exp, folder, _INIT_FROM.value)
      if done:
        row = workdir.last_row(folder, exp.config, identity.of(exp))
      else:
        more = {'extend': _EXTEND.value, 'init_from': _INIT_FROM.value}
        with sinks.opened(_LOG_TO.value, folder, exp.config) as on_row:
          if exp.guarantee is not None and jax.process_index() == 0:
            print(exp.guarantee.statement.headline(), flush=True)
          result = training.train(exp, folder, on_row=on_row, **more)
          row, done = result.row, result.finished
  except (jax.errors.JaxRuntimeError, processes.PeerLostError) as e:
    if not jax.distributed.is_initialized():
      raise
    errors.leave(e)
  if jax.process_index() == 0:
    print(reporting.summary_line(row, done), folder)
    if exp.guarantee is not None:
      print(exp.guarantee.statement.sentence(f'fl-sketch privacy {folder}'))
  if not done:
    sys.exit(STOPPED)


def _advise(folder: str):
  """Prints and draws what `planning.advise_compression` finds."""
  from fl_sketch import planning

  up, down, data = _ADVISE.value, _ADVISE_DOWN.value, _DATA_DIR.value
  with errors.refused():
    c = config_lib.Config.from_mapping(configs.fields() | {'sweep': None})
    choices = planning.advise_compression(c, up, data, downlink_bytes=down)
    print(planning.choices_table(choices))
    print(f'Flags of the first row:\n{planning.choice_flags(choices[0], c)}')
    print('Picture:', planning.draw_choices(choices, folder))


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
