"""Measures over fresh keys whether an operator has its stated properties."""

from collections.abc import Callable
import math
from typing import Any, NamedTuple

from fl_sketch.sketches import base
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import tqdm

FALSE_ALARM = 1e-8  # of a whole verification, which its statements share
TOLERANCE = 1e-4  # relative, of float32; broken algebra misses by far more
QUANTILES = 0.5, 0.95, 0.99, 0.999
_DENSE = 2**22  # entries of dense matrices that are drawn at a time
_SKETCHED = 'random', 'first spike', 'last spike', 'flat'
_PAIRS = (  # h and g of h^T R^T R g; the tails are of the last
  ('first spike', 'first spike'), ('last spike', 'last spike'),
  ('last spike', 'first spike'), ('first spike', 'flat'), ('flat', 'flat'),
  ('negative', 'random'), ('orthogonal', 'random'), ('other random', 'random'),
)  # fmt: skip
_SPIKY = np.array(['spike' in h for h, _ in _PAIRS])
# Bonferroni, for one side of one statement.
_LEVEL = FALSE_ALARM / 2 / (1 + len(_SKETCHED + _PAIRS + QUANTILES))


class Row(NamedTuple):
  """One quantity; None where nothing is printed, promised or to be judged."""

  quantity: str
  printed: float | None  # follows from Table 1 of Song et al.
  exact: float | None  # what is promised
  measured: float
  low: float  # of the confidence interval
  high: float
  holds: bool | None


