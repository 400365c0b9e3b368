"""Sparse sketches by the columns of R: a few signed buckets a coordinate."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

from fl_sketch.sketches import base
from fl_sketch.sketches import hashing
import jax
from jax import lax
import jax.numpy as jnp

# Nonzeros of R that are hashed at a time: what is held beside the table.
TILE = 2**18


class Columns(NamedTuple):
  """A matrix R[size, d] that is never held.

  Attributes:
    nonzeros: of each column, in distinct rows.
    rows: counter uint32[n] -> int32[nonzeros, n], the rows that are not zero.
    signs: uint32[ceil(nonzeros / 32), 2], seeds of the sign words.
  """

  nonzeros: int
  rows: Callable[[jax.Array], jax.Array]
  signs: jax.Array

  def flip(self, counter: jax.Array, x: jax.Array) -> jax.Array:
    """Multiplies f32[nonzeros, n] by the signs of the nonzeros."""
    words = jax.vmap(hashing.word, (None, 0))(counter, self.signs)
    row = jnp.arange(self.nonzeros)
    planes = jnp.uint32(row % hashing.PLANES)[:, None]
    return hashing.flip(x, words[row // hashing.PLANES], planes)


def sketch(
  columns: Columns, runs: Sequence[base.Run], size: int, dtype: object
) -> jax.Array:
  """The product R x, for R of signs: f32[size]."""
  xs = [run.x for run in runs]
  table = base.zeros((size,), dtype, columns.signs, *xs)
  for start, x in runs:

    def add(at, n, table, x=x, start=start):
      counter = jnp.uint32(start + at) + jnp.arange(n, dtype=jnp.uint32)
      part = lax.dynamic_slice(x, (at,), (n,)).astype(dtype)[None]
      part = jnp.broadcast_to(part, (columns.nonzeros, n))
      signed = columns.flip(counter, part)
      rows = columns.rows(counter)
      return table.at[rows].add(signed, mode='promise_in_bounds')

    table = base.fold(x.size, _tile(columns), add, table)
  return table


def desketch(
  columns: Columns,
  table: jax.Array,
  spans: Sequence[base.Span],
  combine: Callable[[list[jax.Array]], jax.Array],
) -> list[jax.Array]:
  """What `combine` makes of the signed entries that each coordinate meets."""

  def one_span(start, size, dtype):
    def read(at, n, out):
      counter = jnp.uint32(start + at) + jnp.arange(n, dtype=jnp.uint32)
      part = table.at[columns.rows(counter)].get(mode='promise_in_bounds')
      part = combine(list(columns.flip(counter, part)))
      return lax.dynamic_update_slice(out, part.astype(dtype), (at,))

    out = base.zeros((size,), dtype, columns.signs, table)
    return base.fold(size, _tile(columns), read, out)

  return [one_span(*span) for span in spans]


def _tile(columns):
  return max(TILE // columns.nonzeros, 1)
