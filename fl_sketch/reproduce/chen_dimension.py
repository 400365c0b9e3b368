"""Table 1, the dimension, and the defaults of Chen et al., arXiv:2411.06770."""

import functools
import math

from fl_sketch import algorithms
from fl_sketch import reporting
from fl_sketch import sketches
from fl_sketch.reproduce import lab as lab_lib
from fl_sketch.reproduce import song_runs
from fl_sketch.reproduce import study
from fl_sketch.theory import chen_corollaries
import jax.numpy as jnp
import numpy as np

_SOURCE = 'Chen, Li, Banerjee, arXiv:2411.06770'


def table_1(lab: lab_lib.Lab) -> study.Report:
  """Bits, rates and convergence as printed, beside bytes that are counted."""
  dimension, size = 42_000_000, 400_000
  text = chen_corollaries.comparison(dimension, size, 600, 5)
  head, _, *rows = (
    [cell.strip() for cell in line.split('|')[1:-1]]
    for line in text.splitlines()
  )
  counted = lab.kept('chen/bytes', {'d': 1000}, _counted)
  claims = [
    study.Claim(
      'bytes that a SAFL client sends in a round over 4 b',
      counted['SAFL'] / 400,
      '<=',
      1.0,
    ),
    study.Claim(
      'bytes of 1-bit Adam after its warm-up over d bits',
      counted['1-bit Adam'] / 125,
      '<=',
      1.05,
    ),
  ]
  caption = f'd = {dimension:,}, b = {size:,}, T = 600, C = 5; constants are 1'
  measured = [[name, f'{number:,.0f}'] for name, number in counted.items()]
  return study.Report(
    claims,
    counted,
    [
      study.Table(caption, head, rows),
      study.Table(
        'Bytes up of a client in its last round, counted from what is sent: '
        'd = 1,000, options as algorithms.describe has them',
        ('method', 'bytes'),
        measured,
      ),
    ],
    notes=[
      'Rates are those that the papers state, with their logarithms and '
      'constants at 1: they order methods and predict nothing.'
    ],
  )


def _counted() -> dict[str, float]:
  """Bytes of one client, in the round that differs from the first if any."""
  found = {
    'FetchSGD': 'fetchsgd',
    'CocktailSGD': 'cocktail_sgd',
    'CD-Adam': 'cd_adam',
    '1-bit Adam': 'onebit_adam',
    'MARINA': 'marina',
    'SAFL': 'safl',
  }
  return {
    name: float(algorithms.measure(kind).up[-1]) for name, kind in found.items()
  }


