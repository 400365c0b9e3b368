"""Softmax regression and fully connected networks."""

from collections.abc import Sequence

from fl_sketch.models import layers
from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp

ACTIVATIONS = {
  'gelu': jax.nn.gelu, 'relu': jax.nn.relu, 'sigmoid': jax.nn.sigmoid,
  'softplus': jax.nn.softplus, 'tanh': jnp.tanh,
}  # fmt: skip


class Linear(nn.Module):
  """Softmax regression on the flattened input: params {'dense': ...}.

  With `losses.classification` it is convex; `gram.gram_sgd` knows its local
  steps in closed form. For `dtype` see `layers`.
  """

  num_classes: int
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x):
    """Returns the logits, f32[batch, num_classes]."""
    x_BxD = x.reshape(x.shape[0], -1)
    return layers.dense(self.num_classes, self.dtype, name='dense')(x_BxD)


class MLP(nn.Module):
  """Multi-layer perceptron on the flattened input.

  `widths` are units of each hidden layer; none makes it softmax regression. The
  activation is one of `ACTIVATIONS`; for `dtype` see `layers`.
  """

  num_classes: int
  widths: Sequence[int] = (64,)
  activation: str = 'relu'
  dtype: str = 'float32'

  def __post_init__(self):
    checks.choice('activation', self.activation, tuple(ACTIVATIONS))
    if any(width < 1 for width in self.widths):
      raise ValueError(f'widths={self.widths} must all be >= 1.')
    super().__post_init__()

  @nn.compact
  def __call__(self, x):
    """Returns the logits, f32[batch, num_classes]."""
    h_BxD = x.reshape(x.shape[0], -1)
    for width in self.widths:
      dense = layers.dense(width, self.dtype)
      h_BxD = ACTIVATIONS[self.activation](dense(h_BxD))
    return layers.dense(self.num_classes, self.dtype)(h_BxD)
