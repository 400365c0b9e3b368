"""ResNets with GroupNorm: He et al., arXiv:1512.03385, for small images."""

from collections.abc import Sequence

from fl_sketch.models import layers
from fl_sketch.utils import checks
import flax.linen as nn
import jax

GROUP = 8  # channels that GroupNorm norms together


class ResNet(nn.Module):
  """A residual network whose stages halve the image and double the channels.

  GroupNorm (arXiv:1803.08494) stands where the paper has BatchNorm, whose
  statistics of a client's own data have no mean over clients. The stem is one
  convolution of 3 x 3, as for CIFAR-10. With 10 classes and 3 colours 'resnet8'
  has 78,042 parameters, 'resnet18' 11,173,962 and 'resnet101' 42,512,970.
  Bottlenecks are of 1 x 1, 3 x 3, with the stride, and 1 x 1, to four times the
  channels. A `stem_stride` of 2 makes all that follows four times cheaper.
  """

  num_classes: int
  stages: Sequence[int] = (2, 2, 2, 2)  # blocks of each
  width: int = 64  # channels of the first stage, a multiple of 8
  bottleneck: bool = False  # whether blocks are bottlenecks
  stem_stride: int = 1
  form: layers.Form | None = None  # of convolutions, see `layers.conv2d`
  dtype: str = 'float32'  # of what is multiplied, see `layers`

  def __post_init__(self):
    if checks.count('width', self.width) % GROUP:
      raise ValueError(f'width={self.width} must be a multiple of {GROUP}.')
    super().__post_init__()

  @nn.compact
  def __call__(self, x_BxHxWxC):
    """Returns the logits, f32[batch, num_classes]."""
    h = self._conv(self.width, 3, self.stem_stride)(x_BxHxWxC)
    h = jax.nn.relu(_norm()(h))
    for i, blocks in enumerate(self.stages):
      for j in range(blocks):
        stride = 2 if i > 0 and j == 0 else 1
        h = self._block(h, self.width * 2**i, stride)
    return layers.dense(self.num_classes, self.dtype)(h.mean((1, 2)))

  def _block(self, x, features, stride):
    """The input plus two or three convolutions of it."""
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
    return layers.Conv(  # no bias: GroupNorm takes a constant away
      features, (side, side), stride=stride, use_bias=False, form=self.form,
      dtype=self.dtype,
    )  # fmt: skip


def _norm():
  return nn.GroupNorm(num_groups=None, group_size=GROUP)


class ResNet8(ResNet):
  """ResNet of three stages of one basic block, from 16 channels on."""

  stages: Sequence[int] = (1, 1, 1)
  width: int = 16


class ResNet18(ResNet):
  """ResNet of four stages of two basic blocks."""


class ResNet101(ResNet):
  """ResNet of four stages of 3, 4, 23 and 3 bottleneck blocks."""

  stages: Sequence[int] = (3, 4, 23, 3)
  bottleneck: bool = True
