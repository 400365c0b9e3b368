"""Subsampled randomised Hadamard transform."""

from fl_sketch.sketches import base, hashing, signs
import jax
from jax import lax
import jax.numpy as jnp

# What a core works on at a time: levels below it are done without leaving it.
CACHED = 2**18


def fwht(x: jax.Array) -> jax.Array:
  r"""Walsh-Hadamard transform without normalisation, in O(n log n) additions.

  :math:`y_k = \sum_i (-1)^{\mathrm{popcount}(k \wedge i)} x_i`; applied twice
  it multiplies by n. Butterflies of radix 4, one pass over memory for two
  levels; on a CPU the levels that fit into its cache are done piece by piece.
  Faster than radix 2, 8 or 16 and than Kronecker factors by matrix products,
  and no product is rounded to bfloat16 anywhere.

  >>> fwht(jnp.array([1.0, 0.0, 0.0, 2.0])).tolist()
  [3.0, -1.0, -1.0, 3.0]

  Args:
    x: f32[n], n a power of two.

  Returns:
    f32[n].
  """
  return lax.platform_dependent(
    x, cpu=_fwht_by_pieces, default=lambda x: _levels(x, x.size, 1)
  )


def _fwht_by_pieces(x):
  piece = min(x.size, CACHED)

  def one(i, x):
    part = lax.dynamic_slice(x, (i * piece,), (piece,))
    return lax.dynamic_update_slice(x, _levels(part, piece, 1), (i * piece,))

  return _levels(lax.fori_loop(0, x.size // piece, one, x), x.size, piece)


def _levels(x, stride, stop):
  """The butterflies of strides below `stride`, down to `stop`."""
  n = x.size
  while stride > stop:
    if (stride // stop) % 4:
      stride //= 2
      a, b = _parts(x, 2, stride)
      parts = a + b, a - b
    else:
      stride //= 4
      a, b, c, d = _parts(x, 4, stride)
      a, b, c, d = a + c, b + d, a - c, b - d
      parts = a + b, a - b, c + d, c - d
    x = jnp.stack(parts, axis=1).reshape(n)
  return x


def _parts(x, radix, stride):
  x = x.reshape(-1, radix, stride)
  return [x[:, i] for i in range(radix)]


def srht(size: int) -> base.Sketch:
  r"""Signs, Hadamard transform, and a random `size` of its n coordinates.

  :math:`R = \sqrt{n / b}\, S H D` with b = `size`, n the power of two at or
  above d (the vector is padded with zeros), D random signs, H orthonormal and
  S rows drawn without replacement (Ailon and Chazelle, STOC 2006; Tropp,
  arXiv:1011.1595).

  Guarantees, for independent signs (`hashing.word`, as fast as memory) and
  uniform rows (`hashing.sample`):
    linear, and desketch is the adjoint of sketch.
    unbiased: E desketch(sketch(x)) = x.
    orthogonal rows: R R^T = (n / size) I in every draw where d = n, and R is
      exact at size = d = n.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1)(n - b) /
      (b (n - 1))) ||x||^2, which is (n / b) ||x||^2 at d = n.
    coordinate-wise constant 2 (n - b) / (n - 1).

  >>> op, key, x = srht(4), jax.random.key(0), {'w': jnp.ones(4)}
  >>> op.desketch(key, op.sketch(key, x), x)['w'].tolist()
  [1.0, 1.0, 1.0, 1.0]

  Args:
    size: numbers in a table.

  Returns:
    A `Sketch` whose tables are f32[size]; it raises ValueError if size > d.

  Raises:
    ValueError: size is below 1.
  """
  base.check_positive(size=size)

  def sketch(key, runs, vector):
    n = _padded(vector.size)
    x = fwht(signs.fill(key, runs, n, vector.dtype))
    rows = hashing.sample(key, size, n)
    return x.at[rows].get(mode='promise_in_bounds') / size**0.5

  def desketch(key, table, spans, vector):
    n = _padded(vector.size)
    rows = hashing.sample(key, size, n)
    x = base.zeros((n,), table.dtype, rows, table)
    x = x.at[rows].set(table / size**0.5, unique_indices=True)
    return signs.read(key, fwht(x), spans)

  def of(constant):
    def function(like):
      d = base.dimension(like)
      return constant(d, _padded(d))

    return function

  promises = base.Properties(
    'srht',
    floats=lambda like: size,
    alpha=of(lambda d, n: (d - 1) * (n - size) / (size * max(n - 1, 1))),
    coordinate_wise=of(lambda d, n: 2 * (n - size) / max(n - 1, 1)),
    printed=lambda like: 2 * base.dimension(like) / size,
    exact_at_full_size=True,
    orthogonal_rows=True,
  )
  return base.from_runs(
    promises, f'{size=}', lambda d: (size,), sketch, desketch
  )


def _padded(d):
  if d > 2**30:
    raise ValueError(f'Expected {d=} <= 2**30, to be padded within an int32.')
  return 1 << (d - 1).bit_length()
