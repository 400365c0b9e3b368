"""Multinomial logistic regression."""

from fl_sketch.models import precision
import flax.linen as nn


class Linear(nn.Module):
  """Softmax regression on the flattened input: params {'dense': ...}.

  With `losses.classification` it is convex; `gram.gram_sgd` knows its local
  steps in closed form. For `dtype` see `precision`.
  """

  num_classes: int
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x):
    """Returns the logits, f32[batch, num_classes]."""
    x_BxD = x.reshape(x.shape[0], -1)
    return precision.dense(self.num_classes, self.dtype, name='dense')(x_BxD)
