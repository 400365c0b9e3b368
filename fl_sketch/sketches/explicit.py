"""Operators of given numbers: a matrix, or the hash functions of Count Sketch.

They ignore the key. The arrays may be traced, so that a `lax.scan` over rounds
may build its operators of one array a round inside its body.
"""

from fl_sketch.sketches import base, median, primitives
import jax
from jax import core
import jax.numpy as jnp
import numpy as np


def from_matrix(matrix: jax.Array) -> base.Sketch:
  r"""The operator of one matrix R: :math:`x \mapsto R x`, read by :math:`R^T`.

  For reference trajectories of other code, and for tests. The matrix is
  f32[size, d], for trees of d numbers and tables f32[size]; linear, desketch
  its adjoint. Another number of axes, another d, or size > d raises ValueError.

  >>> op = from_matrix(jnp.array([[1.0, -1.0, 0.0], [0.0, 0.0, 2.0]]))
  >>> op.sketch(jax.random.key(0), jnp.array([3.0, 1.0, 5.0])).tolist()
  [2.0, 10.0]
  """
  if matrix.ndim != 2:
    raise ValueError(f'{matrix.shape=} must be (size, d).')
  size, columns = matrix.shape

  def sketch(key, runs, vector):
    _check(vector, columns, 'matrix')
    x = base.join(runs, vector.size, vector.dtype)
    return primitives.product(jnp.asarray(matrix, vector.dtype), x)

  def desketch(key, table, spans, vector):
    _check(vector, columns, 'matrix')
    x = primitives.product(table, jnp.asarray(matrix, vector.dtype))
    return base.cut(x, spans)

  promises = base.Properties('from_matrix', lambda like: size, None, None)
  return base.from_runs(promises, size, sketch, desketch)


def from_hashes(
  buckets: jax.Array, signs: jax.Array, cols: int, *, combine: str = 'median'
) -> base.Sketch:
  """Return the Count Sketch of these hash functions, as of another library.

  As `count_sketch`, with h_j(i) = buckets[j, i] and s_j(i) = signs[j, i].

  >>> buckets, signs = jnp.array([[0, 1, 0]]), jnp.array([[1, -1, -1]])
  >>> op, key = from_hashes(buckets, signs, cols=2), jax.random.key(0)
  >>> op.sketch(key, jnp.array([3.0, 1.0, 5.0])).tolist()
  [[-2.0, -1.0]]

  Args:
    buckets: int32[rows, d] in [0, cols).
    signs: [rows, d] of 1 and -1.
    cols: buckets in a row.
    combine: 'median' or 'mean', as of `count_sketch`.

  Raises:
    ValueError: buckets and signs are not of one shape (rows, d), hold other
      numbers, unless they are traced, cols is below 1, or `combine` is neither;
      of the operator's functions, the tree has another d, or rows * cols > d.
  """
  base.check_positive(cols=cols)
  if combine not in ('median', 'mean'):
    raise ValueError(f"{combine=} must be 'median' or 'mean'.")
  if buckets.ndim != 2 or buckets.shape != signs.shape:
    raise ValueError(
      f'{buckets.shape=} and {signs.shape=} must both be (rows, d).'
    )
  if not any(isinstance(x, core.Tracer) for x in (buckets, signs)):
    # Where a bucket is not there, JAX drops what is written and reads another.
    held = np.asarray(buckets)
    if not ((held >= 0) & (held < cols)).all():
      raise ValueError(f'buckets must be in [0, {cols=}).')
    if not (np.abs(np.asarray(signs)) == 1).all():
      raise ValueError('signs must be 1 or -1.')
  (rows, columns), linear = buckets.shape, combine == 'mean'
  row = jnp.arange(rows)[:, None]

  def sketch(key, runs, vector):
    _check(vector, columns, 'hashes')
    x = base.join(runs, vector.size, vector.dtype)
    table = jnp.zeros((rows, cols), x.dtype)
    return table.at[row, buckets].add(jnp.asarray(signs, x.dtype) * x[None])

  def desketch(key, table, spans, vector):
    _check(vector, columns, 'hashes')
    values = jnp.asarray(signs, table.dtype) * table[row, buckets]
    reduce = jnp.mean if linear else lambda x, axis: median.median(list(x))
    return base.cut(reduce(values, axis=0), spans)

  promises = base.Properties(
    'from_hashes', lambda like: rows * cols, None, None,
    linear=linear, adjoint_scale=float(rows) if linear else None,
  )  # fmt: skip
  op = base.from_runs(promises, {'rows': rows, 'cols': cols}, sketch, desketch)
  if linear:
    return op
  reader = from_hashes(buckets, signs, cols, combine='mean')
  return op._replace(linear_reader=reader)


def _check(vector, columns, what):
  if vector.size != columns:
    raise ValueError(
      f'd={vector.size} must be {columns}, the columns of the {what}.'
    )
