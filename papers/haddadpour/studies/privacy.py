"""What tables of FedSKETCH hide of images, and lose of updates."""

import warnings

from fl_sketch import accounting, runs, sketches
from fl_sketch.data import sources
from fl_sketch.runs import saved_params
from fl_sketch.sketches import estimators
from fl_sketch.utils import seeding
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
from scipy import optimize, stats

from ...common import privacy_bounds, registration, study, verdicts, workspace
from ...common.workspace import Workspace

_NOTES = (
  'Images: a client sends the table of its gradient of logistic regression at '
  'zero, for one image. The server knows the hash functions, as it must. It '
  'finds the class by inner products of tables, and the pixels by least '
  'squares, as none is negative. LeNet-5 was not attacked.',
  'Epsilon: of one of 61,706 coordinates, which is what Theorem 1 is about. It '
  'changes by 8.8 standard deviations; all others are normal noise that nobody '
  'knows, as in Assumption 1, and new in each round. A table is then a '
  'Gaussian mechanism of it. For two given inputs no epsilon is finite.',
  'Updates: means of 25 of 50 clients with LeNet-5 on MNIST, five steps at '
  'rate 0.1. HEAPRIX as printed has one table and no exact values; corrected '
  'it has exact values and a second table.',
)
_WAYS = 'HEAPRIX, printed', 'HEAPRIX, corrected', 'PRIVIX'
_HEAD = (
  'table', 'numbers', 'images back to 1 %', 'median relative error',
  'epsilon of a coordinate at delta 1e-5, 1 round', '60 rounds',
)  # fmt: skip


def privacy(ws: Workspace) -> study.Report:
  """Computes images from tables, and compresses updates of LeNet-5."""
  r = registration.read('S2-Privacy')
  if ws.scale == 'quick':
    r |= {'tables': [[5, 20], [8, 40], [9, 40]], 'seeds': [1, 2], 'draws': 2}
    r |= {'rounds': [0, 1], 'images': 1}
  errors = {'({}, {})'.format(*t): _images(ws, r, t) for t in r['tables']}
  back = {at: (x <= 0.01).astype(float) for at, x in errors.items()}
  rows = []
  for (at, x), (t, m) in zip(errors.items(), r['tables'], strict=True):
    shown = f'{back[at].mean():.2f}', f'{np.median(x):.2g}'
    worth = (f'{_epsilon(t * m, k):.3g}' for k in (1, 60))
    rows.append([at, f'{t * m:,}', *shown, *worth])
  tables = [study.Table('Images from single tables.', _HEAD, rows)]
  measured = [_updates(ws, r, seed) for seed in r['seeds']]
  cells = {k: np.array([m[k] for m in measured]) for k in measured[0]}
  peaks = {at.split(',')[0]: x[:, 0, 2] for at, x in cells.items()}
  omega, kept = (
    {
      way: {at: x[:, i, k].round(5) for at, x in cells.items()}
      for i, way in enumerate(_WAYS)
    }
    for k in (0, 1)
  )
  corrected = np.array([*kept[_WAYS[1]].values()]) - 1
  half, *paper = [*back][-3:]
  values = {
    'admits': _admitted(), 'back': {at: back[at] for at in paper},
    'back from half': back[half], 'kurtosis': peaks,
    'omega': {at: x / omega['PRIVIX'][at] for at, x in omega[_WAYS[1]].items()},
    'printed': kept[_WAYS[0]], 'corrected': verdicts.both_ways(corrected),
  }  # fmt: skip
  for name, ways in (('omega', omega), ('part kept', kept)):
    shown = [
      [at, *(workspace.shown(x[at], digits=3) for x in ways.values())]
      for at in cells
    ]
    tables.append(study.Table(f'Updates: {name}.', ('update', *ways), shown))
  seeds = {'relative error': errors, 'kurtosis': peaks, 'omega': omega}
  found = registration.claims(r, values)
  return study.Report(found, seeds | {'kept': kept}, tables, notes=_NOTES)


def _epsilon(numbers: int, rounds: int) -> float:
  noise = (61_705 / numbers) ** 0.5 / (2 * 4.4)
  return accounting.gaussian_epsilon(noise, 1e-5, rounds)


