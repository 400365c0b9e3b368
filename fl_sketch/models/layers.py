"""Matrix products in bfloat16; convolution and pooling in the fastest form.

On a CPU, XLA is slow at convolutions in a loop or under `vmap`, and at the
gradient of `reduce_window`: both are copies and matrix products there.

A layer of dtype='bfloat16' rounds what it multiplies, forward and backward, and
nothing else; all arrays stay float32.
"""

from fl_sketch.utils import checks
import flax.linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

DTYPES = ('float32', 'bfloat16')
TILE = 5  # outputs of a row per product; LeNet-5 is fastest with 4 and 5


def matmul(x: jax.Array, y: jax.Array, dtype: str = 'float32') -> jax.Array:
  """Multiply f32[n, m] and f32[m, k] in `dtype`, accumulated in float32.

  Its gradient rounds operands as well. With 'bfloat16' ``jvp(grad(f))`` works,
  ``jvp(f)`` does not.
  """
  checks.choice('dtype', dtype, DTYPES)
  return x @ y if dtype == 'float32' else _narrow(x, y)


def dense(features: int, dtype: str = 'float32', **options) -> nn.Dense:
  """Return a `linen.Dense` layer that uses `matmul`; options are its fields."""
  if dtype == 'float32':
    return nn.Dense(features, **options)

  def product(x, kernel, *_, **__):  # of the last axis and the first
    y = matmul(x.reshape(-1, x.shape[-1]), kernel, dtype)
    return y.reshape(*x.shape[:-1], features)

  return nn.Dense(features, dot_general=product, **options)


def _product(x, y):
  x, y = x.astype(jnp.bfloat16), y.astype(jnp.bfloat16)
  return jnp.matmul(x, y, preferred_element_type=jnp.float32)


_narrow = jax.custom_vjp(_product)


def _narrow_forward(x, y):
  return _product(x, y), (x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))


def _narrow_backward(residuals, grad):
  x, y = residuals
  return _product(grad, y.T), _product(x.T, grad)


_narrow.defvjp(_narrow_forward, _narrow_backward)


def tiled() -> bool:
  """Return whether convolutions and pools are products and copies."""
  return jax.default_backend() == 'cpu'


def conv2d(
  x: jax.Array,
  kernel: jax.Array,
  padding: str = 'SAME',
  *,
  stride: int = 1,
  dtype: str = 'float32',
) -> jax.Array:
  """Convolve (cross-correlate) f32[batch, rows, cols, channels].

  The kernel is f32[height, width, channels, features], the result f32[batch,
  rows / stride, cols / stride, features], rounded up; smaller if 'VALID'.

  If `tiled`, neighbouring outputs of a row are one product with a banded
  matrix, which copies an input less often. Else XLA convolves, and in bfloat16
  rounds the complete sums as well.
  """
  strides = stride, stride
  if tiled():
    pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], strides, padding)
    x = jnp.pad(x, [(0, 0), *pads, (0, 0)])
    if stride > 1:
      return _conv_patches(x, kernel, stride, dtype)
    return _conv_tiles(x, kernel, dtype)
  axes = 'NHWC', 'HWIO', 'NHWC'
  checks.choice('dtype', dtype, DTYPES)
  a, b = x.astype(dtype), kernel.astype(dtype)
  y = lax.conv_general_dilated(a, b, strides, padding, dimension_numbers=axes)
  return y.astype(x.dtype)


