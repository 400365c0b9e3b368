"""Random signs on all coordinates: the first step of every fast transform."""

from collections.abc import Sequence

from fl_sketch.sketches import base, hashing, primitives
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

_TILE = 2**18


def fill(
  key: Key, runs: Sequence[base.Segment], n: int, dtype: np.dtype
) -> jax.Array:
  """Return the signed coordinates of a tree, with zeros up to n: f32[n]."""
  # A loop of several passes: XLA would fuse the hashes into the transform that
  # follows, and compute them again for every output.
  (seed,) = hashing.seeds(key, 1, hashing.SIGN)
  out = primitives.zeros((n,), dtype, seed, *[run.x for run in runs])
  for start, x in runs:

    def put(at, size, out, x=x, start=start):
      part = lax.dynamic_slice(x, (at,), (size,)).astype(dtype)
      part = signed(seed, start + at, part)
      return lax.dynamic_update_slice(out, part, (start + at,))

    out = primitives.fold(x.size, max(min(x.size // 4, _TILE), 1), put, out)
  return out


def read(key: Key, x: jax.Array, spans: Sequence[base.Span]) -> list[jax.Array]:
  """Return the adjoint of `fill`: signs again, and the first d of n numbers."""
  (seed,) = hashing.seeds(key, 1, hashing.SIGN)
  part = lambda s: signed(seed, s.start, x[s.start : s.start + s.size])
  return [part(span).astype(span.dtype) for span in spans]


def signed(seed: jax.Array, start: ArrayLike, x: jax.Array) -> jax.Array:
  """Multiply the numbers from coordinate `start` on by their signs."""
  counter = jnp.uint32(start) + jnp.arange(x.size, dtype=jnp.uint32)
  return hashing.flip(x, hashing.word(counter, seed).reshape(x.shape), 0)
