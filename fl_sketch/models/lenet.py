"""Small convolutional networks."""

from typing import Any

from fl_sketch.models import layers
from fl_sketch.models.mlp import ACTIVATIONS
from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp


class LeNet5(nn.Module):
  """LeNet-5 with relu and max-pooling: 61,706 parameters on 28 x 28 x 1.

  LeCun, Bottou, Bengio and Haffner, Proc. IEEE 1998, modernised: the paper has
  tanh, trainable average pools and a sparsely connected second convolution. Any
  image with sides of the form 4 k will do: 83,126 parameters on 32 x 32 x 3.
  For `form`, of convolutions and pools, see `layers.conv2d`, for `dtype`
  `layers`.
  """

  num_classes: int
  form: layers.Form | None = None
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxHxWxC):
    """Returns the logits, f32[batch, num_classes]."""
    h_BxHxWxF = x_BxHxWxC
    options = {'form': self.form, 'dtype': self.dtype}
    for features, padding in ((6, 'SAME'), (16, 'VALID')):
      conv = layers.Conv(features, (5, 5), padding, **options)
      # The relu comes after the pool, on a quarter of the values: they commute.
      h_BxHxWxF = layers.max_pool(conv(h_BxHxWxF), form=self.form)
      h_BxHxWxF = jax.nn.relu(h_BxHxWxF)
    h_BxD = h_BxHxWxF.reshape(h_BxHxWxF.shape[0], -1)
    for width in (120, 84):
      h_BxD = jax.nn.relu(layers.dense(width, self.dtype)(h_BxD))
    return layers.dense(self.num_classes, self.dtype)(h_BxD)


class EmnistCNN(nn.Module):
  """Two 3 x 3 convolutions, a max-pool, a dense layer, and dropout.

  The network of FEMNIST, Reddi et al., arXiv:2003.00295, 1,206,590 parameters
  on 28 x 28 x 1 with 62 classes: `create_conv_dropout_model` of TensorFlow
  Federated's baselines. `dropout` are the rates after the pool and after the
  dense layer; for `form`, of convolutions and pool, see `layers.conv2d`, for
  `dtype` `layers`.
  """

  num_classes: int
  dropout: tuple[float, float] = (0.25, 0.5)
  form: layers.Form | None = None
  dtype: str = 'float32'

  def __post_init__(self):
    for rate in self.dropout:
      checks.zero_or_fraction('dropout', rate)
    super().__post_init__()

  @nn.compact
  def __call__(self, x_BxHxWxC, train: bool = False):
    """Returns the logits, f32[batch, num_classes]."""
    options = {'padding': 'VALID', 'form': self.form, 'dtype': self.dtype}
    h = jax.nn.relu(layers.Conv(32, (3, 3), **options)(x_BxHxWxC))
    h = layers.max_pool(layers.Conv(64, (3, 3), **options)(h), form=self.form)
    h = jax.nn.relu(h)  # after the pool, as in `LeNet5`
    early, late = (nn.Dropout(p, deterministic=not train) for p in self.dropout)
    h_BxD = early(h).reshape(h.shape[0], -1)
    h_BxD = late(jax.nn.relu(layers.dense(128, self.dtype)(h_BxD)))
    return layers.dense(self.num_classes, self.dtype)(h_BxD)


def _start(key, shape, dtype=jnp.float32):
  """U(-1/2, 1/2): large weights keep every layer's gradient informative."""
  return jax.random.uniform(key, shape, dtype, -0.5, 0.5)


class SmoothLeNet(nn.Module):
  """Three convolutions and a dense layer, without relu or pooling.

  Its gradient is a smooth function of its input, which attacks on gradients
  need: that of a relu network is piecewise linear in it. 13,426 parameters on
  28 x 28 x 1, 15,826 on 32 x 32 x 3. Source: the network, activation and
  start of Zhu, Liu and Han, Deep Leakage from Gradients, arXiv:1906.08935. The
  activation is one of `mlp.ACTIVATIONS`; for `form`, of the convolutions, see
  `layers.conv2d`, for `dtype` `layers`.
  """

  num_classes: int
  activation: str = 'sigmoid'
  form: layers.Form | None = None
  dtype: str = 'float32'

  def __post_init__(self):
    checks.choice('activation', self.activation, tuple(ACTIVATIONS))
    super().__post_init__()

  @nn.compact
  def __call__(self, x_BxHxWxC):
    """Returns the logits, f32[batch, num_classes]."""
    h_BxHxWxF = x_BxHxWxC
    uniform: dict[str, Any] = {'kernel_init': _start, 'bias_init': _start}
    options = {'form': self.form, 'dtype': self.dtype} | uniform
    for stride in (2, 2, 1):
      conv = layers.Conv(12, (5, 5), stride=stride, **options)
      h_BxHxWxF = ACTIVATIONS[self.activation](conv(h_BxHxWxF))
    h_BxD = h_BxHxWxF.reshape(h_BxHxWxF.shape[0], -1)
    return layers.dense(self.num_classes, self.dtype, **uniform)(h_BxD)
