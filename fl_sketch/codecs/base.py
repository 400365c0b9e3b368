"""The type of codecs, codecs of one float32 vector, and of other parts."""

import abc
from collections.abc import Callable
import dataclasses
from typing import Any, TypeAlias

from fl_sketch import sketches
from fl_sketch.sketches import hashing
from fl_sketch.sketches.base import Like, leaf_type, wide_type
from fl_sketch.utils import fields
from fl_sketch.utils.types import Key, Payload, Tree
import jax
import jax.numpy as jnp

VECTOR = sketches.identity()  # flattens a tree, and back
Law: TypeAlias = Callable[[Like], float]  # of a tree, or of d


class Codec(abc.ABC):
  """An encoder and a decoder, which are called with the same key.

  As `sketches.Sketch`, a frozen dataclass of checked options.
  """

  def __post_init__(self):
    fields.check_options(self)

  @abc.abstractmethod
  def encode(self, key: Key, tree: Tree) -> Payload:
    """Return the payload of a tree: arrays in the dtypes of the wire."""

  @abc.abstractmethod
  def decode(self, key: Key, payload: Payload, like: Tree) -> Tree:
    """Return a tree of the shapes and dtypes of `like`: arrays, or types."""

  @property
  def omega(self) -> Law | None:
    """A constant with E decode = x, E||decode - x||^2 <= omega ||x||^2."""
    return None

  @property
  def contraction(self) -> Law | None:
    """A constant delta with E||x - decode||^2 <= (1 - delta) ||x||^2."""
    return None


def law(constant: Callable[..., float]) -> property:
  """Make `omega` or `contraction` of a function (codec, d) -> constant."""
  of = sketches.dimension
  return property(lambda self: lambda like: constant(self, of(like)))


class VectorCodec(Codec):
  """Base of codecs of all numbers of a tree, as float32."""

  @abc.abstractmethod
  def encode_vector(self, key: Key, x: jax.Array) -> Payload:
    """Return the payload of f32[d]."""

  @abc.abstractmethod
  def decode_vector(self, key: Key, payload: Payload, d: int) -> jax.Array:
    """Return f32[d]."""

  def encode(self, key, tree):
    x = VECTOR.sketch(key, tree).astype(jnp.float32)
    return self.encode_vector(key, x)

  def decode(self, key, payload, like):
    x = self.decode_vector(key, payload, sketches.dimension(like))
    return VECTOR.desketch(key, x, like)


@dataclasses.dataclass(frozen=True)
class SparseCodec(VectorCodec):
  """Base of codecs of k coordinates: ValueError unless 1 <= k <= d."""

  k: fields.Count

  def encode(self, key, tree):
    check_fits(self.k, sketches.dimension(tree))
    return super().encode(key, tree)


def check_fits(k: int, d: int, name: str = 'k', of: str = 'd'):
  """Raise ValueError if d is below k."""
  if k > d:
    raise ValueError(f'{name}={k} exceeds {of}={d}; use a smaller {name}.')


def largest(x: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
  """Return the k entries of largest magnitude on the last axis, and where."""
  at = jax.lax.top_k(jnp.abs(x), k)[1]
  return jnp.take_along_axis(x, at, -1), at


def scattered(d: int, values: jax.Array, at: jax.Array) -> jax.Array:
  """Return f32[d] with the values at these indices, 0 elsewhere."""
  return jnp.zeros(d, values.dtype).at[at].set(values)


def words(key: Key, n: int) -> jax.Array:
  """Return uint32[n], the random words with which numbers are rounded."""
  # Not jax.random.bits, which takes ten times as long.
  (seed,) = hashing.seeds(key, 1, hashing.ROUNDING)
  return hashing.word(jnp.arange(n, dtype=jnp.uint32), seed)


def uniform(key: Key, n: int) -> jax.Array:
  """Return f32[n] in [0, 1): the upper 24 bits of `words`."""
  return (words(key, n) >> 8).astype(jnp.float32) * 2.0**-24


def rows(x: jax.Array, width: int) -> jax.Array:
  """Cut f32[n] into rows of `width` numbers, or of n; zeros fill the last."""
  width = max(1, min(width, x.size))
  return jnp.pad(x, (0, -x.size % width)).reshape(-1, width)


def fraction(x: jax.Array, scale: jax.Array) -> jax.Array:
  """Return x / scale, or 0 where scale = 0, in which case x = 0."""
  # XLA may use the reciprocal, which underflows to 0 for a large scale.
  near = jnp.where(scale > 1, 2.0**-4, 1)
  return near * x / jnp.where(scale > 0, near * scale, 1)


@dataclasses.dataclass(frozen=True)
class identity(Codec):
  """No compression: the payload is the tree as it is; omega = 0, delta = 1."""

  omega = law(lambda self, d: 0.0)
  contraction = law(lambda self, d: 1.0)

  def encode(self, key, tree):
    return tree

  def decode(self, key, payload, like):
    cast = lambda x, t: jnp.asarray(x, leaf_type(t).dtype)
    return jax.tree.map(cast, payload, like)


@dataclasses.dataclass(frozen=True)
class contract(Codec):
  """Scale an unbiased codec by 1 / (1 + omega) =: delta, its contraction.

  The payload is the same; error feedback needs it. A biased codec raises
  ValueError.

  >>> from fl_sketch.codecs import rand_k
  >>> contract(rand_k(2)).contraction(8)
  0.25
  """

  codec: Codec

  def __post_init__(self):
    if self.codec.omega is None:
      raise ValueError(f'{self.codec=} must be unbiased.')

  @property
  def contraction(self):
    omega: Any = self.codec.omega  # not None: checked above
    return lambda like: 1 / (1 + omega(like))

  def encode(self, key, tree):
    return self.codec.encode(key, tree)

  def decode(self, key, payload, like):
    x = self.codec.decode(key, payload, jax.tree.map(wide_type, like))
    delta = self.contraction(like)
    scaled = lambda x, t: (delta * x).astype(leaf_type(t).dtype)
    return jax.tree.map(scaled, x, like)
