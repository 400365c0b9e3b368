"""Random signs on all coordinates: the first step of every fast transform."""

from collections.abc import Callable, Sequence
from typing import Any

from fl_sketch.sketches import base, hashing, primitives
import jax
from jax import lax
import jax.numpy as jnp

_TILE = 2**18


def fill(
  key: jax.Array, runs: Sequence[base.Segment], n: int, dtype: Any
) -> jax.Array:
  """Return the signed coordinates of a tree, with zeros up to n: f32[n].

  The loop over tiles makes the only copy that there is, and keeps the hashes
  out of the transform that follows: fused into its first butterflies they would
  be computed again by every read of every output, twenty times slower. So it
  has several passes whatever the size, as a loop of one is no loop to XLA.
  """
  (seed,) = hashing.seeds(key, 1, hashing.SIGN)
  out = primitives.zeros((n,), dtype, seed, *[run.x for run in runs])
  for start, x in runs:

    def put(at, size, out, x=x, start=start):
      part = lax.dynamic_slice(x, (at,), (size,)).astype(dtype)
      part = hashing.flip(part, _words(seed, start + at, size), 0)
      return lax.dynamic_update_slice(out, part, (start + at,))

    out = primitives.fold(x.size, max(min(x.size // 4, _TILE), 1), put, out)
  return out


def read(
  key: jax.Array, x: jax.Array, spans: Sequence[base.Span]
) -> list[jax.Array]:
  """Return the adjoint of `fill`: signs again, and the first d of n numbers."""
  (seed,) = hashing.seeds(key, 1, hashing.SIGN)

  def one_span(start, size, dtype):
    part = x[start : start + size]
    return hashing.flip(part, _words(seed, start, size), 0).astype(dtype)

  return [one_span(*span) for span in spans]


def of_padded(padded: Callable[[int], int]) -> Callable[[Callable], Callable]:
  """Turn a constant (d, n) -> c, for n = padded(d), into one of d or a tree.

  >>> of_padded(lambda d: 2 * d)(lambda d, n: n - d)(3)
  3
  """
  d = base.dimension
  return lambda constant: lambda like: constant(d(like), padded(d(like)))


def _words(seed, start, size):
  counter = jnp.uint32(start) + jnp.arange(size, dtype=jnp.uint32)
  return hashing.word(counter, seed)
