"""Feed-forward networks: linear, MLP, LeNets, the CNN of FEMNIST, ResNets.

All return logits, f32[batch, num_classes].
"""

from collections.abc import Sequence
import functools
from typing import Annotated, Any

from fl_sketch.models import layers
from fl_sketch.utils import fields
import flax.linen as nn
import jax
import jax.numpy as jnp

GROUP = 8  # channels that GroupNorm norms together
_norm = functools.partial(nn.GroupNorm, num_groups=None, group_size=GROUP)
ACTIVATIONS = {
  'gelu': jax.nn.gelu, 'relu': jax.nn.relu, 'sigmoid': jax.nn.sigmoid,
  'softplus': jax.nn.softplus, 'tanh': jnp.tanh,
}  # fmt: skip
Activation = Annotated[str, fields.choice(ACTIVATIONS)]
_GROUPED = fields.Rule(f'a multiple of {GROUP}', lambda x: x % GROUP == 0)
Width = Annotated[fields.Count, _GROUPED]
RESNET_SIZES = {
  'resnet8': dict(stages=(1, 1, 1), width=16),
  'resnet18': {},
  'resnet101': dict(stages=(3, 4, 23, 3), bottleneck=True),
}


class Linear(nn.Module):
  """Softmax regression on the flattened input: params {'dense': ...}."""

  num_classes: int
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x):
    x_BxD = x.reshape(x.shape[0], -1)
    return layers.dense(self.num_classes, self.dtype, name='dense')(x_BxD)


class MLP(nn.Module):
  """Multi-layer perceptron on the flattened input."""

  num_classes: int
  widths: Sequence[fields.Count] = (64,)  # units of each hidden layer
  activation: Activation = 'relu'
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x):
    h_BxD = x.reshape(x.shape[0], -1)
    for width in self.widths:
      h_BxD = layers.dense(width, self.dtype)(h_BxD)
      h_BxD = ACTIVATIONS[self.activation](h_BxD)
    return layers.dense(self.num_classes, self.dtype)(h_BxD)


class LeNet5(nn.Module):
  """LeNet-5 with relu and max-pooling: 61,706 parameters on 28 x 28 x 1.

  LeCun, Bottou, Bengio and Haffner, Proc. IEEE 1998, modernised: the paper has
  tanh, trainable average pools and a sparsely connected second convolution.
  Sides of an image must be multiples of 4.
  """

  num_classes: int
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxHxWxC):
    h = x_BxHxWxC
    for features, padding in ((6, 'SAME'), (16, 'VALID')):
      conv = layers.conv(features, 5, padding, dtype=self.dtype)
      # The relu comes after the pool, on a quarter of the values: they commute.
      h = jax.nn.relu(layers.max_pool(conv(h)))
    h_BxD = h.reshape(h.shape[0], -1)
    for width in (120, 84):
      h_BxD = jax.nn.relu(layers.dense(width, self.dtype)(h_BxD))
    return layers.dense(self.num_classes, self.dtype)(h_BxD)


class EmnistCNN(nn.Module):
  """Two 3 x 3 convolutions, a max-pool, a dense layer, and dropout.

  The network of FEMNIST, Reddi et al., arXiv:2003.00295, 1,206,590 parameters
  on 28 x 28 x 1 with 62 classes: `create_conv_dropout_model` of TensorFlow
  Federated's baselines.
  """

  num_classes: int
  # Rates after the pool and after the dense layer.
  dropout: tuple[fields.Share, fields.Share] = (0.25, 0.5)
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxHxWxC, train: bool = False):
    first, second = (
      layers.conv(features, 3, 'VALID', dtype=self.dtype)
      for features in (32, 64)
    )
    h = jax.nn.relu(first(x_BxHxWxC))
    h = jax.nn.relu(layers.max_pool(second(h)))  # as in `LeNet5`
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
  need. 13,426 parameters on 28 x 28 x 1. Source: Zhu, Liu and Han, Deep Leakage
  from Gradients, arXiv:1906.08935.
  """

  num_classes: int
  activation: Activation = 'sigmoid'
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxHxWxC):
    h = x_BxHxWxC
    options: dict[str, Any] = {'kernel_init': _start, 'bias_init': _start}
    options['dtype'] = self.dtype
    for stride in (2, 2, 1):
      conv = layers.conv(12, 5, stride=stride, **options)
      h = ACTIVATIONS[self.activation](conv(h))
    h_BxD = h.reshape(h.shape[0], -1)
    return layers.dense(self.num_classes, **options)(h_BxD)


class ResNet(nn.Module):
  """A residual network whose stages halve the image and double the channels.

  He et al., arXiv:1512.03385, for small images, with GroupNorm
  (arXiv:1803.08494) in place of BatchNorm, whose statistics have no mean over
  clients. The stem is one convolution of 3 x 3. With 10 classes and 3 colours
  'resnet8' has 78,042 parameters and 'resnet18' 11,173,962. Bottlenecks are of
  1 x 1, 3 x 3, with the stride, and 1 x 1, to four times the channels.
  """

  num_classes: int
  stages: Sequence[fields.Count] = (2, 2, 2, 2)  # blocks of each
  width: Width = 64  # channels of the first stage
  bottleneck: bool = False  # whether blocks are bottlenecks
  stem_stride: fields.Count = 1  # 2 makes all that follows four times cheaper
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  @nn.compact
  def __call__(self, x_BxHxWxC):
    h = self._conv(self.width, 3, self.stem_stride)(x_BxHxWxC)
    h = jax.nn.relu(_norm()(h))
    for i, blocks in enumerate(self.stages):
      for j in range(blocks):
        stride = 2 if i > 0 and j == 0 else 1
        h = self._block(h, self.width * 2**i, stride)
    return layers.dense(self.num_classes, self.dtype)(h.mean((1, 2)))

  def _block(self, x, features, stride):
    if self.bottleneck:
      plan = ((features, 1, 1), (features, 3, stride), (4 * features, 1, 1))
    else:
      plan = ((features, 3, stride), (features, 3, 1))
    h = x
    for i, (width, side, step) in enumerate(plan):
      h = _norm()(self._conv(width, side, step)(h))
      if i + 1 < len(plan):
        h = jax.nn.relu(h)
    if x.shape != h.shape:
      x = _norm()(self._conv(h.shape[-1], 1, stride)(x))
    return jax.nn.relu(x + h)

  def _conv(self, features, side, stride):
    return layers.conv(  # no bias: GroupNorm takes a constant away
      features, side, stride=stride, use_bias=False, dtype=self.dtype
    )
