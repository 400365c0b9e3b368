"""Matrix products of bfloat16 operands with float32 accumulation.

A layer of dtype='bfloat16' rounds what it multiplies, forward and backward, and
nothing else: sums, biases, activations, logits, gradients and parameters are
float32. The products are where the time goes, and where narrow numbers do. To
cast parameters and inputs would be shorter, but then every sum over a batch and
every gradient would be bfloat16 as well.
"""

from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp

DTYPES = ('float32', 'bfloat16')


def operand(x: jax.Array, dtype: str) -> jax.Array:
  """Casts an operand to bfloat16; unchanged for 'float32'."""
  checks.choice('dtype', dtype, DTYPES)
  return x.astype(jnp.bfloat16) if dtype == 'bfloat16' else x


def matmul(x: jax.Array, y: jax.Array, dtype: str = 'float32') -> jax.Array:
  """Matrix product of operands in `dtype`, accumulated in float32.

  Of x, f32[n, m], and y, f32[m, k], it is f32[n, k]. Those of its gradient are
  bfloat16 as well. It can be differentiated backward, and the result in any
  way, but not forward at once: ``jvp(grad(f))`` works, ``jvp(f)`` does not. A
  dtype that is not of `DTYPES` is a ValueError.

  >>> x = jnp.full((2, 3), 1 + 2**-9)
  >>> float(matmul(x, x.T, 'bfloat16')[0, 0]), float(matmul(x, x.T)[0, 0]) > 3
  (3.0, True)
  """
  checks.choice('dtype', dtype, DTYPES)
  return x @ y if dtype == 'float32' else _narrow(x, y)


def dense(features: int, dtype: str = 'float32', **options) -> nn.Dense:
  """A `linen.Dense` layer that uses `matmul`; options are its fields."""
  if dtype == 'float32':
    return nn.Dense(features, **options)

  def product(x, kernel, *_, **__):  # of the last axis and the first
    y = matmul(x.reshape(-1, x.shape[-1]), kernel, dtype)
    return y.reshape(*x.shape[:-1], features)

  return nn.Dense(features, dot_general=product, **options)


def _product(x, y):
  x, y = operand(x, 'bfloat16'), operand(y, 'bfloat16')
  return jnp.matmul(x, y, preferred_element_type=jnp.float32)


@jax.custom_vjp
def _narrow(x, y):
  return _product(x, y)


def _narrow_forward(x, y):
  return _product(x, y), (operand(x, 'bfloat16'), operand(y, 'bfloat16'))


def _narrow_backward(residuals, grad):
  x, y = residuals
  return _product(grad, y.T), _product(x.T, grad)


_narrow.defvjp(_narrow_forward, _narrow_backward)
