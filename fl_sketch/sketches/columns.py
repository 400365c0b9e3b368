"""Sparse sketches by the columns of R: a few signed buckets a coordinate."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fl_sketch.sketches import base, hashing, primitives
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

TILE = 2**18  # nonzeros of R that are hashed at a time


class Columns(NamedTuple):
  """A sparse matrix R[size, d], by hash functions of its columns."""

  nonzeros: int  # of each column, in distinct rows
  rows: Callable[[jax.Array], jax.Array]  # uint32[n] -> int32[nonzeros, n]
  signs: jax.Array  # uint32[ceil(nonzeros / 32), 2], seeds of the sign words

  def tile(self, start: jax.Array, n: int):
    """Rows int32[nonzeros, n] of n coordinates, and flip(x: f32[n], j)."""
    counter = jnp.uint32(start) + jnp.arange(n, dtype=jnp.uint32)
    words = jax.vmap(hashing.word, (None, 0))(counter, self.signs)
    word = lambda j: words[j // hashing.PLANES]
    flip = lambda x, j: hashing.flip(x, word(j), j % hashing.PLANES)
    return self.rows(counter), flip


def hashed(key: Key, nonzeros: int, rows: Callable) -> Columns:
  """`Columns` of hashed signs, their rows from pairwise independent words."""
  families = hashing.families(key, nonzeros, 2, hashing.BUCKET)
  signs = hashing.seeds(key, -(-nonzeros // hashing.PLANES), hashing.SIGN)
  words = jax.vmap(hashing.kwise, (None, 0))
  return Columns(nonzeros, lambda c: rows(words(c, families)), signs)


def sketch(
  columns: Columns, runs: Sequence[base.Segment], size: int, dtype: np.dtype
) -> jax.Array:
  """Return R x, f32[size]."""
  table = primitives.zeros((size,), dtype, columns.signs, *(x for _, x in runs))
  for start, x in runs:

    def add(at, n, table, x=x, start=start):
      rows, flip = columns.tile(start + at, n)
      part = lax.dynamic_slice(x, (at,), (n,)).astype(dtype)
      # One scatter of all nonzeros at once takes four times as long.
      one = lambda j, table: _add(table, rows[j], flip(part, j))
      return lax.fori_loop(0, columns.nonzeros, one, table)

    table = primitives.fold(x.size, _tile(columns, x.size), add, table)
  return table


def desketch(
  columns: Columns, table: jax.Array, spans: Sequence[base.Span],
  combine: Callable[[list[jax.Array]], Any],
) -> list[jax.Array]:  # fmt: skip
  """Combine, for each coordinate, the signed entries of its buckets."""

  def one_span(start, size, dtype):
    def read(at, n, out):
      rows, flip = columns.tile(start + at, n)
      one = lambda j: flip(table.at[rows[j]].get(mode='promise_in_bounds'), j)
      values = lax.map(one, jnp.arange(columns.nonzeros))
      part = combine(list(values)).astype(dtype)
      return lax.dynamic_update_slice(out, part, (at,))

    out = primitives.zeros((size,), dtype, columns.signs, table)
    return primitives.fold(size, _tile(columns, size), read, out)

  return [one_span(*span) for span in spans]


@primitives.lane_by_lane  # `vmap` of a scatter takes eight times as long a lane
def _add(table, rows, values):
  return table.at[rows].add(values, mode='promise_in_bounds')


def _tile(columns, n):
  # At least four passes: XLA would fuse the hashes of one into every lane's
  # scatter, and compute them again.
  return max(min(TILE // columns.nonzeros, n // 4), 1)