def _admitted() -> int:
  """The most columns of Theorem 1 with 60,000 inputs."""
  spec = {'rows': 20, 'dimension': 60_000, 'max_value': 4.4, 'stddev': 1.0}
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    for cols in range(2, 200):
      try:
        privacy_bounds.count_sketch_heuristic_epsilon(cols=cols, **spec)
      except ValueError:
        break
  return cols - 1


def _images(ws, r, table) -> np.ndarray:
  """Relative errors of images that come back from tables of this size."""
  data = ws.pick('digits', 'mnist')
  own = {'data': data, 'table': table, 'count': r['images']}

  def compute():
    test = sources.load(data, ws.data_dir).test
    return [_attacked(test, r['images'], seed, table) for seed in r['seeds']]

  name = 'haddadpour/privacy-{}x{}'.format(*table)
  own['seeds'] = r['seeds']
  return np.ravel(ws.cached(name, own, compute))


def _attacked(test, count, seed, table) -> list[float]:
  """Errors of images of a round, whose hash functions are public."""
  some = seeding.generator(seed, 'privacy').choice(len(test['y']), count, False)
  x = test['x'][some].reshape(count, -1) / np.float32(test['x'].max())
  op, key, errors = sketches.count_sketch(*table), jax.random.key(seed), []
  # Of the gradient at zero: an image times 1/10 minus the class, by classes.
  send = jax.jit(lambda x, slopes: op.sketch(key, jnp.outer(x, slopes)).ravel())
  columns = jax.jit(jax.vmap(send, (0, None), 1))
  parts = [np.array(columns(np.eye(x.shape[1]), e), float) for e in np.eye(10)]
  for image, y in zip(x, test['y'][some], strict=True):
    sent = np.array(send(image, 0.1 - np.eye(10)[y]), float)
    label = int(np.argmin([sent @ part.sum(1) for part in parts]))
    q, upper = np.linalg.qr(sum(parts) / 10 - parts[label])
    found = optimize.nnls(upper, q.T @ sent, maxiter=30 * len(image))[0]
    errors.append(float(np.linalg.norm(found - image) / np.linalg.norm(image)))
  return errors


def _updates(ws, r, seed) -> dict[str, list[list[float]]]:
  """Omega, part kept and kurtosis by update and way of `_WAYS`."""
  digits = {'dataset': 'digits', 'population': 4, 'batch_size': 8}
  mnist = {'dataset': 'mnist', 'model': 'lenet5', 'population': 50}
  config = ws.pick(digits, mnist | {'batch_size': 32})
  rounds = r['rounds'][-1] + 1
  config |= {
    'cohort': config['population'] // 2, 'local_steps': 5, 'client_lr': 0.1,
    'algorithm': 'fedavg', 'rounds': rounds, 'eval_every': rounds,
    'checkpoint_every': 1, 'keep_checkpoints': rounds, 'seed': seed,
  }  # fmt: skip
  name = f'haddadpour/updates-{seed}'
  folder = (ws.folder / 'runs' / f'{name}-run' / 'checkpoints').absolute()

  def compute():
    ws.train(f'{name}-run', config)
    start, found = runs.build(config, ws.data_dir).params, {}
    after = lambda n: saved_params.read(folder, n, start) if n else start
    for n in r['rounds']:
      both = (flatten_util.ravel_pytree(after(k))[0] for k in (n, n + 1))
      before, then = both
      u = np.asarray(before - then)
      for table in r['tables'][-2:]:
        at = 'round {}, ({}, {})'.format(n, *table)
        found[at] = _read(u, table, r['draws'], seed)
    return found

  own = {'run': config, 'rounds': r['rounds'], 'tables': r['tables'][-2:]}
  return ws.cached(name, own | {'draws': r['draws']}, compute)


def _read(update, table, draws, seed) -> list[list[float]]:
  """[omega, kept, kurtosis] of each of `_WAYS`, means over draws."""
  u = jnp.asarray(update / np.linalg.norm(update))
  op = sketches.count_sketch(*table)

  def one(key):
    read = lambda *how: estimators.heaprix(op, key, u, table[1], *how)
    privix = op.desketch(key, op.sketch(key, u), u)
    every = read('shared', False), read('fresh', True), privix
    return jnp.array([[jnp.sum((y - u) ** 2), y @ u] for y in every])

  means = np.mean(
    jax.lax.map(one, jax.random.split(jax.random.key(seed), draws)), 0
  )
  return [
    [*x, float(stats.kurtosis(update, fisher=False))] for x in means.tolist()
  ]
