"""Count Sketch: a few independent hash rows, read back by median or mean."""

from fl_sketch.sketches import base
from fl_sketch.sketches import hashing
from fl_sketch.sketches import median
import jax
import jax.numpy as jnp

# Coordinates read back at a time: what desketch holds is rows times this.
BLOCK = 2**16


def count_sketch(
  rows: int, cols: int, *, combine: str = 'median'
) -> base.Sketch:
  r"""Count Sketch of Charikar, Chen and Farach-Colton (ICALP 2002).

  .. math:: T_{j,c} = \sum_{i: h_j(i) = c} s_j(i) x_i, \qquad
     \hat x_i = \mathrm{combine}_j\; s_j(i) T_{j, h_j(i)}

  The table is not scaled by 1 / sqrt(rows), so that one table serves every
  way to read it. The median is what FedSKETCH (arXiv:2008.04975) calls PRIVIX.

  Guarantees, for signs and buckets that are independent (see `hashing`):
    linear: the sketch, and with 'mean' the desketch too.
    unbiased: E desketch(sketch(x)) = x. With 'mean' pairwise independent signs
      suffice; with 'median' the rows must be mutually independent.
    second moment: with 'mean', E||desketch(sketch(x))||^2 = (1 + (d - 1) /
      (rows cols)) ||x||^2.
    adjoint: with 'mean', <sketch x, y> = rows <x, desketch y>.

  >>> op, x = count_sketch(5, 8), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> float(op.desketch(jax.random.key(0), table, x)['w'][3])
  9.0

  Args:
    rows: independent hash rows; the median fails with probability
      exp(-O(rows)).
    cols: buckets in a row.
    combine: 'median' (robust to heavy tails) or 'mean' (linear).

  Returns:
    A `Sketch` whose tables are f32[rows, cols]; it raises ValueError if
    rows * cols > d.

  Raises:
    ValueError: rows or cols is below 1, or `combine` is neither.
  """
  base.check_positive(rows=rows, cols=cols)
  if combine not in ('median', 'mean'):
    raise ValueError(f"Expected {combine=} in ('median', 'mean').")
  reduce = {'median': median.median, 'mean': _mean}[combine]

  def sketch(key, x):
    signs, buckets = _streams(key, rows)
    counter = jnp.arange(x.size, dtype=jnp.uint32)
    words = jax.vmap(hashing.word, (None, 0))(counter, signs)

    def one_row(row):
      bucket = hashing.bucket(hashing.word(counter, buckets[row]), cols)
      plane = row % hashing.PLANES
      signed = hashing.flip(x, words[row // hashing.PLANES], plane)
      return jnp.zeros(cols, x.dtype).at[bucket].add(signed)

    return jax.lax.map(one_row, jnp.arange(rows))

  def desketch(key, table, d):
    signs, buckets = _streams(key, rows)
    block = min(d, BLOCK)

    def one_block(start):
      counter = start + jnp.arange(block, dtype=jnp.uint32)
      words = jax.vmap(hashing.word, (None, 0))(counter, signs)

      def one_row(row):
        bucket = hashing.bucket(hashing.word(counter, buckets[row]), cols)
        value = table[row].at[bucket].get(mode='promise_in_bounds')
        plane = row % hashing.PLANES
        return hashing.flip(value, words[row // hashing.PLANES], plane)

      return reduce(list(jax.lax.map(one_row, jnp.arange(rows))))

    starts = jnp.arange(0, d, block, dtype=jnp.uint32)
    return jax.lax.map(one_block, starts).ravel()[:d]

  return base.from_vector(
    f'{rows=} * {cols=}', lambda d: (rows, cols), sketch, desketch
  )


def _streams(key, rows):
  """Seeds of the sign words, 32 rows a word, and of each row's buckets."""
  words = -(-rows // hashing.PLANES)
  return (
    hashing.seeds(key, words, hashing.SIGN),
    hashing.seeds(key, rows, hashing.BUCKET),
  )


def _mean(rows):
  return sum(rows) / len(rows)  # `jnp.mean` over axis 0 is ten times slower
