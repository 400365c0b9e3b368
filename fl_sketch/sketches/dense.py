"""Dense sketches: R is generated a tile at a time, inside the product."""

from collections.abc import Callable

from fl_sketch.sketches import base, primitives
import jax
from jax import lax
import jax.numpy as jnp

TILE = 2**20  # entries of R that are held at a time


def from_tiles(
  stated: base.Properties, size: int,
  tile: Callable[[jax.Array, jax.Array], jax.Array],
) -> base.Sketch:  # fmt: skip
  """Make a `Sketch` of tile(key, counter uint32[n]) -> columns f32[size, n]."""
  step = max(TILE // size, 1)

  def columns(key, start, n, dtype):
    counter = jnp.uint32(start) + jnp.arange(n, dtype=jnp.uint32)
    return tile(key, counter).astype(dtype)

  def sketch(key, runs, vector):
    data = jax.random.key_data(key), *(run.x for run in runs)
    table = primitives.zeros((size,), vector.dtype, *data)
    for start, x in runs:

      def add(at, n, table, x=x, start=start):
        part = lax.dynamic_slice(x, (at,), (n,)).astype(vector.dtype)
        entries = columns(key, start + at, n, vector.dtype)
        return table + primitives.product(entries, part)

      table = primitives.fold(x.size, step, add, table)
    return table

  def desketch(key, table, spans, vector):
    def one_span(start, size, dtype):
      def read(at, n, out):
        entries = columns(key, start + at, n, table.dtype)
        part = primitives.product(table, entries)
        return lax.dynamic_update_slice(out, part.astype(dtype), (at,))

      out = primitives.zeros((size,), dtype, jax.random.key_data(key), table)
      return primitives.fold(size, step, read, out)

    return [one_span(*span) for span in spans]

  return base.from_runs(stated, size, sketch, desketch)
