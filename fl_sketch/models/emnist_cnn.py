"""The network of FEMNIST: Reddi et al., ICLR 2021, arXiv:2003.00295."""

from fl_sketch.models import layers, precision
from fl_sketch.utils import checks
import flax.linen as nn
import jax


class EmnistCNN(nn.Module):
  """Two 3 x 3 convolutions, a max-pool, a dense layer, and dropout.

  1,206,590 parameters on 28 x 28 x 1 with 62 classes. That of TensorFlow
  Federated's baselines for EMNIST, `create_conv_dropout_model`. `dropout` are
  the rates after the pool and after the dense layer; for `form`, of
  convolutions and pool, see `layers.conv2d`, for `dtype` `precision`.
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
    h_BxD = late(jax.nn.relu(precision.dense(128, self.dtype)(h_BxD)))
    return precision.dense(self.num_classes, self.dtype)(h_BxD)
