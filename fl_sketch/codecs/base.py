"""What a codec is, and a tree as one vector of float32."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import sketches
import jax
import jax.numpy as jnp

Tree = Any
Payload = Any
VECTOR = sketches.identity()  # a tree's numbers in a row, and back


class Codec(NamedTuple):
  """Pure functions of one encoding; clients that share a key share its draw.

  The laws are functions of the number of coordinates d, or of a tree of them.

  Attributes:
    encode: (key, tree) -> payload, arrays in the dtypes of the wire.
    decode: (key, payload, like) -> tree of the shapes and dtypes of `like`
      (arrays or `jax.ShapeDtypeStruct`); by the key of `encode`.
    name: of the factory.
    omega: d -> a constant with E decode = x and E||decode - x||^2 <= omega
      ||x||^2 for every x; None if the codec is biased.
    contraction: d -> delta in E||x - decode||^2 <= (1 - delta) ||x||^2 for
      every x; None where there is none or none is stated.
  """

  encode: Callable[[jax.Array, Tree], Payload]
  decode: Callable[[jax.Array, Payload, Tree], Tree]
  name: str
  omega: Callable[[Any], float] | None
  contraction: Callable[[Any], float] | None


def flat(key: jax.Array, tree: Tree) -> jax.Array:
  """A tree's numbers in a row: f32[d]."""
  return VECTOR.sketch(key, tree).astype(jnp.float32)


def fraction(x: jax.Array, scale: jax.Array) -> jax.Array:
  """The fraction x / scale, where scale = 0 means that x is."""
  # XLA may take the reciprocal, which is 0 if it is below all normal numbers.
  near = jnp.where(scale > 1, 2.0**-4, 1)
  return near * x / jnp.where(scale > 0, near * scale, 1)
