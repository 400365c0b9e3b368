"""Transformer blocks, and the encoders ViT and BERT.

Vaswani et al., arXiv:1706.03762, with the layers of Hugging Face's models, so
that their weights can be loaded. `Kind` has what differs between them.
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

from fl_sketch.models import layers
from fl_sketch.utils import fields
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

# ViT-B/16; ViT-Ti and ViT-S of Touvron et al., arXiv:2012.12877; and a nano.
VIT_SIZES = {
  'vit_nano': {'width': 64, 'depth': 4, 'heads': 4, 'patch': 4},
  'vit_tiny': {'width': 192, 'heads': 3},
  'vit_small': {'width': 384, 'heads': 6},
  'vit_base': {'width': 768, 'heads': 12},
}
# BERT-base; tiny, mini and small of Turc et al., arXiv:1908.08962; and a nano.
BERT_SIZES = {
  'bert_nano': {'width': 64, 'depth': 2, 'heads': 2},
  'bert_tiny': {'width': 128, 'depth': 2, 'heads': 2},
  'bert_mini': {'width': 256, 'depth': 4, 'heads': 4},
  'bert_small': {'width': 512, 'depth': 4, 'heads': 8},
  'bert_base': {'width': 768, 'depth': 12, 'heads': 12},
}
EPSILON = 1e-12  # of LayerNorm, in ViT and BERT
Initializer = nn.initializers.Initializer


def gelu(x: jax.Array) -> jax.Array:
  """Compute exact GELU, x / 2 erfc(-x / sqrt(2)): arXiv:1606.08415."""
  return 0.5 * x * _erfc(-x * jnp.asarray(math.sqrt(0.5), x.dtype))


_erfc = jax.custom_jvp(jax.lax.erfc)


@_erfc.defjvp
def _erfc_jvp(primals, tangents):
  # JAX 0.12's own derivative of erfc does not trace inside `shard_map`.
  (x,), (dx,) = primals, tangents
  slope = dx * jnp.exp(-jnp.square(x))
  return _erfc(x), jnp.asarray(-2 / math.sqrt(math.pi), x.dtype) * slope


def norm(name: str, epsilon: float = EPSILON) -> nn.LayerNorm:
  """Return a LayerNorm, by default that of ViT and BERT."""
  return nn.LayerNorm(epsilon=epsilon, name=name)


class Kind(NamedTuple):
  """What differs between the blocks of models; the defaults are ViT's."""

  norm_first: bool = True  # or the sum is normalised (BERT)
  norm: Callable[[str], nn.Module] = norm  # of a name
  activation: Callable[[jax.Array], jax.Array] = gelu  # of the MLP
  gated: bool = False  # out(activation(gate(x)) in(x)): arXiv:2002.05202
  causal: bool = False  # whether a position sees only itself and those before
  theta: float | None = None  # base of rotary positions, see `rotate`
  kv_heads: int | None = None  # of keys and values: arXiv:2305.13245
  qkv_bias: bool = True  # of queries, keys and values
  bias: bool = True  # of the other products
  dropout: float = 0.0  # rate on attention and on residual outputs
  init: Initializer = nn.linear.default_kernel_init
  init_out: Initializer = nn.linear.default_kernel_init  # of residual outputs


