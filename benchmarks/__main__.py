"""Measures speed as ratios of medians taken in one run.

  fl-sketch bench round [--peers=DIR] [--workload=lenet]
  fl-sketch bench sketch [--dims=65536,...] [--sizes=4096,...]
  fl-sketch bench scale [--quick] [--axes=clients,...]
  fl-sketch bench noise
  fl-sketch bench slow_link [--rates=10,100] [--torch=PYTHON]
  fl-sketch bench gpu [--peers=DIR] [--budget=480] [--quick]
  fl-sketch bench compressed [--leaves=10,100,500] [--dims=1000000,...]
  fl-sketch bench elastic --text=FILE [--sites=2] [--seconds=120,2700]

benchmarks/README.md says what each prints. --peers is a folder of hand-written
loops (bench_jax.py and, where PyTorch is installed, bench_torch.py).
"""

import functools
import importlib.util
import math
import os
import pathlib
import sys

from absl import app, flags, logging
from fl_sketch.runs import devices
import jax
import tqdm

from . import (
  compressed,
  contestants,
  elastic,
  gpu,
  report,
  round as rounds,
  scale,
  sketch,
  slow_link,
)
from .timing import noise_ratios
from .workloads import WORKLOADS

_NAMES = (
  'round',
  'sketch',
  'scale',
  'noise',
  'slow_link',
  'gpu',
  'compressed',
  'elastic',
)
_ONE_THREAD = '--xla_cpu_multi_thread_eigen=false'
_REPEATS = flags.DEFINE_integer('repeats', None, 'Runs (sketch: 7, else 5).')
_OUT = flags.DEFINE_string('out', None, 'Folder (default: runs/bench_NAME).')
_WORKLOAD = flags.DEFINE_enum('workload', None, [*WORKLOADS], 'Default: all.')
_PEERS = flags.DEFINE_string('peers', None, 'Folder of hand-written loops.')
_DIMS = flags.DEFINE_list(
  'dims',
  [str(2**i) for i in (16, 18, 20, 22, 24, 27)],
  'Numbers of coordinates; inputs above 1 GiB are left out.',
)
_SIZES = flags.DEFINE_list(
  'sizes', None, 'Floats of a table; if unset 4096, 65536, and 256 at d=65536.'
)
_CLIENTS = flags.DEFINE_list('clients', ['1', '32'], 'Clients at once.')
_OPERATORS = flags.DEFINE_list(
  'operators', list(contestants.OPERATORS), 'Operators to measure.'
)
_QUICK = flags.DEFINE_bool('quick', False, 'Fewer and smaller points.')
_BUDGET = flags.DEFINE_integer(
  'budget', 480, 'Seconds after which no task of gpu starts.', 1
)
_AXES = flags.DEFINE_list('axes', None, 'Axes to measure; all if unset.')
_PROCESSES = flags.DEFINE_list('processes', ['2', '4'], 'Numbers of processes.')
_RATES = flags.DEFINE_list('rates', ['10', '100', '1000'], 'Mbit/s of links.')
_CONTESTANTS = flags.DEFINE_list(
  'contestants', list(slow_link.CONTESTANTS), 'Those to measure.'
)
_PARTS = flags.DEFINE_list('parts', list(gpu.PARTS), 'Parts of gpu to run.')
_TORCH = flags.DEFINE_string(
  'torch', None, 'A Python with PyTorch; this one, if it has it, where unset.'
)

_LEAVES = flags.DEFINE_list(
  'leaves', ['10', '100', '500'], 'Arrays of a compiled step; none if empty.'
)
_TEXT = flags.DEFINE_string('text', None, 'A text to train on (elastic).')
_SITES = flags.DEFINE_integer('sites', 2, 'Sites of elastic.', 1)
_SECONDS = flags.DEFINE_list(
  'seconds', ['120', '2700'], 'Of elastic, without and with faults.'
)
_FAULTS = flags.DEFINE_integer('faults', 70, 'An hour; 0 for none.', 0)


def main(argv):
  """Run one benchmark, or one worker process of it."""
  logging.set_verbosity(logging.WARNING)
  match argv[1:]:
    case ['sketch']:
      devices.start(cpu_devices=1)  # so that a single sketch uses every core
      _compare_sketches()
    case ['scale']:
      set_before = os.environ.get('XLA_FLAGS', '')
      os.environ['XLA_FLAGS'] = f'{set_before} {_ONE_THREAD}'
      devices.start()
      _compare_scales()
    case ['round']:
      devices.start()
      _compare_rounds()
    case ['noise']:
      print(noise_ratios(10**6, _REPEATS.value or 15))
    case ['slow_link', *inside]:
      _compare_links(isolated=bool(inside))
    case ['compressed']:
      _compare_compressors()
    case ['elastic', *inside]:
      _train_sites(isolated=bool(inside))
    case ['gpu']:
      # Several processes use the device.
      os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
      devices.start()
      _measure_accelerator()
    case ['worker', 'compile', text, both_ways, leaves]:
      devices.start(cpu_devices=2)
      jax.config.update('jax_enable_compilation_cache', False)
      args = text, both_ways == 'True', int(leaves)
      print(compressed.compile_seconds(*args))
    case ['worker', 'decoder', method]:
      devices.start()
      gpu.work(method, _QUICK.value)
    case ['worker', name, variant]:
      devices.start()
      rounds.work(name, variant)
    case names:
      sys.exit(f'Name one of {", ".join(_NAMES)}; got {names}.')


def _peers():
  return pathlib.Path(_PEERS.value).absolute() if _PEERS.value else None


