"""LeNet-5: LeCun, Bottou, Bengio and Haffner, Proc. IEEE 1998, modernised."""

from fl_sketch.models import layers, precision
import flax.linen as nn
import jax


class LeNet5(nn.Module):
  """LeNet-5 with relu and max-pooling: 61,706 parameters on 28 x 28 x 1.

  Any image with sides of the form 4 k will do: 83,126 parameters on
  32 x 32 x 3. The paper has tanh, trainable average pools and a sparsely
  connected second convolution. For `form`, of convolutions and pools, see
  `layers.conv2d`, for `dtype` `precision`.
  """

  num_classes: int
  form: layers.Form | None = None
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BxHxWxC):
    """Returns the logits, f32[batch, num_classes]."""
    h_BxHxWxF = x_BxHxWxC
    for features, padding in ((6, 'SAME'), (16, 'VALID')):
      conv = layers.Conv(
        features, (5, 5), padding, form=self.form, dtype=self.dtype
      )
      # The relu comes after the pool, on a quarter of the values: they commute.
      h_BxHxWxF = layers.max_pool(conv(h_BxHxWxF), form=self.form)
      h_BxHxWxF = jax.nn.relu(h_BxHxWxF)
    h_BxD = h_BxHxWxF.reshape(h_BxHxWxF.shape[0], -1)
    for width in (120, 84):
      h_BxD = jax.nn.relu(precision.dense(width, self.dtype)(h_BxD))
    return precision.dense(self.num_classes, self.dtype)(h_BxD)
