"""Compute a few rows of a long Fourier transform, for `srft` and `dct`.

A transform of n = p m numbers is p transforms of m numbers, which fit into a
cache, combined with phases at the wanted rows only (Cooley and Tukey, 1965).
Entry j m + i of the vector is number i p + j of the transform.
"""

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

_SHORT = 2**12  # longer transforms are padded, if their length has large primes


def split(d: int, size: int) -> tuple[int, int]:
  """Return (n, parts) to transform d coordinates for `size` rows.

  n is d up to 4096; else at most 1.03 d, and parts, a power of two, times a
  product of 2, 3, 5 and 7.

  >>> split(1000, 10), split(4099, 10), split(2**20, 2**10)
  ((1000, 1), (4116, 1), (1048576, 128))
  """
  parts = 1
  while 2 * parts <= min(d // (8 * size), d // _SHORT):
    parts *= 2
  length = -(-d // parts)
  while d > _SHORT and not _smooth(length):
    length += 1
  if parts * length >= 2**31:
    raise ValueError(f'{d=}, padded for {size=}, exceeds an int32 index.')
  return parts * length, parts


def _smooth(n):
  for prime in (2, 3, 5, 7):
    while n % prime == 0:
      n //= prime
  return n == 1


def pick(x: jax.Array, rows: jax.Array, parts: int) -> jax.Array:
  r"""Return rows of :math:`\sum_i x_i e^{-2 \pi \iota k i / n}`."""
  n = x.size
  half = jnp.fft.rfft(x.reshape(parts, n // parts))
  at, mirrored, _ = _fold(rows, n // parts)

  def one(total, part):
    value = half[part].at[at].get(mode='promise_in_bounds')
    value = jnp.where(mirrored, value.conj(), value)
    return total + value * _phase(rows, part, parts, n, x.dtype).conj(), None

  first, _ = one(0, 0)
  return lax.scan(one, first, jnp.arange(1, parts))[0]


def place(values: jax.Array, rows: jax.Array, n: int, parts: int) -> jax.Array:
  r"""Adjoint of `pick`, :math:`\Re \sum_k v_k e^{2 \pi \iota k i / n}`.

  >>> place(jnp.array([1.0 + 0j]), jnp.array([2]), 4, 1)
  Array([ 1., -1.,  1., -1.], dtype=float32)
  """
  m = n // parts
  at, mirrored, alone = _fold(rows, m)
  dtype = values.real.dtype

  def one(part):
    # `irfft` transforms the Hermitian part of the spectrum.
    value = values * _phase(rows, part, parts, n, dtype)
    value = jnp.where(mirrored, value.conj(), value) / 2
    value = jnp.where(alone, (2 * value.real).astype(value.dtype), value)
    half = jnp.zeros(m // 2 + 1, value.dtype)
    return half.at[at].add(value, mode='promise_in_bounds')

  spectra = lax.map(one, jnp.arange(parts))
  return jnp.fft.irfft(spectra, m, norm='forward').reshape(n)


def _fold(rows, m):
  """Return each row's index in half a spectrum, if conjugate, and if real."""
  row = rows % m
  mirrored = row > m // 2
  at = jnp.where(mirrored, m - row, row)
  return at, mirrored, (row == 0) | (2 * row == m)


def _phase(rows, part, parts, n, dtype):
  """Return exp(2 pi i k part / n), from integers, exact below 2**31."""
  m = n // parts
  row, turn = rows % m, rows // m
  angle = (row * part).astype(dtype) / n
  angle += (turn * part % parts).astype(dtype) / parts
  angle = angle * (2 * np.pi)
  return lax.complex(jnp.cos(angle), jnp.sin(angle))