def _compare_rounds():
  names = [_WORKLOAD.value] if _WORKLOAD.value else list(WORKLOADS)
  peers = _peers()
  seconds = {}
  for name in names:
    args = name, peers, _REPEATS.value or 5, f'{__package__}'
    seconds[name] = rounds.compare(*args)
    print(f'\n{name}\n\n{report.round_table(seconds[name])}\n')
  out = pathlib.Path(_OUT.value or 'runs/bench_round')
  print('Written:', *report.write_rounds(seconds, out))


def _compare_sketches():
  _check(_OPERATORS, contestants.OPERATORS)
  sizes = _integers(_SIZES) if _SIZES.value else None
  points = sketch.points(_integers(_DIMS), sizes, _integers(_CLIENTS))
  print(sketch.exchange(10**6, _REPEATS.value or 7))
  results = sketch.measure(points, _OPERATORS.value, _REPEATS.value or 7)
  show = lambda result: tqdm.tqdm.write(report.sketch_table(result))
  _write_each(results, report.write_sketches, 'runs/bench_sketch', show)


def _compare_scales():
  axes = scale.axes(_QUICK.value)
  if _AXES.value:
    _check(_AXES, axes)
  results = (
    scale.measure(name, axes[name], _REPEATS.value or 5)
    for name in _AXES.value or axes
  )
  show = lambda result: tqdm.tqdm.write(report.scale_table([result]))
  _write_each(results, report.write_scales, 'runs/bench_scale', show)


def _compare_links(isolated):
  _check(_CONTESTANTS, slow_link.CONTESTANTS)
  counts, rates = _integers(_PROCESSES), _integers(_RATES)
  if not isolated and (why := _isolate()):
    print(f'Links cannot be emulated here ({why}): loopback alone.')
    rates = [math.inf]
  pythons = {'jax': sys.executable}
  if _TORCH.value or importlib.util.find_spec('torch'):
    pythons['torch'] = _TORCH.value or sys.executable
  else:
    print('Without PyTorch, which is not installed here; --torch names one.')
  turns = _REPEATS.value or 3
  names = _CONTESTANTS.value
  results = slow_link.measure(counts, rates, turns, pythons, names)
  show = lambda result: tqdm.tqdm.write(report.link_table(result))
  _write_each(results, report.write_links, 'runs/bench_slow_link', show)


def _compare_compressors():
  tables = []
  if _LEAVES.value:
    leaves = _integers(_LEAVES)
    tables = [compressed.compare_compilation(leaves, f'{__package__}')]
    print(tables[0])
  devices.start(cpu_devices=1)
  dims = [10**6, 10**7, 10**8]
  if flags.FLAGS['dims'].present:
    dims = _integers(_DIMS)
  for table in compressed.compare_codecs(dims, _REPEATS.value or 7):
    print(f'\n{table}')
    tables.append(table)
  out = pathlib.Path(_OUT.value or 'runs/bench_compressed')
  out.mkdir(parents=True, exist_ok=True)
  (out / 'README.md').write_text('\n\n'.join(tables) + '\n')


def _isolate() -> str:
  """Start again in namespaces; return why that is not possible."""
  if why := slow_link.refusal():
    return why
  program = [sys.executable, '-m', f'{__package__}']
  command = [*slow_link.ISOLATED, *program, *sys.argv[1:], 'isolated']
  os.execvp(command[0], command)


def _train_sites(isolated):
  if not isolated and (why := _isolate()):
    sys.exit(f'Links cannot be emulated here ({why}).')
  if not _TEXT.value:
    sys.exit('--text names no file.')
  out = pathlib.Path(_OUT.value or 'runs/bench_elastic').absolute()
  os.environ['JAX_COMPILATION_CACHE_DIR'] = f'{out}/programs'
  text = pathlib.Path(_TEXT.value).absolute()
  (mbits, *_), (calm, hard) = _integers(_RATES), _integers(_SECONDS)
  lines = elastic.compare(
    out, text, _SITES.value, mbits, calm, hard, _FAULTS.value
  )
  print('\n'.join(lines))
  (out / 'report.md').write_text('\n'.join(lines) + '\n')


def _measure_accelerator():
  _check(_PARTS, gpu.PARTS)
  platform, quick = jax.default_backend(), _QUICK.value
  if platform == 'cpu' and not quick:
    sys.exit('JAX finds no accelerator here; --quick is for a CPU.')
  if (peers := _peers()) is None:
    print('Without hand-written loops; --peers names their folder.')
  tasks = gpu.tasks(quick, peers, _REPEATS.value, f'{__package__}')
  todo = [task for task in tasks if task.part in _PARTS.value]
  budget = _BUDGET.value
  print(f'{platform}, tasks that start within {budget} s:')
  print(*(f'  {task.part}: {task.name}' for task in todo), sep='\n')
  results = gpu.measure(todo, budget)
  write = functools.partial(report.write_gpu, quick=quick, budget=budget)
  show = lambda result: tqdm.tqdm.write(report.gpu_tables([result]))
  _write_each(results, write, 'runs/bench_gpu', show)


def _write_each(results, write, folder, show):
  """Write after each result: a run that is stopped leaves what it has."""
  done, paths = [], []
  for result in results:
    done.append(result)
    show(result)
    paths = write(done, pathlib.Path(_OUT.value or folder))
  print('Written:', *paths)


def _check(flag, names):
  for name in flag.value:
    if name not in names:
      sys.exit(f'--{flag.name} has no {name!r}; name some of {list(names)}.')


def _integers(flag):
  if not all(text.isdecimal() and int(text) for text in flag.value):
    text = ','.join(flag.value)
    sys.exit(f'--{flag.name}={text} has a value that is no positive integer.')
  return [int(text) for text in flag.value]


if __name__ == '__main__':
  app.run(main)
