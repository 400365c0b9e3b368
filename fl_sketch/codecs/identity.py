"""The identity codec: no compression."""

from fl_sketch.codecs import base
from fl_sketch.sketches.base import leaf_type
import jax
import jax.numpy as jnp


def identity() -> base.Codec:
  """No compression: the payload is the tree as it is; omega = 0, delta = 1.

  >>> identity().encode(jax.random.key(0), {'w': 0.5})
  {'w': 0.5}
  """

  def decode(key, payload, like):
    cast = lambda x, t: jnp.asarray(x, leaf_type(t).dtype)
    return jax.tree.map(cast, payload, like)

  return base.Codec(
    lambda key, tree: tree, decode, 'identity', lambda d: 0.0, lambda d: 1.0
  )
