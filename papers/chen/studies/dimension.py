"""Table 1, the dimension, and the defaults of Chen et al., arXiv:2411.06770."""

import functools

from fl_sketch import algorithms, sketches
from fl_sketch.reporting import figures
from fl_sketch.utils import markdown
import numpy as np

from ...common import lab as lab_lib, study, summaries, verdicts
from ...song.studies import runs as song_runs
from ..statements import corollaries as chen_corollaries


def table_1(lab: lab_lib.Lab) -> study.Report:
  """Bits, rates and convergence as printed, beside bytes that are counted."""
  dimension, size = 42_000_000, 400_000
  text = chen_corollaries.comparison(dimension, size, rounds=600, clients=5)
  head, *rows = markdown.cells(text)
  # Of one client, in the round that differs from the first if any.
  counted = {
    name: float(algorithms.measure(kind).up[-1])
    for name, kind in _COUNTED.items()
  }
  lab.played['chen/bytes'] = {'d': 1000, **_COUNTED}
  claims = [
    verdicts.exact(
      'bytes that a SAFL client sends in a round over 4 b',
      counted['SAFL'] / 400, '<=', 1.0,
    ),
    verdicts.exact(
      'bytes of 1-bit Adam after its warm-up over d bits',
      counted['1-bit Adam'] / 125, '<=', 1.05,
    ),
  ]  # fmt: skip
  caption = f'd = {dimension:,}, b = {size:,}, T = 600, C = 5; constants are 1'
  of_bytes = (
    'Bytes up of a client in its last round, counted from what is sent: '
    'd = 1,000, options as algorithms.describe has them'
  )
  measured = [[name, f'{number:,.0f}'] for name, number in counted.items()]
  tables = [
    study.Table(caption, head, rows),
    study.Table(of_bytes, ('method', 'bytes'), measured),
  ]
  note = (
    'Rates are those that the papers state, with their logarithms and '
    'constants at 1: they order methods and predict nothing.'
  )
  return study.Report(claims, counted, tables, notes=[note])


_COUNTED = {
  'FetchSGD': 'fetchsgd', 'CocktailSGD': 'cocktail_sgd', 'CD-Adam': 'cd_adam',
  '1-bit Adam': 'onebit_adam', 'MARINA': 'marina', 'SAFL': 'safl',
}  # fmt: skip


def dimension(lab: lab_lib.Lab) -> study.Report:
  """At a fixed size of tables, rounds follow the spectrum and not d."""
  large = (256, 1024, 4096, 16_384)
  sizes = lab.pick((64, 256), large, large)
  times, widths = _quadratics(lab, sizes), _widths(lab)
  (least, few), *_, (most, many) = widths.items()
  # A run that is not there counts as slower where the claim is that it is not,
  # and as there after the last round where the claim is that it is slower.
  last = np.array(times['flat'][-1]).clip(max=_most(lab))
  claims = [
    verdicts.of_seeds(
      f'decaying spectrum: rounds at d = {sizes[-1]} over those at {sizes[0]}',
      _growth(times['decaying'][0], times['decaying'][-1]), '<=', 1.5,
    ),
    verdicts.of_seeds(
      'flat spectrum: the same; not reached counts as the last round',
      _growth(times['flat'][0], last), '>=', 1.5,
    ),
    verdicts.of_seeds(
      f'MLP on digits, b = {_table_of(lab):,}: rounds to a training loss of '
      f'{_loss_of(lab):g} at d = {most:,} over those at {least:,}',
      _growth(few, many), '<=', 1.5,
    ),
  ]  # fmt: skip
  cells = {name: [_shown(t) for t in at] for name, at in times.items()}
  rows = [
    [f'{d:,}', *at_d] for d, *at_d in zip(sizes, *cells.values(), strict=True)
  ]
  tables = [
    study.Table('Rounds, b = 64, three runs', ('d', *times), rows),
    study.Table(
      'MLP on digits: rounds', ('d', 'rounds'),
      [[f'{d:,}', _shown(t)] for d, t in widths.items()],
    ),
  ]  # fmt: skip
  lines = [
    figures.Line(f'{name} spectrum', sizes, *_interval(at))
    for name, at in times.items()
  ]  # fmt: skip
  labels = 'parameters', 'rounds to a tenth of the first gap'
  panel = figures.Panel(*labels, lines, x_scale='log', y_scale='log')
  caption = 'Rounds against the dimension, tables of 64 numbers.'
  note = (
    'Quadratics, all coordinates equally far at first, SRHT, at the step '
    '1 / (largest + trace / b).'
  )
  seeds = times | {'mlp': widths}
  pictures = [study.Picture(caption, [panel])]
  return study.Report(claims, seeds, tables, pictures, [note])


def _growth(few, many) -> np.ndarray:
  """Divides rounds by rounds, by run; inf / inf is NaN and breaks a claim."""
  with np.errstate(invalid='ignore'):
    return np.divide(many, few)


