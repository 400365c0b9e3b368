"""Walsh-Hadamard transforms, in pieces that fit a CPU's cache."""

import jax
from jax import lax
import jax.numpy as jnp

CACHED = 2**18  # numbers that fit into a core's cache


def fwht(x: jax.Array) -> jax.Array:
  r"""Return the unscaled Walsh-Hadamard transform of f32[n], in O(n log n).

  :math:`y_k = \sum_i (-1)^{\mathrm{popcount}(k \wedge i)} x_i`. Raises
  ValueError if x is no vector, or n no power of two.

  >>> fwht(jnp.array([1.0, 0.0, 0.0, 2.0])).tolist()
  [3.0, -1.0, -1.0, 3.0]
  """
  if x.ndim != 1 or x.size.bit_count() != 1:
    raise ValueError(f'{x.shape=} must be (n,) with n a power of two.')
  return lax.platform_dependent(
    x, cpu=_fwht_by_pieces, default=lambda x: levels(x, x.size, 1)
  )


def signs(rows: jax.Array, m: int) -> jax.Array:
  """Return rows of the matrix of the transform: int32[r], m -> int32[r, m].

  >>> signs(jnp.array([0, 3]), 4).tolist()
  [[1, 1, 1, 1], [1, -1, -1, 1]]
  """
  bits = rows[:, None] & jnp.arange(m, dtype=rows.dtype)[None]
  return 1 - 2 * (lax.population_count(bits) & 1)


def _fwht_by_pieces(x):
  piece = min(x.size, CACHED)

  def one(i, x):
    part = lax.dynamic_slice(x, (i * piece,), (piece,))
    return lax.dynamic_update_slice(x, levels(part, piece, 1), (i * piece,))

  return levels(lax.fori_loop(0, x.size // piece, one, x), x.size, piece)


def levels(x: jax.Array, stride: int, stop: int) -> jax.Array:
  """Apply the butterflies of strides below `stride`, down to `stop`."""
  n = x.size
  while stride > stop:
    radix = 2 if (stride // stop) % 4 else 4
    stride //= radix
    x = x.reshape(-1, radix, stride)
    parts = [x[:, i] for i in range(radix)]
    if radix == 4:
      a, b, c, d = parts
      parts = [a + c, b + d, a - c, b - d]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    x = jnp.stack([y for a, b in pairs for y in (a + b, a - b)], axis=1)
    x = x.reshape(n)
  return x
