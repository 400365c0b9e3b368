"""Measure over fresh keys whether an operator keeps what it states."""

import math
from typing import Any, NamedTuple

from fl_sketch.sketches import base
from fl_sketch.utils.types import Key, Tree
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np

_ALARM = 1e-8 / 34  # probability that one true statement fails
_TOLERANCE = 1e-4  # relative, of float32
_VECTORS = 'random', 'first spike', 'last spike', 'flat'


class Row(NamedTuple):
  """One quantity: stated, measured, and in a confidence interval."""

  quantity: str
  exact: float | None  # the most it may be; None if nothing is stated
  measured: float
  low: float
  high: float
  holds: bool | None


class Verification(NamedTuple):
  """The rows of `verify`, and whether none of them fails."""

  rows: tuple[Row, ...]
  ok: bool

  def __str__(self):
    line = '{}: at most {}, measured {:.4g} in [{:.4g}, {:.4g}], holds: {}'
    return '\n'.join(line.format(*row) for row in self.rows)


def verify(
  op: base.Sketch, d: base.Like, key: Key, *, draws: int = 10_000
) -> Verification:
  r"""Measure what `op.properties` states, over `draws` keys.

  Rows: the bias of a random vector's coordinates, in standard errors;
  :math:`E\|R^T R x\|^2 - 1` for unit vectors x, at most alpha; the largest
  relative deviations from linearity and from the adjoint. `d` is the number of
  coordinates, or a tree of them, which is measured as float32.

  A true alpha fails with probability below 3e-10, whatever the tails are.

  >>> from fl_sketch import sketches
  >>> result = verify(sketches.ams(8), 33, jax.random.key(0))
  >>> result.ok, result.rows[2].quantity, result.rows[2].exact
  (True, 'second moment, first spike', 4.0)

  Raises ValueError if draws < 100, d < 2, or `op` has odd shapes or properties.
  """
  stated: Any = op.properties
  size = base.dimension(d)
  if draws < 100 or size < 2:
    raise ValueError(f'{draws=} must be >= 100, and d={size} >= 2.')
  if not isinstance(stated, base.Properties):
    raise ValueError(f'{op}: properties must be Properties, got {stated!r}.')
  zeros = lambda leaf: jnp.zeros(base.leaf_type(leaf).shape, jnp.float32)
  tree = np.zeros(size) if isinstance(d, int | np.integer) else d
  like = jax.tree.map(zeros, tree)
  vector_key, draw_key = jax.random.split(key)
  random = jax.random.normal(vector_key, (size,))
  spikes = np.eye(1, size)[0], np.eye(1, size, size - 1)[0]
  xs = np.array([random, *spikes, np.ones(size)], np.float64)
  xs = np.array([x / np.linalg.norm(x) for x in xs], np.float32)
  check_shapes(op, like)
  if any(table.any() for table in jax.tree.leaves(op.zero_table(like))):
    raise ValueError(f'{op}: zero_table is not zero.')
  b = sum(table.size for table in jax.tree.leaves(op.zero_table(like)))
  lanes = max(min(256, draws, 2**22 // (b * size)), 1)
  one = _one_draw(op, like, xs)
  every = jax.jit(lambda i: jax.lax.map(one, i, batch_size=lanes))
  keys = jax.vmap(jax.random.fold_in, (None, 0))(draw_key, jnp.arange(draws))
  norms, algebra, errors = (np.asarray(x, np.float64) for x in every(keys))
  alpha = None if stated.alpha is None else stated.alpha(like)
  rows = [_row('bias, in standard errors', *_bias(errors))]
  for name, squares in zip(_VECTORS, norms.T, strict=True):
    rows.append(_row(f'second moment, {name}', alpha, *_interval(squares)))
  forth, back, adjoint = algebra.max(0)
  linear = 0.0 if stated.linear else None
  rows.append(_row('sketch is linear', 0.0, forth))
  rows.append(_row('desketch is linear', linear, back))
  if stated.adjoint_scale is not None:
    rows.append(_row('desketch is adjoint', 0.0, adjoint))
  return Verification(tuple(rows), all(row.holds is not False for row in rows))


def check_shapes(op: Any, like: Tree):
  """Check that what a sketch or codec reads back has the shapes of a tree."""
  is_sketch = isinstance(op, base.Sketch)
  encode, decode = ('sketch', 'desketch') if is_sketch else ('encode', 'decode')
  key = jax.eval_shape(lambda: jax.random.key(0))
  sent = jax.eval_shape(getattr(op, encode), key, like)
  read = jax.eval_shape(getattr(op, decode), key, sent, like)
  zeros = jax.eval_shape(getattr(op, 'zero_table', lambda _: sent), like)
  for name, made, want in (decode, read, like), ('zero_table', zeros, sent):
    made, want = (jax.tree.map(jnp.shape, x) for x in (made, want))
    if made != want:
      raise ValueError(f'{op}: {name} has shapes {made}, not {want}.')


def _one_draw(op, like, xs):
  """Return key -> squared norms f32[4], deviations f32[3], errors of xs[0]."""
  scale, norm = op.properties.adjoint_scale or 0.0, jnp.linalg.norm
  tree, table = ravel_pytree(like)[1], ravel_pytree(op.zero_table(like))[1]
  sketch = lambda key, x: ravel_pytree(op.sketch(key, tree(x)))[0]
  desketch = lambda key, y: ravel_pytree(op.desketch(key, table(y), like))[0]
  mixed = lambda rows: (2 * rows[0] - 3 * rows[3])[None]
  bound = lambda rows: 2 * norm(rows[0]) + 3 * norm(rows[3])
  at = np.linspace(0, xs.shape[1] - 1, min(xs.shape[1], 1000)).astype(int)

  def one(key):
    ys = jax.vmap(sketch, (None, 0))(key, jnp.concatenate([xs, mixed(xs)]))
    tables = jnp.concatenate([ys[:4], mixed(ys)])
    outs = jax.vmap(desketch, (None, 0))(key, tables)
    forth = norm(ys[4] - mixed(ys)[0]) / bound(ys)
    back = norm(outs[4] - mixed(outs)[0]) / bound(outs)
    inner = (ys[0].conj() * ys[4]).real.sum()
    inner -= scale * (outs[:1] * mixed(xs)).sum()
    sizes = norm(ys[0]) * bound(ys) + scale * norm(outs[0]) * bound(xs)
    deviations = jnp.stack([forth, back, abs(inner) / sizes])
    return jnp.square(outs[:4]).sum(1), deviations, (outs[0] - xs[0])[at]

  return one


def _row(quantity, exact, measured, *interval):
  low, high = interval or (measured, measured)
  measured, low, high = float(measured), float(low), float(high)
  holds = None if exact is None else low <= exact + _TOLERANCE * (1 + exact)
  return Row(quantity, exact, measured, low, high, holds)


def _bias(errors):
  """Return the limit and the largest mean of f64[draws, n], in its errors."""
  draws, n = errors.shape
  mean = np.maximum(np.abs(errors.mean(0)) - 1e-5 / n**0.5, 0)  # of rounding
  square = np.square(errors).mean(0)
  # Rare errors are absent from most samples, so that others vouch for them.
  square = np.maximum(square, square.mean()) + np.abs(errors).max() * mean
  score = (mean * np.sqrt(draws / (square + 1e-30))).max()
  return math.sqrt(2 * math.log(n / _ALARM)), score


def _interval(squares):
  """Return the mean less 1 of f64[draws] >= 0, and the ends of its interval."""
  # Bets against a true mean multiply capital by 1 / p with probability p at
  # most (Waudby-Smith and Ramdas, JRSS B 2024). The upper end is asymptotic.
  mean, bets = squares.mean(), 0.9 * 0.5 ** np.arange(14)

  def may_be(mean):
    capital = [np.log1p(bet * (squares / mean - 1)).sum() for bet in bets]
    return np.logaddexp.reduce(capital) < math.log(len(bets) / _ALARM)

  low, above = 0.0, mean
  for _ in range(30 if mean else 0):
    middle = (low + above) / 2
    low, above = (low, middle) if may_be(middle) else (middle, above)
  high = mean + math.sqrt(-2 * math.log(_ALARM) / squares.size) * squares.std()
  return mean - 1, low - 1, high - 1
