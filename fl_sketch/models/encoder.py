"""Transformers that read all of an image or a sentence: ViT and BERT."""

from fl_sketch.models import layers, transformer
from fl_sketch.utils import fields
import flax.linen as nn
import jax.numpy as jnp

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
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  def __post_init__(self):
    transformer.check_multiple('width', self.width, 'heads', self.heads)
    super().__post_init__()

  @nn.compact
  def __call__(self, x_BxHxWxC):
    """Return the logits, f32[batch, num_classes]."""
    (batch, rows, cols, channels), patch = x_BxHxWxC.shape, self.patch
    if rows % patch or cols % patch:
      raise ValueError(f'{rows=} and {cols=} must be multiples of {patch=}.')
    # Patches of pixels, row by row, as a convolution reads them.
    shape = batch, rows // patch, patch, cols // patch, patch, channels
    x = x_BxHxWxC.reshape(shape).swapaxes(2, 3)
    x = x.reshape(batch, -1, patch * patch * channels)
    x = layers.dense(self.width, self.dtype, name='patches')(x)
    first = transformer.table(self, 'class_token', 1, self.width)
    first = jnp.broadcast_to(first[None], (x.shape[0], 1, self.width))
    x = jnp.concatenate([first, x], axis=1)
    x += transformer.table(self, 'positions', x.shape[1], self.width)[None]
    options = {'hidden': 4 * self.width, 'dtype': self.dtype}
    for i in range(self.depth):
      x = transformer.Block(self.heads, **options, name=f'block_{i}')(x)
    x = transformer.norm('norm')(x)[:, 0]
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

  def __post_init__(self):
    transformer.check_multiple('width', self.width, 'heads', self.heads)
    super().__post_init__()

  @nn.compact
  def __call__(self, tokens_BxL):
    """Return the logits, f32[batch, num_classes], of i32[batch, length]."""
    transformer.check_tokens(tokens_BxL)
    length = tokens_BxL.shape[1]
    if length > self.max_length:
      raise ValueError(f'{length=} must be <= max_length={self.max_length}.')
    table = lambda name, rows: transformer.table(self, name, rows, self.width)
    words = table('words', self.vocab_size)
    places, kinds = table('positions', self.max_length), table('token_types', 2)
    x = words[tokens_BxL] + (places[:length] + kinds[:1])[None]
    x = transformer.norm('norm')(x)
    kind = transformer.Kind(norm_first=False)
    sizes = self.heads, 4 * self.width, kind, self.dtype
    for i in range(self.depth):
      x = transformer.Block(*sizes, name=f'block_{i}')(x, tokens_BxL > 0)
    pool = layers.dense(self.width, self.dtype, name='pooler')
    x = jnp.tanh(pool(x[:, 0]))
    return layers.dense(self.num_classes, self.dtype, name='head')(x)
