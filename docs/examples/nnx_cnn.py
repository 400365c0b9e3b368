"""A convolutional model of flax nnx."""

from fl_sketch import models
from flax import nnx

from . import new


@models.register(name='own_cnn', hyper=('slope',), convolutional=True)
class OwnCNN(nnx.Module):
  """Two convolutions with leaky units, dropout, and a layer of logits."""

  def __init__(self, num_classes, *, slope: float = 0.1, rngs):
    self.slope = slope
    self.first = nnx.Conv(1, 8, (3, 3), rngs=rngs)
    self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
    self.dropout = nnx.Dropout(0.2, rngs=rngs)
    self.logits = nnx.Linear(16 * 4 * 4, num_classes, rngs=rngs)

  def __call__(self, x):
    """Returns logits f32[batch, num_classes]."""
    x = nnx.leaky_relu(self.first(x), self.slope)
    x = nnx.leaky_relu(self.second(x), self.slope)
    return self.logits(self.dropout(x.reshape(len(x), -1)))


def get_config():
  """SAFL on scikit-learn's digits, of 8 x 8 pixels."""
  c = new()
  c.model, c.model_options.slope = 'own_cnn', 0.1
  c.rounds, c.algorithm = 60, 'safl'
  c.server_optimizer, c.server_lr = 'adam', 0.01
  c.sketch.kind, c.sketch.size = 'block_cyclic', 512
  return c
