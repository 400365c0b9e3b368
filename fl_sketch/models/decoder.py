"""Causal transformers, which predict each token from the preceding ones."""

import functools
import math

from fl_sketch.models import layers, transformer
from fl_sketch.utils import fields
import flax.linen as nn
import jax
import jax.numpy as jnp

# gpt2 is the smallest published one; small has its size, mini that of nanoGPT
# for characters; nano and micro are for experiments on a CPU.
GPT_SIZES = {
  'gpt_nano': dict(width=64, depth=2, heads=2),
  'gpt_micro': dict(width=96, depth=4, heads=3),
  'gpt_mini': dict(width=384, depth=6, heads=6),
  'gpt_small': dict(width=768, depth=12, heads=12),
  'gpt2': dict(width=768, depth=12, heads=12, vocab_size=50257, max_length=1024)
}  # fmt: skip
# 'llama' requires its sizes; nano is for experiments on a CPU.
LLAMA_SIZES = {
  'llama': {},
  'llama_nano': dict(width=64, depth=2, heads=2, kv_heads=1, hidden=176),
  'smollm2_135m': dict(  # Allal et al., arXiv:2502.02737
    width=576, depth=30, heads=9, kv_heads=3, hidden=1536, vocab_size=49152,
    theta=1e5,
  ),
  'qwen2_500m': dict(  # also Qwen2.5: Yang et al., arXiv:2412.15115
    width=896, depth=24, heads=14, kv_heads=2, hidden=4864, vocab_size=151936,
    theta=1e6, epsilon=1e-6, qkv_bias=True,
  ),
}  # fmt: skip
STD = 0.02  # of first kernels and vectors
EPSILON = 1e-5  # of LayerNorm


class Decoder(nn.Module):
  """Base decoder of GPT and Llama: embedding, blocks, output projection.

  Logits are f32[batch, length, vocabulary] of i[batch, length], whose padding
  may only follow the tokens. `scan` compiles one program for all blocks and
  copies their parameters; outputs stay the same. With `remat` the backward pass
  computes blocks again (Chen et al., 1604.06174).
  """

  num_classes: int | None  # tokens of the data
  width: fields.Count  # of a token
  depth: fields.Count  # blocks
  heads: fields.Count  # of attention, a divisor of the width
  hidden: fields.Count | None = None  # between dense layers; None is 4 x width
  vocab_size: int | None = None  # of the model, if more than of the data
  tied: bool = True  # whether logits are products with the word vectors
  dropout: fields.Share = 0.0  # of embeddings, attention, residual outputs
  scan: bool = False
  remat: bool = False
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  def kind(self, dropout: float) -> transformer.Kind:  # of the blocks
    raise NotImplementedError

  def embed(self, x_BxLxD: jax.Array) -> jax.Array:  # adds positions, if any
    return x_BxLxD

  @nn.compact
  def __call__(self, tokens_BxL, train: bool = False):
    transformer.check_tokens(tokens_BxL)
    rows = transformer.vocabulary(self.num_classes, self.vocab_size)
    kind = self.kind(self.dropout if train else 0.0)
    words = transformer.table(self, 'words', rows, self.width)
    x = transformer.drop(self.embed(words[tokens_BxL]), kind.dropout)
    x = kind.norm('norm')(self._blocks(x, kind))
    if not self.tied:
      return layers.dense(
        rows, self.dtype, use_bias=False, kernel_init=kind.init, name='logits'
      )(x)
    logits = layers.matmul(x.reshape(-1, self.width), words.T, self.dtype)
    return logits.reshape(*tokens_BxL.shape, rows)

  def _blocks(self, x, kind):
    fields = self.heads, self.hidden or 4 * self.width, kind, self.dtype
    if not self.scan or self.is_initializing():
      make = nn.remat(transformer.Block) if self.remat else transformer.Block
      for i in range(self.depth):
        x = make(*fields, name=f'block_{i}')(x)
      return x
    block = transformer.Block(*fields, parent=None)
    trees = [self.variables['params'][f'block_{i}'] for i in range(self.depth)]
    layers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    key = self.make_rng('dropout') if kind.dropout else jax.random.key(0)

    def step(x, layer):
      params, i = layer
      rngs = {'dropout': jax.random.fold_in(key, i)}
      return block.apply({'params': params}, x, rngs=rngs), None

    if self.remat:
      step = jax.checkpoint(step, prevent_cse=False)
    return jax.lax.scan(step, x, (layers, jnp.arange(self.depth)))[0]


class GPT(Decoder):
  """A decoder of GPT-2's blocks: LayerNorm first, biases, tanh GELU.

  Radford et al., 2019, https://github.com/openai/gpt-2. 'gpt2' has 124,439,808
  parameters; GPT-2 was trained with a dropout of 0.1. Positions are learned, or
  rotary with the base `theta`, see `transformer.rotate`.
  """

  max_length: fields.Count | None = None  # None: the length of first inputs
  theta: fields.Positive | None = None

  def kind(self, dropout: float) -> transformer.Kind:
    return transformer.Kind(
      norm=functools.partial(transformer.norm, epsilon=EPSILON),
      activation=functools.partial(jax.nn.gelu, approximate=True),
      causal=True, theta=self.theta, dropout=dropout,
      init=nn.initializers.normal(STD),
      init_out=nn.initializers.normal(STD / math.sqrt(2 * self.depth)),
    )  # fmt: skip

  def embed(self, x_BxLxD: jax.Array) -> jax.Array:
    if self.theta is not None:
      return x_BxLxD
    length, rows = x_BxLxD.shape[1], self.max_length
    if rows is None:
      drawn = self.has_variable('params', 'positions')
      rows = len(self.get_variable('params', 'positions')) if drawn else length
    if length > rows:
      raise ValueError(f'{length=} must be <= max_length={rows}.')
    places = transformer.table(self, 'positions', rows, self.width)
    return x_BxLxD + places[None, :length]


class Llama(Decoder):
  """A decoder of Llama's blocks: RMSNorm first, SwiGLU, rotary positions.

  Touvron et al., arXiv:2302.13971 and 2307.09288.
  """

  kv_heads: fields.Count | None = None  # of keys and values, divides heads
  theta: fields.Positive = 1e4  # base of rotary positions
  epsilon: fields.Positive = 1e-5  # of RMSNorm
  qkv_bias: bool = False  # biases of queries, keys and values, as in Qwen2

  def kind(self, dropout: float) -> transformer.Kind:
    init = nn.initializers.normal(STD)
    return transformer.Kind(
      norm=lambda name: nn.RMSNorm(epsilon=self.epsilon, name=name),
      activation=jax.nn.silu, gated=True, causal=True, theta=self.theta,
      kv_heads=self.kv_heads, qkv_bias=self.qkv_bias, bias=False,
      dropout=dropout, init=init, init_out=init,
    )  # fmt: skip