class Attention(nn.Module):
  """Multi-head self-attention, softmax(q k' / sqrt(width / heads)) v.

  Of f32[batch, length, width]; positions of mask 0 are ignored.
  """

  heads: int  # a divisor of the width
  kind: Kind = Kind()
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL=None):
    batch, length, width = x_BxLxD.shape
    kind, size = self.kind, width // self.heads
    kv_heads = kind.kv_heads or self.heads
    check_multiple('width', width, 'heads', self.heads)
    check_multiple('heads', self.heads, 'kv_heads', kv_heads)
    one_head = lambda x, y: layers.matmul(x, y, self.dtype)
    product = jax.vmap(jax.vmap(one_head))

    def split(name, heads):
      y = layers.dense(
        heads * size, self.dtype, use_bias=kind.qkv_bias,
        kernel_init=kind.init, name=name,
      )(x_BxLxD)  # fmt: skip
      return y.reshape(batch, length, heads, size).swapaxes(1, 2)

    query, key = split('query', self.heads), split('key', kv_heads)
    value = split('value', kv_heads)
    if kind.theta is not None:
      query, key = rotate(query, kind.theta), rotate(key, kind.theta)
    if kv_heads < self.heads:
      shared = self.heads // kv_heads
      key, value = (jnp.repeat(x, shared, axis=1) for x in (key, value))
    scores = product(query / math.sqrt(size), key.swapaxes(2, 3))
    lowest = jnp.finfo(scores.dtype).min
    if mask_BxL is not None:
      scores = jnp.where(mask_BxL[:, None, None, :], scores, lowest)
    if kind.causal:
      seen = jnp.tri(length, dtype=bool)[None, None]
      scores = jnp.where(seen, scores, lowest)
    weights = drop(jax.nn.softmax(scores), kind.dropout)
    attended = product(weights, value).swapaxes(1, 2)
    out = layers.dense(
      width, self.dtype, use_bias=kind.bias, kernel_init=kind.init_out,
      name='out',
    )  # fmt: skip
    return out(attended.reshape(batch, length, width))


class Block(nn.Module):
  """Attention and an MLP, each with a residual connection."""

  heads: int
  hidden: int  # width between the dense layers
  kind: Kind = Kind()
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL=None):
    kind = self.kind
    attend = Attention(self.heads, kind, self.dtype, name='attention')
    layers = (lambda x: attend(x, mask_BxL)), self._mlp
    for layer, name in zip(layers, ('attention', 'mlp'), strict=True):
      norm = kind.norm(f'norm_{name}')
      if kind.norm_first:
        x_BxLxD += drop(layer(norm(x_BxLxD)), kind.dropout)
      else:
        x_BxLxD = norm(x_BxLxD + drop(layer(x_BxLxD), kind.dropout))
    return x_BxLxD

  def _mlp(self, x_BxLxD):
    kind = self.kind
    dense = functools.partial(
      layers.dense, dtype=self.dtype, use_bias=kind.bias
    )
    dense_in = functools.partial(dense, self.hidden, kernel_init=kind.init)
    h = dense_in(name='mlp_in')(x_BxLxD)
    gate = dense_in(name='mlp_gate')(x_BxLxD) if kind.gated else h
    h = kind.activation(gate) * h if kind.gated else kind.activation(h)
    out = dense(x_BxLxD.shape[-1], kernel_init=kind.init_out, name='mlp_out')
    return out(h)


def drop(x: jax.Array, rate: float) -> jax.Array:
  """Apply dropout by the key of the module that is called."""
  return nn.Dropout(rate, deterministic=False)(x)


def rotate(x: jax.Array, theta: float) -> jax.Array:
  """Turn queries or keys by rotary positions: Su et al., arXiv:2104.09864.

  Of x, f32[batch, heads, length, size], entries i and i + size / 2 at position
  p are turned by p theta^(-2 i / size): halves, as in Llama's weights, in place
  of Su's neighbours.
  """
  length, half = x.shape[2], x.shape[3] // 2
  if x.shape[3] % 2:
    raise ValueError(f'width / heads={x.shape[3]} must be even with {theta=}.')
  rates = (theta ** (-np.arange(half) / half)).astype(np.float32)
  angles = np.arange(length, dtype=np.float32)[:, None] * rates[None]
  cos, sin = (f(angles)[None, None] for f in (jnp.cos, jnp.sin))
  a, b = x[..., :half], x[..., half:]
  return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def table(module: nn.Module, name: str, rows: int, width: int) -> jax.Array:
  """Return a parameter f32[rows, width]: vectors of tokens or positions."""
  return module.param(name, nn.initializers.normal(0.02), (rows, width))


def check_multiple(name: str, size: int, of: str, divisor: int) -> None:
  """Check that one size is a multiple of another."""
  if size % divisor:
    raise ValueError(f'{name}={size} must be a multiple of {of}={divisor}.')


