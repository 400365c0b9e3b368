"""Multinomial logistic regression."""

import flax.linen as nn


class Linear(nn.Module):
  """Softmax regression on the flattened input: params {'dense': ...}.

  With `losses.classification` it is convex; `gram.gram_sgd` knows its local
  steps in closed form.

  Attributes:
    num_classes: number of logits.
  """

  num_classes: int

  @nn.compact
  def __call__(self, x):
    """Returns the logits, f32[batch, num_classes]."""
    x_BxD = x.reshape(x.shape[0], -1)
    return nn.Dense(self.num_classes, name='dense')(x_BxD)
