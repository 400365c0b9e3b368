"""The type of codecs, and a tree as one float32 vector."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.utils import display
import jax
import jax.numpy as jnp

Tree = Any
Payload = Any
VECTOR = sketches.identity()  # flattens a tree, and back


@display.shown('name', 'omega', 'contraction')
class Codec(NamedTuple):
  """An encoder and a decoder; clients that share a key share the random draw.

  The laws are functions of the number of coordinates d, or of a tree.

  Attributes:
    encode: (key, tree) -> payload, arrays in the dtypes of the wire.
    decode: (key, payload, like) -> tree of the shapes and dtypes of `like`
      (arrays or `jax.ShapeDtypeStruct`); by the key of `encode`.
    name: of the factory.
    omega: d -> a constant with E decode = x and E||decode - x||^2 <= omega
      ||x||^2 for every x; None if the codec is biased, or its error is not
      in proportion to x.
    contraction: d -> delta in E||x - decode||^2 <= (1 - delta) ||x||^2 for
      every x; None where there is none or none is stated.
  """

  encode: Callable[[jax.Array, Tree], Payload]
  decode: Callable[[jax.Array, Payload, Tree], Tree]
  name: str
  omega: Callable[[Any], float] | None
  contraction: Callable[[Any], float] | None


def flat(key: jax.Array, tree: Tree) -> jax.Array:
  """Flatten a tree to f32[d]."""
  return VECTOR.sketch(key, tree).astype(jnp.float32)


def check_fits(k: int, like: Any, name: str = 'k') -> int:
  """Return d; ValueError if it is below k."""
  if k > (d := sketches.dimension(like)):
    raise ValueError(f'{name}={k} exceeds {d=}; use a smaller {name}.')
  return d


def fraction(x: jax.Array, scale: jax.Array) -> jax.Array:
  """X / scale, or 0 where scale = 0, in which case x = 0."""
  # XLA may use the reciprocal, which underflows to 0 for a large scale.
  near = jnp.where(scale > 1, 2.0**-4, 1)
  return near * x / jnp.where(scale > 0, near * scale, 1)
