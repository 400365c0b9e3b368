"""LeNet with smooth activations: Zhu, Liu and Han, NeurIPS 2019."""

from typing import Any

from fl_sketch.models import layers, precision
from fl_sketch.models.mlp import ACTIVATIONS
from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp


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
  `layers.conv2d`, for `dtype` `precision`.
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
    return precision.dense(self.num_classes, self.dtype, **uniform)(h_BxD)
