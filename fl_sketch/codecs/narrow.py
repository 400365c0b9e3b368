"""Stochastic rounding of all numbers to 16, 8 or 4 bits."""

import dataclasses
from typing import ClassVar

from fl_sketch.codecs import base, packing
from fl_sketch.utils import fields
import jax
from jax import lax
import jax.numpy as jnp

_OMEGA = 2.0**-14 / (4 * (1 + 2.0**-7))
_MOST = float(jnp.finfo(jnp.bfloat16).max)


@dataclasses.dataclass(frozen=True)
class bfloat16(base.VectorCodec):
  r"""Stochastic rounding of float32 to bfloat16: unbiased.

  Between neighbours :math:`2^e` and :math:`(1 + u) 2^e`, u = 1 / 128, the upper
  one is drawn at the fraction p of the way. The variance is :math:`p (1 - p)
  u^2 4^e`, and omega = u^2 / (4 (1 + u)), reached at p = 1 / (2 + u).

  Numbers beyond the largest bfloat16, 3.39e38, are clipped to it, and those
  below 1.2e-38 may become 0. The payload is bfloat16[d]; delta = 1 - omega.

  >>> codec, x = bfloat16(), jnp.full(3, 1.5)
  >>> codec.encode(jax.random.key(0), x)
  Array([1.5, 1.5, 1.5], dtype=bfloat16)
  """

  omega = base.law(lambda self, d: _OMEGA)
  contraction = base.law(lambda self, d: 1 - _OMEGA)

  def encode_vector(self, key, x):
    bits = lax.bitcast_convert_type(jnp.clip(x, -_MOST, _MOST), jnp.uint32)
    bits += jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    upper = (bits >> 16).astype(jnp.uint16)
    rounded = lax.bitcast_convert_type(upper, jnp.bfloat16)
    return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))

  def decode_vector(self, key, payload, d):
    return payload.astype(jnp.float32)


class _Scaled(base.VectorCodec):
  """Integers of at most `bound`, and a scale for each block."""

  bound: ClassVar[int]
  block: int

  @base.law
  def omega(self, d):
    count = min(self.block, d)
    return ((1 + (count - 1) / self.bound**2) ** 0.5 - 1) / 2

  @property
  def contraction(self):
    omega = self.omega
    return (lambda like: 1 - omega(like)) if omega(self.block) < 1 else None

  def encode_vector(self, key, x):
    bound, width = self.bound, max(1, min(self.block, x.size))
    rows = jnp.abs(jnp.pad(x, (0, -x.size % width))).reshape(-1, width)
    scale = rows.max(1)
    steps = base.fraction(rows, scale[:, None]) * bound
    largest = (rows == scale[:, None]) & (rows > 0)  # 1, but for its rounding
    steps = jnp.where(largest, bound, steps).ravel()[: x.size]
    below = jnp.floor(steps)
    draws = jax.random.uniform(key, x.shape, x.dtype)
    # Not floor(steps + draws): that sum is rounded, up more often than down.
    level = below + (draws < steps - below)
    return packing.pack(jnp.where(x < 0, -level, level), bound), scale

  def decode_vector(self, key, payload, d):
    packed, scale = payload
    x = packing.unpack(packed, self.bound, d) / self.bound
    return jnp.repeat(scale, min(self.block, d))[:d] * x


@dataclasses.dataclass(frozen=True)
class int8(_Scaled):
  """Stochastic rounding to int8 with one scale per `block`: unbiased.

  Levels are multiples of a block's largest magnitude over m = 127; that number
  is exact. omega = (r - 1) / 2 with r^2 = 1 + (block - 1) / m^2, reached by a
  block whose other numbers are 1 / (r + 1) of a step; delta = 1 - omega where
  that is positive. The payload is (int8[d]; scales f32[ceil(d / block)]); a
  block below 1 raises ValueError.

  >>> q, scales = int8(2).encode(jax.random.key(0), jnp.array([1.0, 0, -8]))
  >>> q.tolist(), scales.tolist()
  ([127, 0, -127], [1.0, 8.0])
  """

  block: fields.Count = 256
  bound = 127


@dataclasses.dataclass(frozen=True)
class int4(_Scaled):
  """Stochastic rounding to int4, two numbers a byte; as `int8` with m = 7.

  The payload is (uint8[ceil(d / 2)], the first number in the lower bits; scales
  f32[ceil(d / block)]).

  >>> q, scales = int4(2).encode(jax.random.key(0), jnp.array([1.0, 0, -8]))
  >>> q.tolist(), scales.tolist()
  ([126, 0], [1.0, 8.0])
  """

  block: fields.Count = 64
  bound = 7
