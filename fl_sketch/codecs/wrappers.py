"""Codecs built from linear sketches or from other codecs."""

from fl_sketch import sketches
from fl_sketch.codecs import base
from fl_sketch.sketches.base import leaf_type, wide_type
import jax


def from_sketch(op: sketches.Sketch) -> base.Codec:
  """Wrap a linear sketch as an unbiased codec, whose omega is its alpha.

  The payload is the operator's table. Raises ValueError if `op` is not linear,
  or states no alpha.

  >>> from_sketch(sketches.block_cyclic(8)).omega(64)
  7.0
  """
  stated = sketches.properties(op)
  name, linear, alpha = stated.name, stated.linear, stated.alpha
  if not linear or alpha is None:
    raise ValueError(f'{name=}, {linear=} must be linear and state an alpha.')
  return base.Codec(op.sketch, op.desketch, name, alpha, None)


def contract(codec: base.Codec) -> base.Codec:
  """Scale an unbiased codec by 1 / (1 + omega) =: delta, its contraction.

  The payload is the same; error feedback needs it. A biased codec raises
  ValueError.

  >>> contract(from_sketch(sketches.block_cyclic(2))).contraction(8)
  0.25
  """
  omega = codec.omega
  if omega is None:
    raise ValueError(f'codec={codec.name!r} must be unbiased.')
  delta = lambda like: 1 / (1 + omega(like))

  def decode(key, payload, like):
    x = codec.decode(key, payload, jax.tree.map(wide_type, like))
    scaled = lambda x, t: (delta(like) * x).astype(leaf_type(t).dtype)
    return jax.tree.map(scaled, x, like)

  name = f'contract({codec.name})'
  return base.Codec(codec.encode, decode, name, None, delta)
