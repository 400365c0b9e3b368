"""Transformer encoder blocks shared by ViT and BERT.

Vaswani et al., arXiv:1706.03762, with the layers of Hugging Face's ViT and
BERT, so that their weights can be loaded. There is no dropout: what a client
computes is a function of its parameters and its data.
"""

import math

from fl_sketch.models import precision
from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp

EPSILON = 1e-12  # of LayerNorm, in both


class Attention(nn.Module):
  """Multi-head self-attention, softmax(q k' / sqrt(width / heads)) v.

  Attributes:
    heads: a divisor of the width.
    dtype: of what is multiplied, see `precision`.
  """

  heads: int
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL=None):
    """Returns f32[batch, length, width]; positions of mask 0 are ignored."""
    batch, length, width = x_BxLxD.shape
    dense = lambda name: precision.dense(width, self.dtype, name=name)
    one_head = lambda x, y: precision.matmul(x, y, self.dtype)
    product = jax.vmap(jax.vmap(one_head))
    query, key, value = (
      dense(name)(x_BxLxD).reshape(batch, length, self.heads, -1).swapaxes(1, 2)
      for name in ('query', 'key', 'value')
    )
    scale = math.sqrt(width // self.heads)
    scores = product(query / scale, key.swapaxes(2, 3))
    if mask_BxL is not None:
      least = jnp.finfo(scores.dtype).min
      scores = jnp.where(mask_BxL[:, None, None, :], scores, least)
    attended = product(jax.nn.softmax(scores), value).swapaxes(1, 2)
    return dense('out')(attended.reshape(batch, length, width))


class Block(nn.Module):
  """Transformer block: attention and an MLP, each with a residual connection.

  Attributes:
    heads: see `Attention`.
    hidden: width between the dense layers.
    norm_first: LayerNorm of what goes into a layer (ViT), or of the sum (BERT).
    dtype: see `Attention`.
  """

  heads: int
  hidden: int
  norm_first: bool
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL=None):
    """Returns f32[batch, length, width]."""
    attend = Attention(self.heads, self.dtype, name='attention')
    norms = [norm(name) for name in ('norm_attention', 'norm_mlp')]
    if self.norm_first:
      x_BxLxD += attend(norms[0](x_BxLxD), mask_BxL)
      return x_BxLxD + self._mlp(norms[1](x_BxLxD))
    x_BxLxD = norms[0](x_BxLxD + attend(x_BxLxD, mask_BxL))
    return norms[1](x_BxLxD + self._mlp(x_BxLxD))

  def _mlp(self, x_BxLxD):
    h = precision.dense(self.hidden, self.dtype, name='mlp_in')(x_BxLxD)
    h = gelu(h)
    return precision.dense(x_BxLxD.shape[-1], self.dtype, name='mlp_out')(h)


def gelu(x: jax.Array) -> jax.Array:
  """Exact GELU, x / 2 erfc(-x / sqrt(2)) (Hendrycks, Gimpel, 1606.08415).

  >>> gelu(jnp.array([0.0, 9.0])).tolist()
  [0.0, 9.0]
  """
  return 0.5 * x * _erfc(-x * jnp.asarray(math.sqrt(0.5), x.dtype))


@jax.custom_jvp
def _erfc(x):
  return jax.lax.erfc(x)


@_erfc.defjvp
def _erfc_jvp(primals, tangents):
  # JAX 0.12's own derivative of erfc does not trace inside `shard_map`.
  (x,), (dx,) = primals, tangents
  slope = dx * jnp.exp(-jnp.square(x))
  return _erfc(x), jnp.asarray(-2 / math.sqrt(math.pi), x.dtype) * slope


def norm(name: str) -> nn.LayerNorm:
  """LayerNorm of ViT and BERT."""
  return nn.LayerNorm(epsilon=EPSILON, name=name)


def table(module: nn.Module, name: str, rows: int, width: int) -> jax.Array:
  """A parameter f32[rows, width] of vectors for tokens or positions."""
  return module.param(name, nn.initializers.normal(0.02), (rows, width))


def check(width: int, depth: int, heads: int, **sizes: int) -> None:
  """Checks that sizes are positive and that heads divide the width.

  >>> check(width=64, depth=4, heads=3)
  Traceback (most recent call last):
  ValueError: Expected width=64 to be a multiple of heads=3.
  """
  sizes |= {'width': width, 'depth': depth, 'heads': heads}
  for name, size in sizes.items():
    checks.count(name, size)
  if width % heads:
    raise ValueError(f'Expected {width=} to be a multiple of {heads=}.')
