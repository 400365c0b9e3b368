"""Measures speed as ratios of medians taken in one run.

  fl-sketch bench round [--peers=DIR] [--workload=lenet]
  fl-sketch bench sketch [--dims=65536,...] [--sizes=4096,...]
  fl-sketch bench scale [--quick] [--axes=clients,...]

`round` prints seconds a round of FedAvg, of a sketched round and of the whole
training loop; with --peers also of the hand-written loops in that folder
(bench_jax.py and, where PyTorch is installed, bench_torch.py).

`sketch` prints milliseconds of every operator's sketch and desketch, next to
those of reading and copying the same numbers and of libraries that do the same
work, and writes them and their curves to --out.

`scale` prints how the time of a round grows with clients, parameters, the size
of a sketch, devices and the population: slopes, expected and measured. On a
CPU each device has one thread, so that more devices use more cores.
"""

import json
import os
import pathlib

from absl import app, flags, logging
from fl_sketch.training import devices
import jax
import tqdm

from . import (
  contestants,
  round as round_bench,
  scale as scale_bench,
  scale_report,
  sketch as sketch_bench,
  sketch_report,
  workloads,
)

_REPEATS = flags.DEFINE_integer(
  'repeats', None, 'Runs of each contestant; if unset 7 of sketches, else 5.'
)
# round
_WORKLOAD = flags.DEFINE_enum(
  'workload', None, list(workloads.WORKLOADS), 'Workload; both if unset.'
)
_PEERS = flags.DEFINE_string('peers', None, 'Folder of hand-written loops.')
_TIMED = flags.DEFINE_integer('timed', 20, 'Timed rounds in each of them.')
_VARIANT = flags.DEFINE_string('variant', 'fedavg', 'Variant of a worker.')
# sketch
_DIMS = flags.DEFINE_list(
  'dims',
  [str(2**i) for i in (16, 18, 20, 22, 24, 27)],
  'Numbers of coordinates.',
)
_SIZES = flags.DEFINE_list(
  'sizes', None, 'Floats of a table; if unset 4096, 65536, and 256 at d=65536.'
)
_CLIENTS = flags.DEFINE_list(
  'clients', ['1', '32'], 'Numbers of clients at once.'
)
_OPERATORS = flags.DEFINE_list(
  'operators', list(contestants.OPERATORS), 'Operators to measure.'
)
_LIBRARIES = flags.DEFINE_bool(
  'libraries', True, 'Also measures NumPy, SciPy, scikit-learn, PyTorch.'
)
_MEMORY = flags.DEFINE_float(
  'memory_gib', 1.0, 'Points whose input is larger are left out.'
)
_OUT = flags.DEFINE_string(
  'out', None, 'Folder of results; runs/bench_sketch or runs/bench_scale.'
)
# scale
_QUICK = flags.DEFINE_bool('quick', False, 'Fewer and smaller points.')
_AXES = flags.DEFINE_list('axes', None, 'Axes to measure; all if unset.')


def main(argv):
  """Runs one benchmark, or one worker process of it."""
  logging.set_verbosity(logging.WARNING)
  if argv[1:] == ['sketch']:
    # One device, so that a single sketch uses every core.
    devices.start(cpu_devices=1)
    _compare_sketches()
  elif argv[1:] == ['scale']:
    one_thread = '--xla_cpu_multi_thread_eigen=false'
    os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {one_thread}'
    devices.start()
    _compare_scales()
  elif argv[1:] in (['round'], ['worker']):
    devices.start()
    _compare_rounds(argv[1:] == ['worker'])
  else:
    raise app.UsageError(
      f'Expected "round", "sketch" or "scale", got {argv[1:]}.'
    )


def _compare_rounds(worker):
  names = [_WORKLOAD.value] if _WORKLOAD.value else list(workloads.WORKLOADS)
  if worker:
    measurement = round_bench.measure(names[0], _VARIANT.value, _TIMED.value)
    print(json.dumps(measurement))
    return
  peers = pathlib.Path(_PEERS.value).absolute() if _PEERS.value else None
  repeats = 5 if _REPEATS.value is None else _REPEATS.value
  for name in names:
    medians = round_bench.compare(
      name, peers, repeats, _TIMED.value, f'{__package__}'
    )
    print(f'\n{name}\n\n{round_bench.table(medians)}\n')


def _compare_sketches():
  allowed = contestants.OPERATORS
  for name in _OPERATORS.value:
    if name not in allowed:
      raise app.UsageError(
        f'Expected {name!r} of --operators in {list(allowed)}.'
      )
  sizes = _integers(_SIZES) if _SIZES.value else None
  points = []
  for point in sketch_bench.points(
    _integers(_DIMS), sizes, _integers(_CLIENTS)
  ):
    if why := sketch_bench.too_large(point, _MEMORY.value):
      print(f'Left out: {why}')
    else:
      points.append(point)
  repeats = 7 if _REPEATS.value is None else _REPEATS.value
  results, files = [], []
  for result in sketch_bench.measure(
    points, _OPERATORS.value, repeats, _LIBRARIES.value
  ):
    results.append(result)
    tqdm.tqdm.write(sketch_report.table(result, jax.default_backend() != 'cpu'))
    # After each point, so that a run that is stopped leaves what it has.
    files = sketch_report.write(
      results, pathlib.Path(_OUT.value or 'runs/bench_sketch'), _LIBRARIES.value
    )
  print('\n'.join(sketch_report.verdicts(results)))
  print('Written:', *files)


def _compare_scales():
  axes = scale_bench.axes(_QUICK.value)
  names = _AXES.value or list(axes)
  for name in names:
    if name not in axes:
      raise app.UsageError(f'Expected {name!r} of --axes in {list(axes)}.')
  repeats = 5 if _REPEATS.value is None else _REPEATS.value
  results, files = [], []
  for name in names:
    results.append(scale_bench.measure(name, axes[name], repeats))
    # After each axis, so that a run that is stopped leaves what it has.
    files = scale_report.write(
      results, pathlib.Path(_OUT.value or 'runs/bench_scale')
    )
  print(scale_report.table(results))
  print('Written:', *files)


def _integers(flag):
  try:
    values = [int(text) for text in flag.value]
  except ValueError:
    values = [0]
  if not values or min(values) < 1:
    raise app.UsageError(
      f'Expected --{flag.name}={",".join(flag.value)} to be integers >= 1.'
    )
  return values


if __name__ == '__main__':
  app.run(main)
