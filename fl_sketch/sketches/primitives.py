"""Parts of the operators' kernels: loops over tiles and lanes, products."""

from collections.abc import Callable
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp


def zeros(shape: tuple[int, ...], dtype: Any, *data: jax.Array) -> jax.Array:
  """Make zeros whose type varies over the mesh axes of `data`.

  What a loop carries must have one type from the first pass on. The values are
  never read, so that an infinite one does no harm.
  """
  firsts = [jnp.ravel(x)[0].astype(dtype) for x in data]
  zero = sum(jnp.where(False, first, 0) for first in firsts)
  return jnp.full(shape, zero, dtype)


def fold(
  n: int, tile: int, body: Callable[[Any, int, Any], Any], carry: Any
) -> Any:
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
  """The matrix product, whose factors accelerators do not round to bfloat16.

  >>> product(jnp.eye(2), jnp.ones((2, 1))).tolist()
  [[1.0], [1.0]]
  """
  return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def lane_by_lane(fn: Callable[..., Any]) -> Callable[..., Any]:
  """The same function of arrays, whose `vmap` on a CPU is a loop over lanes.

  A CPU's cache often holds what one lane reads and writes, not that of all. On
  other devices and under derivatives `vmap` is as ever: loops lack a transpose.

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
