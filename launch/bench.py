"""Measures speed, as ratios in one run.

  python -m launch.bench round [--peers=DIR] [--workload=lenet]

`round` prints seconds a round of FedAvg, of a sketched round and of the whole
training loop; with --peers also of the hand-written loops in that folder
(bench_jax.py and, where PyTorch is installed, bench_torch.py).
"""

import json
import pathlib

from absl import app
from absl import flags
from absl import logging
from fl_sketch import devices
from fl_sketch.bench import round as round_bench
from fl_sketch.bench import workloads

_WORKLOAD = flags.DEFINE_enum(
  'workload', None, list(workloads.WORKLOADS), 'Which; both if unset.'
)
_PEERS = flags.DEFINE_string('peers', None, 'Folder of hand-written loops.')
_REPEATS = flags.DEFINE_integer('repeats', 5, 'Times each contestant runs.')
_TIMED = flags.DEFINE_integer('timed', 20, 'Timed rounds in each of them.')
_VARIANT = flags.DEFINE_string('variant', 'fedavg', 'Of a worker.')


def main(argv):
  """Runs the comparison, or one worker of it."""
  devices.start()
  logging.set_verbosity(logging.WARNING)
  names = [_WORKLOAD.value] if _WORKLOAD.value else list(workloads.WORKLOADS)
  if argv[1:] == ['worker']:
    found = round_bench.measure(names[0], _VARIANT.value, _TIMED.value)
    print(json.dumps(found))
  elif argv[1:] == ['round']:
    peers = pathlib.Path(_PEERS.value).absolute() if _PEERS.value else None
    for name in names:
      medians = round_bench.compare(name, peers, _REPEATS.value, _TIMED.value)
      print(f'\n{name}\n\n{round_bench.table(medians)}\n')
  else:
    raise app.UsageError(f'Expected "round", got {argv[1:]}.')


if __name__ == '__main__':
  app.run(main)