class Verification(NamedTuple):
  """Measurements of `verify`; in print, 'below' marks a promise with slack."""

  rows: tuple[Row, ...]
  ok: bool  # whether no row fails
  title: str

  def __str__(self):
    head = 'quantity', 'printed', 'exact', 'measured', 'interval', 'verdict'
    cells = [head, *map(_cells, self.rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, tuple('-' * width for width in widths))
    lines = [' | '.join(map(str.ljust, row, widths)) for row in cells]
    return '\n'.join([self.title, '', *(f'| {line} |' for line in lines)])


def _cells(row):
  number = lambda v: '-' if v is None else f'{v:.4g}'
  interval, verdict = '-', {True: 'holds', False: 'FAILS', None: '-'}[row.holds]
  if row.low < row.high:
    interval = f'[{number(row.low)}, {number(row.high)}]'
    if row.holds and row.high < row.exact - TOLERANCE:
      verdict = 'holds, below'
  return row.quantity, *map(number, row[1:4]), interval, verdict


def verify(
  op: base.Sketch, d: Any, key: jax.Array, *,
  draws: int = 10_000, out: Callable[[str], object] = print,
) -> Verification:  # fmt: skip
  r"""Measure what `properties(op)` promises, by Monte Carlo over keys.

  With b the entries of the table, complex ones counted once, and unit vectors:
    bias: of :math:`R^T R g` at each coordinate of a random g and in a few
      directions; the largest, in standard errors, and how many are allowed.
    second moment: :math:`E\|R^T R x\|^2 - 1` <= `alpha`, for a few x.
    coordinate-wise: :math:`b\,E(h^T R^T R g - h^T g)^2` <= b `variance`, for a
      few pairs, the largest <= `coordinate_wise` (Song et al., Definition 4.1).
    tail: quantiles of :math:`\sqrt b\,|h^T R^T R g - h^T g|`; no promise.
    algebra: the largest relative deviation. Orthogonal rows and exactness,
      which padding may break, can fail only at one leaf of d = 2^k, b | d.

  All verdicts but that on bias raise a false alarm with probability
  `FALSE_ALARM`. Lower ends of means are valid for any number of draws and any
  tail: capital that bets against a mean of nonnegative numbers grows 1 / p fold
  with probability p at most, if that mean is kept (Waudby-Smith and Ramdas,
  JRSS B 2024). The ends of tails are order statistics; the upper ends of means,
  which no verdict uses, are asymptotic. Bias is judged by Bernstein's
  inequality, but with squares and ranges that are measured: nominally.

  >>> from fl_sketch import sketches
  >>> result = verify(sketches.ams(8), 33, jax.random.key(0), out=len)
  >>> row = result.rows[2]
  >>> result.ok, row.quantity, row.exact
  (True, 'second moment, first spike', 4.0)

  Of d coordinates, or a tree of them, measured as float32, over so many `draws`
  of the operator. The key[] is that of draws and of random vectors; `out` takes
  the table as text.

  Raises:
    TypeError: `key` is not a key, or a leaf is not of a float type.
    ValueError: draws < 100, d < 2, d below the table's size, or no properties.
  """
  promises, size = base.properties(op), base.dimension(d)
  if draws < 100 or size < 2:
    raise ValueError(f'{draws=} must be >= 100, and d={size} >= 2.')
  zeros = lambda x: jnp.zeros(base.leaf_type(x).shape, jnp.float32)
  vector = isinstance(d, int | np.integer)
  like = zeros(np.zeros(size)) if vector else jax.tree.map(zeros, d)
  b = sum(y.size for y in jax.tree.leaves(op.zero_table(like)))
  keys = jax.random.split(key)
  vectors = _vectors(keys[0], size)
  one = _one(op, promises.adjoint_scale or 0.0, like, vectors)
  stats = _draw(one, keys[1], size, draws, lanes=_DENSE // (b * size))
  of = lambda constant: constant and constant(like)
  a, alpha = of(promises.coordinate_wise), of(promises.alpha)
  exact = _exact(promises.variance, vectors, like, b)
  rows = (
    _bias(stats, (a or 0.0) / b),
    *_moments(stats, b, a, alpha, of(promises.printed), exact),
    *_tails(np.abs(stats.errors[:, -1]) * b**0.5),
    *_algebra(stats, b, promises, like),
  )
  sure = f'all intervals and verdicts at confidence 1 - {FALSE_ALARM:g}'
  title = f'{promises.name}: d={size}, {b=}, {draws=}, {sure}'
  result = Verification(rows, all(r.holds is not False for r in rows), title)
  out(str(result))
  return result


def _vectors(key, d):
  """By name f32[d], of length 1."""
  g, h = np.asarray(jax.random.normal(key, (2, d)), np.float64)
  vectors = {
    'random': g, 'negative': -g, 'other random': h, 'flat': np.ones(d),
    'first spike': np.eye(1, d)[0], 'last spike': np.eye(1, d, d - 1)[0],
    'orthogonal': h - h @ g / (g @ g) * g,
  }  # fmt: skip
  return {k: np.float32(x / np.linalg.norm(x)) for k, x in vectors.items()}


def _one(op, scale, like, vectors):
  tree, untable = ravel_pytree(like)[1], ravel_pytree(op.zero_table(like))[1]
  to_table = lambda key, x: ravel_pytree(op.sketch(key, tree(x)))[0]
  back = lambda key, y: ravel_pytree(op.desketch(key, untable(y), like))[0]
  sketch, desketch = (jax.vmap(f, (None, 0)) for f in (to_table, back))
  xs = jnp.stack([vectors[g] for g in _SKETCHED])
  hs = jnp.stack([vectors[h] for h, _ in _PAIRS])
  at = np.array([_SKETCHED.index(g) for _, g in _PAIRS])
  n, norm = len(xs), jnp.linalg.norm
  mixed = lambda x: (2 * x[0] - 3 * x[n - 1])[None]
  bound = lambda x: 2 * norm(x[0]) + 3 * norm(x[n - 1])

  def one(key):
    ys = sketch(key, jnp.concatenate([xs, mixed(xs)]))
    # Of R^* y desketch takes the real part; its imaginary part is that of i y.
    turned = 1j * ys[:1] if jnp.iscomplexobj(ys) else ys[:0]
    outs = desketch(key, jnp.concatenate([ys[:n], mixed(ys), turned]))
    forth = norm(ys[n] - mixed(ys)[0]) / bound(ys)
    back = norm(outs[n] - mixed(outs)[0]) / bound(outs)
    inner = (ys[0].conj() * ys[n]).real.sum()
    inner -= scale * (outs[:1] * mixed(xs)).sum()
    sizes = norm(ys[0]) * bound(ys) + scale * norm(outs[0]) * bound(xs)
    whole = norm(jnp.append(outs[0], outs[n + 1 :])) / norm(ys[0])
    length = abs(scale * whole * (ys.shape[1] / xs.shape[1]) ** 0.5 - 1)
    error = outs[:n] - xs
    norms, errors = jnp.square(outs[:n]).sum(1), (hs * error[at]).sum(1)
    algebra = jnp.stack([forth, back, abs(inner) / sizes, length])
    return norms, errors, algebra, error[0] * xs.shape[1] ** 0.5

  return one


class _Draws(NamedTuple):
  norms: np.ndarray  # f64[draws, sketched], squared
  errors: np.ndarray  # f64[draws, pairs]
  algebra: np.ndarray  # f64[4], the largest deviations
  mean: np.ndarray  # f64[d], of the random vector's errors times sqrt(d)
  square: np.ndarray  # f64[d]
  largest: float


def _draw(one, key, d, draws, lanes):
  lanes = max(min(lanes, draws, 256), 1)

  @jax.jit
  def step(first):
    i = first + jnp.arange(lanes)
    *each, error = jax.vmap(lambda i: one(jax.random.fold_in(key, i)))(i)
    error = jnp.where(i[:, None] < draws, error, 0)
    return each, jnp.stack([error.sum(0), (error**2).sum(0)]), abs(error).max()

  parts, moments, largest = [], np.zeros((2, d)), 0.0
  for first in tqdm.trange(0, draws, lanes, disable=None, delay=3):
    each, part, most = jax.device_get(step(first))
    parts.append(each)
    moments += part / draws
    largest = max(largest, float(most))
  join = lambda part: np.concatenate(part)[:draws].astype(np.float64)
  norms, errors, algebra = map(join, zip(*parts, strict=True))
  return _Draws(norms, errors, algebra.max(0), moments[0], moments[1], largest)


def _row(quantity, exact, ends, printed=None):
  measured, low, high = map(float, np.broadcast_to(ends, 3))
  holds = None if exact is None else low <= exact + TOLERANCE * (1 + exact)
  return Row(quantity, printed, exact, measured, low, high, holds)


def _bias(stats, promised):
  """In standard errors as Bernstein's inequality counts them."""
  # What is rarely met has a small square in most samples, so that others vouch
  # for it: the mean coordinate, and the promise where spikes may be lost.
  each = np.maximum(stats.square, stats.square.mean())
  pairs = np.square(stats.errors).mean(0)
  pairs = np.where(_SPIKY, np.maximum(pairs, promised), pairs)
  largest = np.abs(stats.errors).max(0)
  largest = np.append(np.full(each.size, stats.largest), largest)
  mean = np.abs(np.append(stats.mean, stats.errors.mean(0)))
  mean = np.maximum(mean - 0.1 * TOLERANCE, 0)  # of rounding
  # A third of the range would do if it and the square were known.
  square = np.append(each, pairs) + largest * mean + 1e-30
  score = (mean * np.sqrt(len(stats.errors) / square)).max()
  # One exceeds the limit with probability 2 exp(-limit^2 / 2).
  limit = math.sqrt(2 * math.log(mean.size / _LEVEL))
  return _row('bias, in standard errors', limit, score)


def _exact(variance, vectors, like, b):
  """By pair, b times the variance; None where it is not known."""
  if variance is None:
    return [None] * len(_PAIRS)
  trees = {name: ravel_pytree(like)[1](x) for name, x in vectors.items()}
  exact = [variance(trees[g], trees[h]) for h, g in _PAIRS]
  return [None if value is None else b * value for value in exact]


def _moments(stats, b, a, alpha, printed, exact):
  for name, x in zip(_SKETCHED, stats.norms.T, strict=True):
    yield _row(f'second moment, {name}', alpha, _mean(x) - 1, printed)
  pairs = [_mean(b * np.square(x)) for x in stats.errors.T]
  for (h, g), value, ends in zip(_PAIRS, exact, pairs, strict=True):
    yield _row(f'coordinate-wise, {h} and {g}', value, ends)
  printed = printed and printed * b / stats.mean.size
  yield _row('coordinate-wise, largest', a, np.max(pairs, 0), printed)


def _mean(x):
  """Return the mean of f64[n] >= 0 and the ends of its interval."""
  mean, bets = x.mean(), 0.9 * 0.5 ** np.arange(14)

  def may_be(mean):
    capital = [np.log1p(bet * (x / mean - 1)).sum() for bet in bets]
    return np.logaddexp.reduce(capital) < math.log(len(bets) / _LEVEL)

  low, above = 0.0, mean
  for _ in range(30 if mean else 0):
    middle = (low + above) / 2
    low, above = (low, middle) if may_be(middle) else (middle, above)
  high = mean + math.sqrt(-2 * math.log(_LEVEL) / x.size) * x.std()
  return np.array([mean, low, high])


def _tails(x):
  """Return quantiles of f64[n] >= 0; how many lie below one is binomial."""
  n, k = x.size, np.arange(1, x.size + 1)
  x = np.array([0.0, *np.sort(x), math.inf])
  for p in QUANTILES:
    ratios = np.log((n - k + 1) / k * p / (1 - p))
    mass = np.exp(np.cumsum([n * math.log1p(-p), *ratios]))
    low = (np.cumsum(mass) <= _LEVEL).sum()
    high = (np.cumsum(mass[::-1]) > _LEVEL).sum()
    yield _row(f'tail, quantile {p}', None, x[[math.ceil(p * n), low, high]])


def _algebra(stats, b, promises, like):
  d, (forth, back, adjoint, rows) = stats.mean.size, stats.algebra
  yield _row('sketch is linear', 0.0, forth)
  yield _row('desketch is linear', 0.0 if promises.linear else None, back)
  if promises.adjoint_scale is not None:
    yield _row('desketch is adjoint', 0.0, adjoint)
  padded = len(jax.tree.leaves(like)) > 1 or d & (d - 1) or d % b
  judged = lambda value: None if padded and value > TOLERANCE else 0.0
  if promises.orthogonal_rows:
    yield _row('rows are orthogonal', judged(rows), rows)
  if promises.exact_at_full_size and b == d:
    yield _row('exact at b = d', judged(stats.largest), stats.largest)
