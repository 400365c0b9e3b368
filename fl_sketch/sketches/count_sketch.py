"""Count Sketch: a few independent hash rows, read back by median or mean."""

from fl_sketch.sketches import base, columns, hashing, median
import jax.numpy as jnp


def count_sketch(
  rows: int, cols: int, *, combine: str = 'median', allow_larger: bool = False
) -> base.Sketch:
  r"""Count Sketch of Charikar, Chen and Farach-Colton (ICALP 2002).

  .. math:: T_{j,c} = \sum_{i: h_j(i) = c} s_j(i) x_i, \qquad
     \hat x_i = \mathrm{combine}_j\; s_j(i) T_{j, h_j(i)}

  The median is what FedSKETCH (arXiv:2008.04975) calls PRIVIX. Buckets are
  pairwise independent (`hashing.kwise`); signs are of `hashing.word`, since a
  median is unbiased only if they are all independent.

  Guarantees, for independent signs:
    linear: the sketch, and with 'mean' the desketch too.
    unbiased: E desketch(sketch(x)) = x.
    second moment: with 'mean', E||desketch(sketch(x))||^2 = (1 + (d - 1) /
      (rows cols)) ||x||^2, and the coordinate-wise constant is 2.
    adjoint: with 'mean', <sketch x, y> = rows <x, desketch y>.

  >>> import jax
  >>> op, x = count_sketch(5, 8), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> float(op.desketch(jax.random.key(0), table, x)['w'][3])
  9.0

  `combine` is 'median' (robust to heavy tails) or 'mean' (linear, and the
  `linear_reader` of the other). Tables are f32[rows, cols]. Raises ValueError
  if rows or cols are below 1, for another `combine`, and if rows * cols exceeds
  d without `allow_larger`, which FedSKETCHGATE needs for small models.
  """
  base.check_positive(rows=rows, cols=cols)
  if combine not in ('median', 'mean'):
    raise ValueError(f"{combine=} must be 'median' or 'mean'.")
  mean, size = combine == 'mean', rows * cols

  def sketch(key, runs, vector):
    table = columns.sketch(_columns(key, rows, cols), runs, size, vector.dtype)
    return table.reshape(rows, cols)

  def desketch(key, table, spans, vector):
    # `jnp.mean` over axis 0 is ten times slower.
    reduce = (lambda xs: sum(xs) / len(xs)) if mean else median.median
    matrix = _columns(key, rows, cols)
    return columns.desketch(matrix, table.ravel(), spans, reduce)

  known = mean or rows <= 2  # of two rows the median is the mean
  alpha = lambda like: (base.dimension(like) - 1) / size
  stated = base.Properties(
    'count_sketch', floats=lambda like: size,
    alpha=alpha if known else None,
    coordinate_wise=(lambda like: 2.0) if known else None,
    linear=mean, adjoint_scale=float(rows) if mean else None,
  )  # fmt: skip
  shape = {'rows': rows, 'cols': cols}
  op = base.from_runs(
    stated, shape, sketch, desketch, allow_larger=allow_larger
  )
  if mean:
    return op
  reader = count_sketch(rows, cols, combine='mean', allow_larger=allow_larger)
  return op._replace(linear_reader=reader)


def _columns(key, rows, cols):
  row = jnp.arange(rows, dtype=jnp.int32)[:, None]
  flat = lambda words: row * cols + hashing.bucket(words, cols)
  return columns.hashed(key, rows, flat)
