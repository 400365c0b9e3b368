"""Fourier and cosine transforms of which a few random rows are kept.

A transform of n = p m numbers is p transforms of m numbers, which fit into a
cache, combined with phases at the wanted rows only (Cooley and Tukey, 1965).
Entry j m + i of the vector is number i p + j of the transform.
"""

import dataclasses

from fl_sketch.sketches import base, hashing, signs
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


@dataclasses.dataclass(frozen=True)
class srft(base.SizedSketch):
  r"""Subsample a Fourier transform of coordinates with random signs.

  Definition D.3 of Song et al.: :math:`R = \sqrt{n / b}\, S F D` with `size` =
  b complex rows, D random signs, F unitary and S rows drawn without
  replacement; desketch is :math:`\Re(R^* y)`, n that of `split`. `dct`
  is its real form. Tables are c64[size].

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    adjoint: under Re(conj(y) . R x).
    orthogonal rows: R R^* = (n / b) I in every draw; exact at b = d = n.
    second moment: E||desketch(sketch(x))||^2 = (1 + alpha) ||x||^2 with alpha =
      n (n - b) / (2 b (n - 1)) at d = n even, (n - b) / (2 b) at d = n odd.
    coordinate-wise constant (n - b) / (n - 1), complex numbers counted once.
  """

  dtype = jnp.complex64

  def alpha(self, d):
    n, b = split(d, self.size)[0], self.size
    return (d - n % 2) * (n - b) / (2 * b * max(n - 1, 1))

  def coordinate_wise(self, d):
    n = split(d, self.size)[0]
    return (n - self.size) / max(n - 1, 1)

  def sketch_runs(self, key, runs, vector):
    n, parts = split(vector.size, self.size)
    x = signs.fill(key, runs, n, vector.dtype)
    rows = hashing.sample(key, self.size, n)
    return pick(x, rows, parts) / self.size**0.5

  def desketch_spans(self, key, table, spans, vector):
    n, parts = split(vector.size, self.size)
    values, rows = table / self.size**0.5, hashing.sample(key, self.size, n)
    return signs.read(key, place(values, rows, n, parts), spans)


@dataclasses.dataclass(frozen=True)
class dct(base.SizedSketch):
  r"""Subsample a discrete cosine transform of coordinates with random signs.

  :math:`R = \sqrt{n / b}\, S C D` with b = `size`, D random signs, C the
  orthonormal DCT-II and S rows drawn without replacement. C takes coordinates
  in the order of `fourier` after 0, n - 1, 1, n - 2, ..., in which it is a real
  Fourier transform (Makhoul, IEEE ASSP 1980). n is that of `split`: d
  for d <= 4096.

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    orthogonal rows: R R^T = (n / b) I in every draw; exact at b = d = n.
    second moment: E||desketch(sketch(x))||^2 <= (1 + d / b - d / n) ||x||^2,
      with equality at d = n.
    coordinate-wise constant 2 (n - b) / (n - 1).
  """

  by_lanes = True

  def alpha(self, d):
    return d / self.size - d / split(d, self.size)[0]

  def coordinate_wise(self, d):
    n = split(d, self.size)[0]
    return 2 * (n - self.size) / max(n - 1, 1)

  def _phases(self, rows, n, dtype):
    """exp(i pi k / 2n) / norm of row k, as cosine and sine."""
    angle = (np.pi / 2 / n) * rows.astype(dtype)
    scale = jnp.where(rows == 0, 1.0, 2.0**0.5).astype(dtype) / self.size**0.5
    return scale * lax.complex(jnp.cos(angle), jnp.sin(angle))

  def sketch_runs(self, key, runs, vector):
    n, parts = split(vector.size, self.size)
    rows = hashing.sample(key, self.size, n)
    x = signs.fill(key, runs, n, vector.dtype)
    phase = self._phases(rows, n, vector.dtype)
    return (phase.conj() * pick(x, rows, parts)).real

  def desketch_spans(self, key, table, spans, vector):
    n, parts = split(vector.size, self.size)
    rows = hashing.sample(key, self.size, n)
    values = self._phases(rows, n, table.dtype) * table
    return signs.read(key, place(values, rows, n, parts), spans)
