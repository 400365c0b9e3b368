"""The identity, and codecs built from linear sketches or from other codecs."""

import dataclasses

from fl_sketch import sketches
from fl_sketch.codecs import base
from fl_sketch.sketches.base import leaf_type, wide_type
import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class identity(base.Codec):
  """No compression: the payload is the tree as it is; omega = 0, delta = 1."""

  omega = base.law(lambda self, d: 0.0)
  contraction = base.law(lambda self, d: 1.0)

  def encode(self, key, tree):
    return tree

  def decode(self, key, payload, like):
    cast = lambda x, t: jnp.asarray(x, leaf_type(t).dtype)
    return jax.tree.map(cast, payload, like)


@dataclasses.dataclass(frozen=True)
class from_sketch(base.Codec):
  """Wrap a linear sketch as an unbiased codec, whose omega is its alpha.

  The payload is the operator's table. Raises ValueError if `op` is not linear,
  or states no alpha.

  >>> from_sketch(sketches.block_cyclic(8)).omega(64)
  7.0
  """

  op: sketches.Sketch

  def __post_init__(self):
    stated = self.op.properties
    if not stated.linear or stated.alpha is None:
      raise ValueError(f'{self.op=} must be linear and state an alpha.')

  @property
  def omega(self):
    return self.op.properties.alpha

  def encode(self, key, tree):
    return self.op.sketch(key, tree)

  def decode(self, key, payload, like):
    return self.op.desketch(key, payload, like)


@dataclasses.dataclass(frozen=True)
class contract(base.Codec):
  """Scale an unbiased codec by 1 / (1 + omega) =: delta, its contraction.

  The payload is the same; error feedback needs it. A biased codec raises
  ValueError.

  >>> contract(from_sketch(sketches.block_cyclic(2))).contraction(8)
  0.25
  """

  codec: base.Codec

  def __post_init__(self):
    if self.codec.omega is None:
      raise ValueError(f'{self.codec=} must be unbiased.')

  @property
  def contraction(self):
    omega = self.codec.omega
    assert omega is not None  # checked above
    return lambda like: 1 / (1 + omega(like))

  def encode(self, key, tree):
    return self.codec.encode(key, tree)

  def decode(self, key, payload, like):
    x = self.codec.decode(key, payload, jax.tree.map(wide_type, like))
    delta = self.contraction(like)
    scaled = lambda x, t: (delta * x).astype(leaf_type(t).dtype)
    return jax.tree.map(scaled, x, like)
