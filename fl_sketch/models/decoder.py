"""Causal transformers that tell every token from those before it."""

from fl_sketch.models import precision, transformer
from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp


class Decoder(nn.Module):
  """Base decoder of GPT and Llama: embedding, blocks, output projection.

  Padding may only follow the tokens of a sequence: they do not see it. Blocks
  in a `scan`, a loop of one program, compile faster, and all their parameters
  are copied; they, and the outputs, are the same. Of `remat` the backward pass
  computes blocks again, keeping nothing inside (Chen et al., arXiv:1604.06174).
  """

  num_classes: int | None  # tokens of the data
  width: int  # of a token
  depth: int  # blocks
  heads: int  # of attention, a divisor of the width
  hidden: int | None = None  # between the dense layers; None is 4 x width
  vocab_size: int | None = None  # of the model, if more than of the data
  tied: bool = True  # whether logits are products with the words' own vectors
  dropout: float = 0.0  # rate on embeddings, attention and what is added
  scan: bool = False  # whether blocks run in a loop
  remat: bool = False  # whether blocks are computed again
  dtype: str = 'float32'  # of what is multiplied, see `precision`

  def __post_init__(self):
    transformer.vocabulary(self.num_classes, self.vocab_size)
    checks.zero_or_fraction('dropout', self.dropout)
    sizes = {} if self.hidden is None else {'hidden': self.hidden}
    transformer.check(self.width, self.depth, self.heads, **sizes)
    super().__post_init__()

  def kind(self, dropout: float) -> transformer.Kind:
    """What the blocks are made of."""
    raise NotImplementedError

  def embed(self, x_BxLxD: jax.Array) -> jax.Array:
    """Adds vectors of positions to those of words, if there are any."""
    return x_BxLxD

  @nn.compact
  def __call__(self, tokens_BxL, train: bool = False):
    """Returns logits f32[batch, length, vocabulary] of i[batch, length]."""
    transformer.check_tokens(tokens_BxL)
    rows = transformer.vocabulary(self.num_classes, self.vocab_size)
    kind = self.kind(self.dropout if train else 0.0)
    words = transformer.table(self, 'words', rows, self.width)
    x = transformer.drop(self.embed(words[tokens_BxL]), kind.dropout)
    x = kind.norm('norm')(self._blocks(x, kind))
    if not self.tied:
      return precision.dense(
        rows, self.dtype, use_bias=False, kernel_init=kind.init, name='logits'
      )(x)
    logits = precision.matmul(x.reshape(-1, self.width), words.T, self.dtype)
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