def dimension(lab: lab_lib.Lab) -> study.Report:
  """At a fixed size of tables, rounds follow the spectrum and not d."""
  sizes = lab.pick(
    (64, 256), (256, 1024, 4096, 16_384), (256, 1024, 4096, 16_384)
  )
  most = lab.pick(60, 600, 600)
  found = {
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
  last = lambda name: found[name][-1] or math.inf
  widths = _widths(lab)
  axes = reporting.new_axes('parameters', 'rounds to a tenth of the first gap')
  for i, (name, rounds) in enumerate(found.items()):
    known = [(d, t) for d, t in zip(sizes, rounds, strict=True) if t]
    axes.loglog(
      *zip(*known, strict=True), marker='o', label=name, **reporting.look(i)
    )
  axes.legend(frameon=False)
  claims = [
    study.Claim(
      f'decaying spectrum: rounds at d = {sizes[-1]} over those at {sizes[0]}',
      last('decaying') / found['decaying'][0],
      '<=',
      1.5,
    ),
    study.Claim(
      'flat spectrum: the same; not reached counts as infinite',
      last('flat') / found['flat'][0],
      '>=',
      1.5,
    ),
    study.Claim(
      f'MLP on digits, b = 512: rounds to a training loss of 0.5 at d = '
      f'{widths[-1][0]:,} over those at {widths[0][0]:,}',
      widths[-1][1] / widths[0][1],
      '<=',
      1.5,
    ),
  ]
  rows = [
    [f'{d:,}', *(f'{found[name][i] or "not reached"}' for name in found)]
    for i, d in enumerate(sizes)
  ]
  return study.Report(
    claims,
    found | {'mlp': widths},
    [
      study.Table('Rounds, b = 64', ('d', *found), rows),
      study.Table(
        'MLP on digits: mean rounds of three seeds',
        ('d', 'rounds'),
        [[f'{d:,}', f'{t:.0f}'] for d, t in widths],
      ),
    ],
    [study.drawn('Rounds against the dimension, tables of 64 numbers.', axes)],
    [
      'Quadratics, all coordinates equally far at first, SRHT, at the step '
      '1 / (largest + trace / b).'
    ],
  )


_SPECTRA = {
  'decaying': lambda d: np.arange(1.0, d + 1) ** -2,
  'flat': np.ones,
}


def _rounds(curvature, most):
  """Mean rounds to a tenth of the first gap; None if they are not enough."""
  d, weights = len(curvature), jnp.asarray(curvature, jnp.float32)
  problem = song_runs.Problem(
    lambda w, x: 0.5 * jnp.sum(weights * (w - x[0]) ** 2),
    np.zeros((4, 1, d), np.float32),
    lambda w: 0.5 * (w**2 @ curvature),
    np.ones(d),
    {},
  )
  step = 1 / (curvature.max() + curvature.sum() / 64)
  path = song_runs.play(problem, sketches.srht(64), step, 1, most, runs=3)
  gap = problem.value(path)
  there = gap <= 0.1 * gap[:, :1]
  return float(there.argmax(1).mean()) if there.any(1).all() else None


def _widths(lab) -> list[tuple[int, float]]:
  """Parameters and rounds to a training loss, of MLPs of growing widths."""
  found = []
  for width in lab.pick((16, 32), (32, 64, 128, 256), (32, 64, 128, 256)):
    c = {
      'widths': (width, width),
      'population': 5,
      'cohort': 5,
      'rounds': lab.pick(20, 200, 200),
      'eval_every': lab.pick(20, 200, 200),
      'checkpoint_every': 200,
      'local_steps': 1,
      'algorithm': 'safl',
      'sketch': {'kind': 'block_cyclic', 'size': 512},
      'server_optimizer': 'adam',
      'server_lr': 0.01,
      'sweep': {'seed': lab.pick((0,), (0, 1, 2), (0, 1, 2))},
    }
    rounds = []
    for run in lab.sweep(f'chen/widths/{width}', c):
      xs, losses = run.curve('train_loss')
      smooth = np.convolve(losses, np.ones(5) / 5, 'valid')
      there = smooth <= lab.pick(3.0, 0.5, 0.5)
      rounds.append(float(xs[there.argmax()] + 1) if there.any() else math.inf)
    d = 65 * width + (width + 1) * width + 10 * (width + 1)
    found.append((d, float(np.mean(rounds))))
  return found


def defaults(lab: lab_lib.Lab) -> study.Report:
  """The appendix's settings under its three servers."""
  base = lab.pick(
    {'dataset': 'digits', 'rounds': 4},
    {'dataset': 'mnist', 'rounds': 100},
    {'dataset': 'cifar10', 'model': 'resnet18', 'rounds': 600},
  ) | {
    'population': 5,
    'cohort': 5,
    'local_steps': lab.pick(1, 2, 4),
    'batch_size': 128,
    'label_smoothing': 0.1,
    'weight_decay': 1e-4,
    'algorithm': 'safl',
    'sketch': {'kind': 'block_cyclic', 'size': lab.pick(481, 5089, 400_000)},
    'final_server_lr': 1e-5,
    'eval_every': lab.pick(2, 20, 100),
    'sweep': {'seed': lab.pick((0,), (0, 1, 2), (0, 1, 2))},
  }
  servers = {
    'SGD, rate 1': {
      'server_optimizer': 'momentum', 'momentum': 0.0, 'server_lr': 1.0,
    },
    'SGD with momentum 0.9, rate 1': {
      'server_optimizer': 'momentum', 'momentum': 0.9, 'server_lr': 1.0,
    },
    'Adam, rate 0.01': {'server_optimizer': 'adam', 'server_lr': 0.01},
  }  # fmt: skip
  claims, rows, seeds = [], [], {}
  for i, (name, fields) in enumerate(servers.items()):
    runs = lab.sweep(f'chen/defaults/{i}', base | fields)
    seeds[name] = [run.final() for run in runs]
    mean, error = lab_lib.mean_and_error(seeds[name])
    claims.append(
      study.Claim(
        f'{name}: test accuracy, %', 100 * mean, '>=', 85, 100 * error
      )
    )
    rows.append([name, lab_lib.shown(seeds[name], 100)])
  return study.Report(
    claims,
    seeds,
    [study.Table('MNIST, an MLP of 50,890', ('server', 'accuracy, %'), rows)],
    notes=[
      'Batch 128, label smoothing 0.1, weight decay 1e-4, a cosine to 1e-5, '
      'five clients with equal shares, as in appendix D; the client rate '
      '(0.1), the local steps (2) and beta_2 (0.999) it does not print. MNIST '
      'and a small MLP stand for its models at cpu scale, tables of d / 10.'
    ],
  )


STUDIES = (
  study.Study(
    'S4-Tab1', 'Table 1: bits, rates and convergence of six methods',
    f'{_SOURCE}, Table 1', table_1, minutes=0.1,
  ),
  study.Study(
    'S4-LogD', 'The dimension counts through the spectrum alone',
    f'{_SOURCE}, section 3', dimension, minutes=1,
  ),
  study.Study(
    'S4-AppD', 'The defaults of the experiments, under three servers',
    f'{_SOURCE}, appendix D', defaults, minutes=1.5,
  ),
)  # fmt: skip
