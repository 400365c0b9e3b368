"""BERT: Devlin et al., arXiv:1810.04805, as a classifier of sentences."""

from fl_sketch.models import precision, transformer
import flax.linen as nn
import jax.numpy as jnp

# BERT-base; tiny, mini and small of Turc et al., arXiv:1908.08962; and a nano.
SIZES = {
  'bert_nano': {'width': 64, 'depth': 2, 'heads': 2},
  'bert_tiny': {'width': 128, 'depth': 2, 'heads': 2},
  'bert_mini': {'width': 256, 'depth': 4, 'heads': 4},
  'bert_small': {'width': 512, 'depth': 4, 'heads': 8},
  'bert_base': {'width': 768, 'depth': 12, 'heads': 12},
}

KIND = transformer.Kind(norm_first=False)


class Bert(nn.Module):
  """A BERT encoder whose pooled first token gives the logits.

  'bert_base' has 109,482,240 parameters below the head.

  It has `depth` blocks of `heads` heads, a divisor of the `width` of a token,
  `max_length` positions and `vocab_size` tokens, of which 0 is padding, which
  nothing sees; `dtype` is of what is multiplied, see `precision`.
  """

  num_classes: int
  vocab_size: int = 30522
  max_length: int = 512
  width: int = 768
  depth: int = 12
  heads: int = 12
  dtype: str = 'float32'

  def __post_init__(self):
    rows = {'vocab_size': self.vocab_size, 'max_length': self.max_length}
    transformer.check(self.width, self.depth, self.heads, **rows)
    super().__post_init__()

  @nn.compact
  def __call__(self, tokens_BxL):
    """Returns the logits, f32[batch, num_classes], of i32[batch, length]."""
    transformer.check_tokens(tokens_BxL)
    length = tokens_BxL.shape[1]
    if length > self.max_length:
      raise ValueError(f'{length=} must be <= max_length={self.max_length}.')
    table = lambda name, rows: transformer.table(self, name, rows, self.width)
    words = table('words', self.vocab_size)
    places, kinds = table('positions', self.max_length), table('token_types', 2)
    x = words[tokens_BxL] + (places[:length] + kinds[:1])[None]
    x = transformer.norm('norm')(x)
    sizes = self.heads, 4 * self.width, KIND, self.dtype
    for i in range(self.depth):
      x = transformer.Block(*sizes, name=f'block_{i}')(x, tokens_BxL > 0)
    pool = precision.dense(self.width, self.dtype, name='pooler')
    x = jnp.tanh(pool(x[:, 0]))
    return precision.dense(self.num_classes, self.dtype, name='head')(x)
