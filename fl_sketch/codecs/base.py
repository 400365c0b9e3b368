"""The type of codecs, and a tree as one float32 vector."""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.sketches.base import Like
from fl_sketch.utils.types import Key, Payload, Tree
import jax
import jax.numpy as jnp

VECTOR = sketches.identity()  # flattens a tree, and back


class Codec(NamedTuple):
  """An encoder and a decoder, which are called with the same key.

  Attributes:
    encode: (key, tree) -> payload, arrays in the dtypes of the wire.
    decode: (key, payload, like) -> tree of the shapes and dtypes of `like`
      (arrays or `jax.ShapeDtypeStruct`).
    name: name of the factory.
    omega: like -> a constant with E decode = x and E||decode - x||^2 <= omega
      ||x||^2 for every x; None if there is none.
    contraction: like -> delta in E||x - decode||^2 <= (1 - delta) ||x||^2 for
      every x; None if there is none.
  """

  encode: Callable[[Key, Tree], Payload]
  decode: Callable[[Key, Payload, Tree], Tree]
  name: str
  omega: Callable[[Like], float] | None
  contraction: Callable[[Like], float] | None


def of_vectors(
  name: str, encode: Callable[[Key, jax.Array], Payload],
  decode: Callable[[Key, Payload, int], jax.Array],
  omega: Callable[[int], float] | None = None,
  contraction: Callable[[int], float] | None = None, *, k: int = 0,
) -> Codec:  # fmt: skip
  """Make a codec of (key, f32[d]) -> payload and (key, payload, d) -> f32[d].

  Its functions raise ValueError if d is below k.
  """

  def encode_tree(key, tree):
    check_fits(k, sketches.dimension(tree))
    return encode(key, VECTOR.sketch(key, tree).astype(jnp.float32))

  def decode_tree(key, payload, like):
    d = sketches.dimension(like)
    check_fits(k, d)
    return VECTOR.desketch(key, decode(key, payload, d), like)

  of_like = lambda law: law and (lambda like: law(sketches.dimension(like)))
  laws = of_like(omega), of_like(contraction)
  return Codec(encode_tree, decode_tree, name, *laws)


def check_fits(k: int, d: int, name: str = 'k') -> None:
  """Raise ValueError if d is below k."""
  if k > d:
    raise ValueError(f'{name}={k} exceeds {d=}; use a smaller {name}.')


def largest(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Return the k entries of largest magnitude on the last axis, and where."""
  at = jax.lax.top_k(jnp.abs(x), k)[1]
  return jnp.take_along_axis(x, at, -1), at


def scattered(d: int, values: jax.Array, at: jax.Array) -> jax.Array:
  """Return f32[d] with the values at these indices, 0 elsewhere."""
  return jnp.zeros(d, values.dtype).at[at].set(values)


def fraction(x: jax.Array, scale: jax.Array) -> jax.Array:
  """Return x / scale, or 0 where scale = 0, in which case x = 0."""
  # XLA may use the reciprocal, which underflows to 0 for a large scale.
  near = jnp.where(scale > 1, 2.0**-4, 1)
  return near * x / jnp.where(scale > 0, near * scale, 1)