def _conv_tiles(x_BxHxWxC, kernel, dtype):
  height, width, channels, features = kernel.shape
  batch, rows, cols, _ = x_BxHxWxC.shape
  rows_out, cols_out = rows - height + 1, cols - width + 1
  tile = max(t for t in range(1, TILE + 1) if cols_out % t == 0)
  width_in = tile + width - 1  # columns that the outputs of one tile see

  shift, column, output = np.ogrid[:width, :width_in, :tile]
  band = jnp.asarray(column == output + shift, kernel.dtype)
  matrix = jnp.einsum('jso,ijcf->iscof', band, kernel)
  matrix = matrix.reshape(height * width_in * channels, tile * features)

  starts = range(0, cols_out, tile)
  tiles = [x_BxHxWxC[:, :, j : j + width_in] for j in starts]
  shape = batch, rows, len(starts), width_in * channels
  strips = jnp.stack(tiles, axis=2).reshape(shape)
  shifts = [strips[:, i : i + rows_out] for i in range(height)]
  # One tall matrix: a product with more axes is lowered less well on CPU.
  tall = jnp.concatenate(shifts, axis=-1).reshape(-1, matrix.shape[0])
  y = matmul(tall, matrix, dtype)
  return y.reshape(batch, rows_out, cols_out, features)


def _conv_patches(x_BxHxWxC, kernel, stride, dtype):
  height, width, channels, features = kernel.shape
  _, rows, cols, _ = x_BxHxWxC.shape
  down, right = rows - height + 1, cols - width + 1
  shifts = [
    x_BxHxWxC[:, i : i + down : stride, j : j + right : stride]
    for i in range(height)
    for j in range(width)
  ]
  patches = jnp.concatenate(shifts, axis=-1)
  tall = patches.reshape(-1, height * width * channels)
  y = matmul(tall, kernel.reshape(-1, features), dtype)
  return y.reshape(*patches.shape[:3], features)


def max_pool(x: jax.Array) -> jax.Array:
  """Pool even rows and columns by the maximum of 2 x 2, with stride 2.

  The gradient goes to the first maximum alone, row by row: where all four are
  equal, as over a black background, the bias would else learn too fast.
  """
  _, rows, cols, _ = x.shape
  if rows % 2 or cols % 2:
    raise ValueError(f'{rows=} and {cols=} must be even.')
  if tiled():
    return _max_pool(x)
  window = (1, 2, 2, 1)
  return lax.reduce_window(x, -jnp.inf, lax.max, window, window, 'VALID')


def _windows(x_BxHxWxC):
  batch, rows, cols, channels = x_BxHxWxC.shape
  return x_BxHxWxC.reshape(batch, rows // 2, 2, cols // 2, 2, channels)


_largest = lambda x: _windows(x).max((2, 4))
_max_pool = jax.custom_vjp(_largest)


def _max_pool_forward(x):
  # Not through `_max_pool`: so jvp(grad) works, for Hessian-vector products.
  y = _largest(x)
  return y, (x, y)


def _max_pool_backward(residuals, grad):
  x, y = residuals
  corners = _windows(x)
  upper_left = corners[:, :, 0, :, 0] == y
  upper_right = (corners[:, :, 0, :, 1] == y) & ~upper_left
  lower_left = (corners[:, :, 1, :, 0] == y) & ~(upper_left | upper_right)
  lower_right = ~(upper_left | upper_right | lower_left)
  share = lambda chosen: jnp.where(chosen, grad, 0)
  upper = jnp.stack([share(upper_left), share(upper_right)], axis=3)
  lower = jnp.stack([share(lower_left), share(lower_right)], axis=3)
  return (jnp.stack([upper, lower], axis=2).reshape(x.shape),)


_max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def conv(
  features: int,
  side: int,
  padding: str = 'SAME',
  *,
  stride: int = 1,
  dtype: str = 'float32',
  **options,
) -> nn.Conv:
  """Return a square `linen.Conv` layer of `conv2d`; options are its fields."""

  def convolve(x, kernel, *_, **__):
    if x.ndim != 4:
      raise ValueError(f'{x.ndim=} must be 4.')
    if padding == 'VALID' and min(x.shape[1:3]) < side:
      raise ValueError(
        f'{x.shape[1]} x {x.shape[2]} numbers are fewer than a kernel of '
        f'{side} x {side}; use larger images, or another model.'
      )
    return conv2d(x, kernel, padding, stride=stride, dtype=dtype)

  sides = side, side
  return nn.Conv(features, sides, conv_general_dilated=convolve, **options)
