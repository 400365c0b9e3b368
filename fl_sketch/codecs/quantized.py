"""Quantisation of every coordinate to 16 bits or fewer."""

import dataclasses
from typing import Annotated, ClassVar

from fl_sketch import sketches
from fl_sketch.codecs import base, packing
from fl_sketch.sketches import primitives
from fl_sketch.utils import fields
from jax import lax
import jax.numpy as jnp

_OMEGA = 2.0**-14 / (4 * (1 + 2.0**-7))  # of `bfloat16`
_MOST = float(jnp.finfo(jnp.bfloat16).max)


@dataclasses.dataclass(frozen=True)
class qsgd(base.VectorCodec):
  r"""QSGD: stochastic rounding to s = `levels` fractions of the norm, unbiased.

  .. math:: \|x\|_2\, \mathrm{sign}(x_i)\, \lfloor s |x_i| / \|x\|_2 + u_i
    \rfloor / s, \quad u_i \sim U[0, 1)

  omega = min(d / (4 s^2), sqrt(d) / s), where the paper has d / s^2.

  Signs and levels are one integer each. The payload is (uint8[ceil(d / 4)] for
  s = 1, uint8[ceil(d / 2)] up to 7, int8[d] up to 127, else int16[d]; f32[]).

  >>> import jax
  >>> packed, norm = qsgd(1).encode(jax.random.key(0), jnp.ones(9))
  >>> packed.shape, float(norm)
  ((3,), 3.0)

  Source: Alistarh et al. (NeurIPS 2017, arXiv:1610.02132), Lemma 3.1.
  """

  levels: Annotated[int, fields.Rule('in [1, 2**15)', lambda s: 0 < s < 2**15)]

  @base.law
  def omega(self, d):
    return min(d / (4 * self.levels**2), d**0.5 / self.levels)

  def encode_vector(self, key, x):
    levels, norm = self.levels, primitives.norm(x)
    draws = base.uniform(key, x.size)
    level = jnp.floor(jnp.abs(base.fraction(x, norm)) * levels + draws)
    return packing.pack(jnp.where(x < 0, -level, level), levels), norm

  def decode_vector(self, key, payload, d):
    packed, norm = payload
    return norm * (packing.unpack(packed, self.levels, d) / self.levels)


@dataclasses.dataclass(frozen=True)
class sign(base.VectorCodec):
  """Sign compression: one bit a coordinate and one scale; 0 is sent as +1.

  'l1': ||x||_1 / d, the best scale; delta = ||x||_1^2 / (d ||x||_2^2) >= 1 / d.
  'l2': ||x||_2 / sqrt(d), which keeps the norm, as 1-bit Adam does; no
  contraction: a spike gives ||x - decode||^2 = 2 (1 - 1 / sqrt(d)) ||x||^2.

  The payload is (uint8[ceil(d / 8)], f32[]), of which a set bit is a minus.

  >>> import jax
  >>> sign().encode(jax.random.key(0), jnp.array([-3.0, 0.0, 1.5]))
  (Array([128], dtype=uint8), Array(1.5, dtype=float32))

  Source: Karimireddy et al. (ICML 2019, arXiv:1901.09847); Tang et al. (ICML
  2021, arXiv:2102.02888).
  """

  norm: Annotated[str, fields.choice(('l1', 'l2'))] = 'l1'

  @property
  def contraction(self):
    law = lambda like: 1 / sketches.dimension(like)
    return law if self.norm == 'l1' else None

  def encode_vector(self, key, x):
    scale = primitives.norm(x) / x.size**0.5
    if self.norm == 'l1':
      scale = jnp.abs(x).mean()
    return jnp.packbits(x < 0), scale

  def decode_vector(self, key, payload, d):
    packed, scale = payload
    return jnp.where(jnp.unpackbits(packed, count=d), -scale, scale)


@dataclasses.dataclass(frozen=True)
class shared_sign(base.VectorCodec):
  r"""Send one random sign an entry, with one scale that all clients share.

  An entry x, clipped to the bound B, is sent as +B with probability (1 + x / B)
  / 2, else as -B: unbiased, with :math:`E\|\mathrm{decode} - x\|^2 = d B^2 -
  \|x\|^2` where no entry is clipped; omega is None. A mean of n clients needs
  the number of +B alone: secure aggregation of ceil(log2(n + 1)) bits an entry.

  A good B > 0 is a few times the norm over sqrt(d), for a rotated update or its
  table. The payload is uint8[ceil(d / 8)], where a set bit is a plus.

  >>> import jax
  >>> shared_sign(2.0).encode(jax.random.key(0), jnp.array([2.0, -3.0]))
  Array([128], dtype=uint8)

  Source: as THC (Li et al., NSDI 2024, arXiv:2302.08545) with one bit.
  """

  bound: fields.Positive

  def encode_vector(self, key, x):
    draws = self.bound * (2 * base.uniform(key, x.size) - 1)
    return jnp.packbits(draws < x)

  def decode_vector(self, key, payload, d):
    signs = jnp.unpackbits(payload, count=d)
    return jnp.where(signs, self.bound, -self.bound)


@dataclasses.dataclass(frozen=True)
class bfloat16(base.VectorCodec):
  r"""Stochastic rounding of float32 to bfloat16: unbiased.

  Between neighbours :math:`2^e` and :math:`(1 + u) 2^e`, u = 1 / 128, the upper
  one is drawn at the fraction p of the way: omega = u^2 / (4 (1 + u)), reached
  at p = 1 / (2 + u), and delta = 1 - omega.

  Numbers are clipped to the largest bfloat16, 3.39e38, and those below 1.2e-38
  may become 0. The payload is bfloat16[d].
  """

  omega = base.law(lambda self, d: _OMEGA)
  contraction = base.law(lambda self, d: 1 - _OMEGA)

  def encode_vector(self, key, x):
    bits = lax.bitcast_convert_type(jnp.clip(x, -_MOST, _MOST), jnp.uint32)
    bits += base.words(key, x.size) >> 16
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
    bound, rows = self.bound, base.rows(jnp.abs(x), self.block)
    scale = rows.max(1)
    steps = base.fraction(rows, scale[:, None]) * bound
    largest = (rows == scale[:, None]) & (rows > 0)  # 1, but for its rounding
    steps = jnp.where(largest, bound, steps).ravel()[: x.size]
    below = jnp.floor(steps)
    draws = base.uniform(key, x.size)
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

  Levels are multiples of a block's largest magnitude over m = 127, which is
  exact. omega = (r - 1) / 2 with r^2 = 1 + (block - 1) / m^2; delta = 1 - omega
  where that is positive. The payload is (int8[d]; scales f32[ceil(d / block)]).

  >>> import jax
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
  """

  block: fields.Count = 64
  bound = 7
