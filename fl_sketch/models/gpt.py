"""GPT-2: Radford et al., Language models are unsupervised multitask learners.

https://github.com/openai/gpt-2, 2019.
"""

import functools
import math

from fl_sketch.models import transformer
from fl_sketch.models.decoder import Decoder
from fl_sketch.utils import checks
import flax.linen as nn
import jax

# gpt2 is the smallest published one; small is of its size, mini of nanoGPT's
# of characters; nano and micro are for experiments on a CPU.
SIZES = {
  'gpt_nano': dict(width=64, depth=2, heads=2),
  'gpt_micro': dict(width=96, depth=4, heads=3),
  'gpt_mini': dict(width=384, depth=6, heads=6),
  'gpt_small': dict(width=768, depth=12, heads=12),
  'gpt2': dict(width=768, depth=12, heads=12, vocab_size=50257, max_length=1024)
}  # fmt: skip
STD = 0.02  # of first kernels and vectors
EPSILON = 1e-5  # of LayerNorm


class GPT(Decoder):
  """A decoder of GPT-2's blocks: LayerNorm first, biases, tanh GELU.

  'gpt2' has 124,439,808 parameters. There is no dropout by default; GPT-2 was
  trained with 0.1. `max_length` positions are learned, for None as many as the
  first inputs have; or rotary, with the base `theta`, see `transformer.rotate`.
  Other options are those of `decoder.Decoder`.
  """

  max_length: int | None = None
  theta: float | None = None

  def __post_init__(self):
    if self.max_length is not None:
      checks.count('max_length', self.max_length)
    super().__post_init__()
    transformer.check_rotary(self.theta, self.width, self.heads)

  def kind(self, dropout: float) -> transformer.Kind:
    """Blocks of GPT-2; what is added starts the smaller, the deeper it is."""
    return transformer.Kind(
      norm=functools.partial(transformer.norm, epsilon=EPSILON),
      activation=functools.partial(jax.nn.gelu, approximate=True),
      causal=True, theta=self.theta, dropout=dropout,
      init=nn.initializers.normal(STD),
      init_out=nn.initializers.normal(STD / math.sqrt(2 * self.depth)),
    )  # fmt: skip

  def embed(self, x_BxLxD: jax.Array) -> jax.Array:
    """Adds the learned positions."""
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
