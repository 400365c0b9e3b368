"""Convolution and pooling in the form that is fast on the backend at hand.

On a CPU, a convolution inside a loop or under `vmap` misses XLA's fast kernels,
and the backward pass of `reduce_window` costs more than the layer. There both
are written with copies and matrix products; elsewhere they are what `lax` has.
"""

import flax.linen as nn
import jax
from jax import lax
import jax.numpy as jnp

FORMS = ('patches', 'lax')
PADDINGS = ('SAME', 'VALID')


def pick_form(form: str | None = None) -> str:
  """Returns `form`, or the backend's own when it is None.

  The only place that knows which form is for which backend.
  """
  if form is None:
    return 'patches' if jax.default_backend() == 'cpu' else 'lax'
  if form not in FORMS:
    raise ValueError(f'Expected {form=} in {FORMS}.')
  return form


def conv2d(
  x: jax.Array,
  kernel: jax.Array,
  padding: str = 'SAME',
  *,
  form: str | None = None,
) -> jax.Array:
  """Convolution of stride 1 (in fact a correlation, as everywhere).

  Both forms are the same function, and both can be differentiated any number
  of times. 'patches' holds height x width copies of `x`, made in two rounds of
  shifts: as many copies as height + width, not as height x width.

  >>> x, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((5, 5, 3, 4))
  >>> conv2d(x, kernel, 'SAME').shape, conv2d(x, kernel, 'VALID').shape
  ((2, 8, 8, 4), (2, 4, 4, 4))

  Args:
    x: f32[batch, rows, cols, channels].
    kernel: f32[height, width, channels, features].
    padding: 'SAME' or 'VALID'.
    form: 'patches' or 'lax'; by default the backend's.

  Returns:
    f32[batch, rows, cols, features], fewer rows and columns if 'VALID'.
  """
  if padding not in PADDINGS:
    raise ValueError(f'Expected {padding=} in {PADDINGS}.')
  if pick_form(form) == 'patches':
    return _conv_patches(x, kernel, padding)
  return lax.conv_general_dilated(
    x, kernel, (1, 1), padding, dimension_numbers=('NHWC', 'HWIO', 'NHWC')
  )


def _conv_patches(x_BxHxWxC, kernel, padding):
  height, width, channels, features = kernel.shape
  if padding == 'SAME':
    # An even kernel reaches one further down and right, as lax pads it.
    pads = [((k - 1) // 2, k // 2) for k in (height, width)]
    x_BxHxWxC = jnp.pad(x_BxHxWxC, [(0, 0), *pads, (0, 0)])
  batch, rows, cols, _ = x_BxHxWxC.shape
  rows, cols = rows - height + 1, cols - width + 1
  shifts = [x_BxHxWxC[:, :, j : j + cols] for j in range(width)]
  strips = jnp.concatenate(shifts, axis=-1)
  shifts = [strips[:, i : i + rows] for i in range(height)]
  patches_BxHxWxP = jnp.concatenate(shifts, axis=-1)
  kernel_PxF = kernel.reshape(height * width * channels, features)
  # One tall matrix: a product with four axes is lowered less well on CPU.
  flat = patches_BxHxWxP.reshape(batch * rows * cols, -1) @ kernel_PxF
  return flat.reshape(batch, rows, cols, features)


def max_pool(x: jax.Array, *, form: str | None = None) -> jax.Array:
  """Maximum over windows of 2 x 2, stride 2.

  Ties are common before the relu: over a black background all four values of
  a window equal the bias. The shares of the window's gradient must then sum to
  one, or the bias would learn four times too fast. 'patches' gives each tied
  maximum an equal share (as `jnp.max` does), 'lax' gives all to the first;
  both are subgradients.

  >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0]
  Array([[ 5.,  7.],
         [13., 15.]], dtype=float32)

  Args:
    x: f32[batch, rows, cols, channels], with even rows and cols.
    form: 'patches' or 'lax'; by default the backend's.

  Returns:
    f32[batch, rows / 2, cols / 2, channels].
  """
  _, rows, cols, _ = x.shape
  if rows % 2 or cols % 2:
    raise ValueError(f'Expected even {rows=} and {cols=}.')
  if pick_form(form) == 'patches':
    return _max_pool(x)
  window = (1, 2, 2, 1)
  return lax.reduce_window(x, -jnp.inf, lax.max, window, window, 'VALID')


def _windows(x_BxHxWxC):
  batch, rows, cols, channels = x_BxHxWxC.shape
  return x_BxHxWxC.reshape(batch, rows // 2, 2, cols // 2, 2, channels)


@jax.custom_vjp
def _max_pool(x):
  return _windows(x).max((2, 4))


def _max_pool_forward(x):
  # Not through `_max_pool`: so jvp(grad) works, for Hessian-vector products.
  y = _windows(x).max((2, 4))
  return y, (x, y)


def _max_pool_backward(residuals, grad):
  x, y = residuals
  tied = _windows(x) == y[:, :, None, :, None]
  share = grad / tied.sum((2, 4), dtype=grad.dtype)
  out = jnp.where(tied, share[:, :, None, :, None], 0)
  return (out.reshape(x.shape),)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


class Conv(nn.Module):
  """Stride-1 convolution with a bias, initialised like `linen.Conv`.

  Attributes:
    features: number of output channels.
    kernel_size: height and width.
    padding: 'SAME' or 'VALID'.
    form: see `conv2d`.
  """

  features: int
  kernel_size: tuple[int, int]
  padding: str = 'SAME'
  form: str | None = None

  @nn.compact
  def __call__(self, x_BxHxWxC):
    """Returns f32[batch, rows, cols, features]."""
    shape = (*self.kernel_size, x_BxHxWxC.shape[-1], self.features)
    kernel = self.param('kernel', nn.initializers.lecun_normal(), shape)
    bias = self.param('bias', nn.initializers.zeros, (self.features,))
    y_BxHxWxF = conv2d(x_BxHxWxC, kernel, self.padding, form=self.form)
    return y_BxHxWxF + bias.reshape(1, 1, 1, -1)
