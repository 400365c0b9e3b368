"""Parts of the operators' kernels: loops over tiles and lanes, products."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.custom_batching
import jax.numpy as jnp

Carry = TypeVar('Carry')
Result = TypeVar('Result')


def zeros(
  shape: tuple[int, ...], dtype: jax.typing.DTypeLike, *data: jax.Array
) -> jax.Array:
  """Return zeros whose type varies over the mesh axes of `data`: a carry."""
  firsts = [jnp.ravel(x)[0].astype(dtype) for x in data]
  zero = sum(jnp.where(False, first, 0) for first in firsts)
  return jnp.full(shape, zero, dtype)


def fold(
  n: int, tile: int, body: Callable[[jax.Array | int, int, Carry], Carry],
  carry: Carry,
) -> Carry:  # fmt: skip
  """Run body(start, size, carry) over [0, n) in tiles, the last one shorter.

  >>> int(fold(5, 2, lambda start, size, c: c + 10 * start + size, 0))
  65
  """
  full, rest = divmod(n, tile)
  if full:
    step = lambda i, c: body(i * tile, tile, c)
    carry = jax.lax.fori_loop(0, full, step, carry)
  return body(full * tile, rest, carry) if rest else carry


def product(a: jax.typing.ArrayLike, b: jax.typing.ArrayLike) -> jax.Array:
  """Return the matrix product, without rounding to bfloat16 on accelerators."""
  return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def lane_by_lane(fn: Callable[..., Result]) -> Callable[..., Result]:
  """Make `vmap` of a function a loop on a CPU, whose cache holds one lane.

  On other devices and under derivatives `vmap` is as ever: loops lack a
  transpose.

  >>> square = lane_by_lane(lambda x: x**2)
  >>> jax.vmap(square)(jnp.arange(3.0)).tolist()
  [0.0, 1.0, 4.0]
  """
  loop = jax.custom_batching.sequential_vmap(fn)

  @jax.custom_jvp
  def call(*args):
    return jax.lax.platform_dependent(*args, cpu=loop, default=fn)

  @call.defjvp
  def jvp(primals, tangents):
    return jax.jvp(fn, primals, tangents)

  return call