def check_tokens(tokens_BxL: jax.Array) -> None:
  """Check that inputs are integers[batch, length]."""
  if tokens_BxL.ndim != 2:
    raise ValueError(f'{tokens_BxL.ndim=} must be 2.')
  if not jnp.issubdtype(tokens_BxL.dtype, jnp.integer):
    raise ValueError(
      f'{tokens_BxL.dtype=} must be integers of more than 8 bits: '
      'uint8 are pixels.'
    )


def vocabulary(num_classes: int | None, vocab_size: int | None) -> int:
  """Return the size of a model's vocabulary, at least that of its data."""
  if vocab_size is None:
    if num_classes is None:
      raise ValueError('Set vocab_size: the problem has no num_classes.')
    return num_classes
  if vocab_size < (num_classes or 1):
    raise ValueError(f'{vocab_size=} must be >= {num_classes=}.')
  return vocab_size


class ViT(nn.Module):
  """Vision transformer: patches, a class token and learned positions.

  Dosovitskiy et al., arXiv:2010.11929. With images of 224 x 224 and 1,000
  classes, 'vit_base' has 86,567,656 parameters.
  """

  num_classes: int
  width: fields.Count = 768  # of a token
  depth: fields.Count = 12  # blocks
  heads: fields.Count = 12  # a divisor of the width
  patch: fields.Count = 16  # side of a patch in pixels, divides the image's
  side: fields.Count | None = None  # images are resized to it first
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  @nn.compact
  def __call__(self, x_BxHxWxC):
    if self.side is not None:
      shape = len(x_BxHxWxC), self.side, self.side, x_BxHxWxC.shape[-1]
      x_BxHxWxC = jax.image.resize(x_BxHxWxC, shape, 'bilinear')
    (batch, rows, cols, channels), patch = x_BxHxWxC.shape, self.patch
    if rows % patch or cols % patch:
      raise ValueError(f'{rows=} and {cols=} must be multiples of {patch=}.')
    # Patches of pixels, row by row, as a convolution reads them.
    shape = batch, rows // patch, patch, cols // patch, patch, channels
    x = x_BxHxWxC.reshape(shape).swapaxes(2, 3)
    x = x.reshape(batch, -1, patch * patch * channels)
    x = layers.dense(self.width, self.dtype, name='patches')(x)
    first = table(self, 'class_token', 1, self.width)
    first = jnp.broadcast_to(first[None], (x.shape[0], 1, self.width))
    x = jnp.concatenate([first, x], axis=1)
    x += table(self, 'positions', x.shape[1], self.width)[None]
    sizes = self.heads, 4 * self.width, Kind(), self.dtype
    for i in range(self.depth):
      x = Block(*sizes, name=f'block_{i}')(x)
    x = norm('norm')(x)[:, 0]
    return layers.dense(self.num_classes, self.dtype, name='head')(x)


class Bert(nn.Module):
  """A BERT encoder whose pooled first token gives the logits.

  Devlin et al., arXiv:1810.04805. 'bert_base' has 109,482,240 parameters below
  the head. Token 0 is padding, which is masked.
  """

  num_classes: int
  vocab_size: fields.Count = 30522
  max_length: fields.Count = 512  # positions
  width: fields.Count = 768  # of a token
  depth: fields.Count = 12  # blocks
  heads: fields.Count = 12  # a divisor of the width
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  @nn.compact
  def __call__(self, tokens_BxL):
    check_tokens(tokens_BxL)
    length = tokens_BxL.shape[1]
    if length > self.max_length:
      raise ValueError(f'{length=} must be <= max_length={self.max_length}.')
    of = lambda name, rows: table(self, name, rows, self.width)
    words = of('words', self.vocab_size)
    places, kinds = of('positions', self.max_length), of('token_types', 2)
    x = words[tokens_BxL] + (places[:length] + kinds[:1])[None]
    x = norm('norm')(x)
    sizes = self.heads, 4 * self.width, Kind(norm_first=False), self.dtype
    for i in range(self.depth):
      x = Block(*sizes, name=f'block_{i}')(x, tokens_BxL > 0)
    x = jnp.tanh(layers.dense(self.width, self.dtype, name='pooler')(x[:, 0]))
    return layers.dense(self.num_classes, self.dtype, name='head')(x)
