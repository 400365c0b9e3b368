"""Sparse sketches: a few signed buckets for every coordinate, a column of R."""

from collections.abc import Callable, Sequence
import dataclasses
from typing import Annotated, NamedTuple

from fl_sketch.sketches import base, hashing, primitives
from fl_sketch.utils import fields
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

TILE = 2**18  # nonzeros of R that are hashed at a time


class Columns(NamedTuple):
  """A sparse matrix R[size, d], by hash functions of its columns."""

  nonzeros: int  # of each column, in distinct rows
  rows: Callable[[jax.Array], jax.Array]  # uint32[n] -> int32[nonzeros, n]
  signs: jax.Array  # uint32[ceil(nonzeros / 32), 2], seeds of the sign words

  def tile(self, start: jax.Array, n: int):
    """Rows int32[nonzeros, n] of n coordinates, and flip(x: f32[n], j)."""
    counter = jnp.uint32(start) + jnp.arange(n, dtype=jnp.uint32)
    words = jax.vmap(hashing.word, (None, 0))(counter, self.signs)
    word = lambda j: words[j // hashing.PLANES]
    flip = lambda x, j: hashing.flip(x, word(j), j % hashing.PLANES)
    return self.rows(counter), flip


def hashed(
  key: Key, nonzeros: int, rows: Callable[[jax.Array], jax.Array]
) -> Columns:
  """`Columns` of hashed signs, their rows from pairwise independent words."""
  families = hashing.families(key, nonzeros, 2, hashing.BUCKET)
  signs = hashing.seeds(key, -(-nonzeros // hashing.PLANES), hashing.SIGN)
  words = jax.vmap(hashing.kwise, (None, 0))
  return Columns(nonzeros, lambda c: rows(words(c, families)), signs)


def sketch(
  columns: Columns, runs: Sequence[base.Segment], size: int, dtype: np.dtype
) -> jax.Array:
  """Return R x, f32[size]."""
  table = primitives.zeros((size,), dtype, columns.signs, *(x for _, x in runs))
  for start, x in runs:

    def add(at, n, table, x=x, start=start):
      rows, flip = columns.tile(start + at, n)
      part = lax.dynamic_slice(x, (at,), (n,)).astype(dtype)
      # One scatter of all nonzeros at once takes four times as long.
      one = lambda j, table: _add(table, rows[j], flip(part, j))
      return lax.fori_loop(0, columns.nonzeros, one, table)

    table = primitives.fold(x.size, _tile(columns, x.size), add, table)
  return table


def desketch(
  columns: Columns, table: jax.Array, spans: Sequence[base.Span],
  combine: Callable[[list[jax.Array]], jax.typing.ArrayLike],
) -> list[jax.Array]:  # fmt: skip
  """Combine, for each coordinate, the signed entries of its buckets."""

  def one_span(start, size, dtype):
    def read(at, n, out):
      rows, flip = columns.tile(start + at, n)
      one = lambda j: flip(table.at[rows[j]].get(mode='promise_in_bounds'), j)
      values = lax.map(one, jnp.arange(columns.nonzeros))
      part = jnp.asarray(combine(list(values)), dtype)
      return lax.dynamic_update_slice(out, part, (at,))

    out = primitives.zeros((size,), dtype, columns.signs, table)
    return primitives.fold(size, _tile(columns, size), read, out)

  return [one_span(*span) for span in spans]


@primitives.lane_by_lane  # `vmap` of a scatter takes eight times as long a lane
def _add(table, rows, values):
  return table.at[rows].add(values, mode='promise_in_bounds')


def _tile(columns, n):
  # At least four passes: XLA would fuse the hashes of one into every lane's
  # scatter, and compute them again.
  return max(min(TILE // columns.nonzeros, n // 4), 1)


@dataclasses.dataclass(frozen=True)
class count_sketch(base.VectorSketch):
  r"""Count Sketch of Charikar, Chen and Farach-Colton (ICALP 2002).

  .. math:: T_{j,c} = \sum_{i: h_j(i) = c} s_j(i) x_i, \qquad
     \hat x_i = \mathrm{combine}_j\; s_j(i) T_{j, h_j(i)}

  The median is what FedSKETCH (arXiv:2008.04975) calls PRIVIX. Buckets are
  pairwise independent (`hashing.kwise`), signs of `hashing.word`.

  Guarantees, for independent signs; all but the first with 'mean':
    unbiased.
    linear, and adjoint: <sketch x, y> = rows <x, desketch y>.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1) / (rows cols))
      ||x||^2.
    coordinate-wise constant 2.

  >>> import jax
  >>> op, x = count_sketch(5, 8), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> float(op.desketch(jax.random.key(0), table, x)['w'][3])
  9.0

  `combine` is 'median' (robust to heavy tails) or 'mean' (linear, and the
  `linear_reader` of the other). Tables are f32[rows, cols], and larger than d
  with `allow_larger` alone, which FedSKETCHGATE needs for small models.
  """

  rows: fields.Count
  cols: fields.Count
  _: dataclasses.KW_ONLY
  combine: Annotated[str, fields.choice(('median', 'mean'))] = 'median'
  allow_larger: bool = False
  axes = 'rows', 'cols'

  @property
  def properties(self):
    mean, size = self.combine == 'mean', self.rows * self.cols
    known = mean or self.rows <= 2  # of two rows the median is the mean
    alpha = lambda like: (base.dimension(like) - 1) / size
    return base.Properties(
      'count_sketch', floats=lambda like: size,
      alpha=alpha if known else None,
      coordinate_wise=(lambda like: 2.0) if known else None,
      linear=mean, adjoint_scale=float(self.rows) if mean else None,
    )  # fmt: skip

  @property
  def linear_reader(self):
    if self.combine == 'mean':
      return None
    return dataclasses.replace(self, combine='mean')

  def sketch_runs(self, key, runs, vector):
    size = self.rows * self.cols
    table = sketch(self._columns(key), runs, size, vector.dtype)
    return table.reshape(self.rows, self.cols)

  def desketch_spans(self, key, table, spans, vector):
    # `jnp.mean` over axis 0 is ten times slower.
    mean = lambda xs: sum(xs) / len(xs)
    reduce = mean if self.combine == 'mean' else primitives.median
    return desketch(self._columns(key), table.ravel(), spans, reduce)

  def _columns(self, key):
    row = jnp.arange(self.rows, dtype=jnp.int32)[:, None]
    flat = lambda words: row * self.cols + hashing.bucket(words, self.cols)
    return hashed(key, self.rows, flat)


@dataclasses.dataclass(frozen=True)
class sparse_embedding(base.SizedSketch):
  r"""OSNAP of Nelson and Nguyen (FOCS 2013), of kind 'I' or 'II'.

  Every column of R has s = `sparsity` entries :math:`\pm 1 / \sqrt s`: in
  distinct uniform rows (kind 'I'), or one in each of s bands of b / s rows
  (kind 'II'). Definitions D.6 and D.7 of Song et al.

  Guarantees, for buckets and signs as of `count_sketch`:
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1) / b) ||x||^2, for
      every s; a larger s brings lighter tails.
    coordinate-wise constant 2.

  Buckets of kind 'I' cost s^2 comparisons a coordinate. Raises ValueError if
  sparsity exceeds size, or does not divide it (kind 'II').
  """

  sparsity: fields.Count
  _: dataclasses.KW_ONLY
  kind: Annotated[str, fields.choice(('I', 'II'))] = 'II'

  def __post_init__(self):
    super().__post_init__()
    size, sparsity = self.size, self.sparsity
    if sparsity > size or (self.kind == 'II' and size % sparsity):
      raise ValueError(
        f'{sparsity=} must divide {size=}, or with kind I be less.'
      )

  def alpha(self, d):
    return (d - 1) / self.size

  def sketch_runs(self, key, runs, vector):
    table = sketch(self._columns(key), runs, self.size, vector.dtype)
    return self.sparsity**-0.5 * table

  def desketch_spans(self, key, table, spans, vector):
    matrix = self._columns(key)
    return desketch(matrix, self.sparsity**-0.5 * table, spans, sum)

  def _columns(self, key):
    rows = _distinct if self.kind == 'I' else _banded
    return hashed(key, self.sparsity, lambda w: rows(w, self.size))


def _banded(words, size):
  band = size // len(words)
  start = band * jnp.arange(len(words), dtype=jnp.int32)[:, None]
  return start + hashing.bucket(words, band)


def _distinct(words, size):
  """Floyd's sampling without replacement (CACM 1987)."""
  s = len(words)
  step = jnp.arange(s, dtype=jnp.int32)[:, None]

  def draw(j, rows):
    limit = size - s + j
    row = (words[j] % (limit + 1).astype(jnp.uint32)).astype(jnp.int32)
    repeated = ((rows == row[None]) & (step < j)).any(0)
    return rows.at[j].set(jnp.where(repeated, limit, row))

  rows = primitives.zeros(words.shape, jnp.int32, words)
  return lax.fori_loop(0, s, draw, rows)
