"""Quantisation of every coordinate to few bits, with one scale."""

import dataclasses
from typing import Annotated

from fl_sketch import sketches
from fl_sketch.codecs import base, packing
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class qsgd(base.VectorCodec):
  r"""QSGD: stochastic rounding to s = `levels` fractions of the norm, unbiased.

  .. math:: \|x\|_2\, \mathrm{sign}(x_i)\, \lfloor s |x_i| / \|x\|_2 + u_i
    \rfloor / s, \quad u_i \sim U[0, 1)

  omega = min(d / (4 s^2), sqrt(d) / s), where the paper has d / s^2: in units
  of :math:`\|x\|_2 / s` the variance at fraction p is p (1 - p).

  Signs and levels are one integer each: two bits for s = 1, four up to 7, int8
  up to 127, else int16. The payload is (uint8[ceil(d / 4)], uint8[ceil(d / 2)],
  int8[d] or int16[d]; f32[]). Raises ValueError unless 1 <= levels < 2**15.

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
    levels, norm = self.levels, jnp.linalg.norm(x)
    draws = jax.random.uniform(key, x.shape, x.dtype)
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

  The payload is (uint8[ceil(d / 8)], f32[]), of which a set bit is a minus. A
  norm that is neither raises ValueError.

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
    scale = jnp.linalg.norm(x) / x.size**0.5
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
  \|x\|^2` where no entry is clipped, of which a mean of n clients has 1 / n.
  That mean needs the number of clients that sent +B alone: secure aggregation
  of an entry takes ceil(log2(n + 1)) bits.

  The error does not fall with x, so that omega is None. A good B > 0 is a few
  times the norm over sqrt(d), for a rotated update or its table. The payload is
  uint8[ceil(d / 8)], where a set bit is a plus.

  >>> shared_sign(2.0).encode(jax.random.key(0), jnp.array([2.0, -3.0]))
  Array([128], dtype=uint8)

  Source: as THC (Li et al., NSDI 2024, arXiv:2302.08545) with one bit.
  """

  bound: fields.Positive

  def encode_vector(self, key, x):
    draws = self.bound * (2 * jax.random.uniform(key, x.shape) - 1)
    return jnp.packbits(draws < x)

  def decode_vector(self, key, payload, d):
    signs = jnp.unpackbits(payload, count=d)
    return jnp.where(signs, self.bound, -self.bound)