def _interval(times) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Mean and interval over runs; NaN where one never reaches its target."""
  x = np.transpose(times)
  return summaries.interval(np.where(np.isfinite(x), x, np.nan))


def _shown(times) -> str:
  return lab_lib.shown(times) if np.isfinite(times).all() else 'not reached'


def _most(lab) -> int:
  return lab.pick(60, 600, 600)


def _quadratics(lab, sizes) -> dict[str, list[list[float]]]:
  """Counts rounds at each size, of each run, by spectrum."""
  most = _most(lab)
  return {
    name: [
      lab.kept(
        f'chen/dimension/{name}-{d}',
        {'spectrum': name, 'd': d, 'b': 64, 'most': most, 'runs': 3},
        functools.partial(_rounds, curvature(d), most),
      )
      for d in sizes
    ]
    for name, curvature in _SPECTRA.items()
  }


_SPECTRA = {'decaying': lambda d: np.arange(1.0, d + 1) ** -2, 'flat': np.ones}


def _rounds(curvature, most):
  """Counts rounds of each run until the gap is a tenth; infinite if never."""
  problem = song_runs.quadratic(curvature)
  step = 1 / (curvature.max() + curvature.sum() / 64)
  path = song_runs.play(problem, sketches.srht(64), step, 1, most, runs=3)
  gaps = problem.value(path)
  return [lab_lib.first(np.arange(most + 1), g <= 0.1 * g[0]) for g in gaps]


def _table_of(lab) -> int:
  return lab.pick(512, 512, 4096)


def _loss_of(lab) -> float:
  return lab.pick(3.0, 0.5, 0.5)


def _widths(lab) -> dict[int, list[float]]:
  """Counts rounds to a training loss, of each seed, by parameters."""
  rounds, target = lab.pick(20, 200, 200), _loss_of(lab)
  sketch = {'kind': 'block_cyclic', 'size': _table_of(lab)}
  times = {}
  for width in lab.pick((16, 32), (32, 64, 128, 256), (128, 256, 512, 1024)):
    fields = {
      'model_options': {'widths': (width, width)}, 'population': 5, 'cohort': 5,
      'rounds': rounds, 'eval_every': rounds, 'checkpoint_every': 200,
      'local_steps': 1, 'algorithm': 'safl', 'sketch': sketch,
      'server_optimizer': 'adam', 'server_lr': 0.01,
      'sweep': {'seed': lab.seeds()},
    }  # fmt: skip
    runs = lab.sweep(f'chen/widths/{width}', fields)
    d = 65 * width + (width + 1) * width + 10 * (width + 1)
    times[d] = [_reaches(run, target) for run in runs]
  return times


def _reaches(run, target) -> float:
  """The first round whose loss, the mean of five, is at most the target."""
  xs, losses = run.curve('train_loss')
  return lab_lib.first(xs[4:], summaries.smooth(losses, 5) <= target)


def defaults(lab: lab_lib.Lab) -> study.Report:
  """The appendix's settings under its three servers."""
  base = lab.pick(
    {'dataset': 'digits', 'rounds': 4},
    {'dataset': 'mnist', 'rounds': 100},
    {'dataset': 'cifar10', 'model': 'resnet18', 'rounds': 600},
  ) | {
    'population': 5, 'cohort': 5, 'local_steps': lab.pick(1, 2, 4),
    'batch_size': 128, 'label_smoothing': 0.1, 'weight_decay': 1e-4,
    'algorithm': 'safl', 'final_server_lr': 1e-5,
    'sketch': {'kind': 'block_cyclic', 'size': lab.pick(481, 5089, 400_000)},
    'eval_every': lab.pick(2, 20, 100), 'sweep': {'seed': lab.seeds()},
  }  # fmt: skip
  claims, rows, seeds = [], [], {}
  for i, (name, fields) in enumerate(_SERVERS.items()):
    runs = lab.sweep(f'chen/defaults/{i}', base | fields)
    seeds[name] = [100 * run.final() for run in runs]
    text = f'{name}: test accuracy, %'
    claims.append(verdicts.of_seeds(text, seeds[name], '>=', 85.0))
    rows.append([name, lab_lib.shown(seeds[name])])
  table = study.Table('Three servers', ('server', 'accuracy, %'), rows)
  note = (
    'Batch 128, label smoothing 0.1, weight decay 1e-4, a cosine to 1e-5, '
    'five clients with equal shares, as in appendix D; the client rate '
    f'(0.1), the local steps ({base["local_steps"]}) and beta_2 (0.999) it '
    'does not print. At cpu scale MNIST and an MLP of 50,890 parameters '
    'stand for its data and models; tables of a tenth of the parameters.'
  )
  return study.Report(claims, seeds, [table], notes=[note])


_SERVERS = {
  'SGD, rate 1': {
    'server_optimizer': 'momentum', 'momentum': 0.0, 'server_lr': 1.0,
  },
  'SGD with momentum 0.9, rate 1': {
    'server_optimizer': 'momentum', 'momentum': 0.9, 'server_lr': 1.0,
  },
  'Adam, rate 0.01': {'server_optimizer': 'adam', 'server_lr': 0.01},
}  # fmt: skip
