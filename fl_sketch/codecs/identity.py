"""The identity codec: no compression."""

import dataclasses

from fl_sketch.codecs import base
from fl_sketch.sketches.base import leaf_type
import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class identity(base.Codec):
  """No compression: the payload is the tree as it is; omega = 0, delta = 1.

  >>> identity().encode(jax.random.key(0), {'w': 0.5})
  {'w': 0.5}
  """

  omega = base.law(lambda self, d: 0.0)
  contraction = base.law(lambda self, d: 1.0)

  def encode(self, key, tree):
    return tree

  def decode(self, key, payload, like):
    cast = lambda x, t: jnp.asarray(x, leaf_type(t).dtype)
    return jax.tree.map(cast, payload, like)
