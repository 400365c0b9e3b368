"""What the two sampled Fourier transforms share: half a spectrum.

The transform of a real vector at n - k is the conjugate of that at k, so that
n / 2 + 1 complex numbers hold all rows, to read and to write.
"""

import jax
import jax.numpy as jnp

# Any transform is fast below; above, lengths with large primes are padded.
_SHORT = 2**12


def padded(d: int) -> int:
  """The length n >= d that is transformed: d itself where that is fast.

  >>> padded(1000), padded(4099)
  (1000, 4116)

  Args:
    d: coordinates.

  Returns:
    d if it is at most 4096, else the least product of 2, 3, 5 and 7 from d on,
    within 2 % of d.
  """
  n = d
  while n > _SHORT and not _smooth(n):
    n += 1
  return n


def _smooth(n):
  for prime in (2, 3, 5, 7):
    while n % prime == 0:
      n //= prime
  return n == 1


def pick(x: jax.Array, rows: jax.Array) -> jax.Array:
  r"""Some rows of a transform, :math:`\sum_i x_i e^{-2 \pi \iota k i / n}`.

  >>> pick(jnp.arange(4.0), jnp.array([0, 3]))
  Array([ 6.+0.j, -2.-2.j], dtype=complex64)

  Args:
    x: f32[n].
    rows: int32[b] in [0, n).

  Returns:
    c64[b].
  """
  half = jnp.fft.rfft(x)
  mirrored = rows > x.size // 2
  at = jnp.where(mirrored, x.size - rows, rows)
  value = half.at[at].get(mode='promise_in_bounds')
  return jnp.where(mirrored, value.conj(), value)


def place(values: jax.Array, rows: jax.Array, n: int) -> jax.Array:
  r"""The adjoint of `pick`: :math:`\Re \sum_k v_k e^{2 \pi \iota k i / n}`.

  >>> place(jnp.array([1.0 + 0j]), jnp.array([2]), 4)
  Array([ 1., -1.,  1., -1.], dtype=float32)

  Args:
    values: c64[b].
    rows: int32[b], distinct, in [0, n).
    n: length of the result.

  Returns:
    f32[n].
  """
  # The real part is the transform of the Hermitian part of the spectrum.
  alone = (rows == 0) | (2 * rows == n)
  mirrored = rows > n // 2
  at = jnp.where(mirrored, n - rows, rows)
  value = jnp.where(mirrored, values.conj(), values) / 2
  value = jnp.where(alone, values.real.astype(value.dtype), value)
  half = jnp.zeros(n // 2 + 1, values.dtype).at[at].add(value)
  return jnp.fft.irfft(half, n, norm='forward')
