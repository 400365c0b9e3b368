"""Train the experiment of a config, after a preflight memory check.

  fl-sketch train quickstart [--workdir=DIR] [--config.FIELD=VALUE] [--plan]

Started again with the same workdir it resumes from its last checkpoint; of a
finished run it only compares config, model and data, unless there are more
rounds. On Ctrl-C or SIGTERM it writes a checkpoint and ends with status 75.
For several processes start the same command in each: by Slurm, Open MPI or
Kubernetes, or with --coordinator=HOST:PORT, --num_processes=N and
--process_id=0 ... N-1.
"""

import sys

from fl_sketch import runs
from fl_sketch.rounds import peers
from fl_sketch.runs import compare, devices, plan as plan_lib, saved_params
import jax

from . import QUIET, begin, configs, define, define_folders, errors

_CONFIG = configs.define_flag()
define_folders(unset='runs/CONFIG')
_FLAGS = define(
  coordinator=(str, 'HOST:PORT of process 0 of several processes.'),
  num_processes=(int, "Process count (default: the launcher's, or 1)."),
  process_id=(int, 'Number of this process, from 0.', 0),
  cpu_devices=(int, 'Devices of the CPU of a process (default: cores).'),
  deterministic=(True, 'Bit-identical results; slower on GPUs.'),
  extend=(False, 'Let a private run have more rounds, and a larger epsilon.'),
  init_from=(str, 'Folder of a run, or its best/, whose parameters start.'),
  baseline=(False, 'Train the dense twin, too, in WORKDIR/dense; draw both.'),
  plan=(False, 'Print memory, bytes and time; exit.'),
  quiet=QUIET,
)


def main(argv):
  """Build the experiment, train it, print its last metrics."""
  begin(argv)
  c, folder = _CONFIG.value, _FLAGS.workdir or configs.workdir()
  with errors.refused(ValueError):
    devices.start(
      # More devices than clients would only compute padding.
      cpu_devices=_FLAGS.cpu_devices or min(devices.cores(), c.cohort),
      coordinator=_FLAGS.coordinator, num_processes=_FLAGS.num_processes,
      process_id=_FLAGS.process_id, deterministic=_FLAGS.deterministic,
    )  # fmt: skip
  fields = configs.fields() | {'sweep': None}  # one run, whatever is swept
  exp = runs.build(fields, _FLAGS.data_dir)
  if _FLAGS.baseline:
    compare.dense_twin(exp.config)  # refused before anything is trained
  if _FLAGS.plan:
    print(plan_lib.plan(exp).text(), end='')
    return
  try:
    exp = saved_params.begun(exp, folder, _FLAGS.init_from)
    more = {'extend': _FLAGS.extend, 'init_from': _FLAGS.init_from}
    private = exp.guarantee if jax.process_index() == 0 else None
    if private is not None and not _FLAGS.quiet:
      print(private.statement.headline(), flush=True)
    result = runs.train(exp, folder, **more)
  except (jax.errors.JaxRuntimeError, peers.PeerLostError) as e:
    if not jax.distributed.is_initialized():
      raise
    errors.leave(e)
  if jax.process_index() == 0:
    print(runs.summary_line(result.row, result.finished), folder)
    if private is not None and not _FLAGS.quiet:
      print(private.statement.sentence(f'fl-sketch privacy {folder}'))
  if not result.finished:
    sys.exit(errors.STOPPED)
  if _FLAGS.baseline:
    print(compare.train_twin(exp.config, folder, _FLAGS.data_dir), end='')
