"""Dense sketches: R is generated a tile at a time, inside the product."""

import abc

from fl_sketch.sketches import base, primitives
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

TILE = 2**20  # entries of R that are held at a time


class DenseSketch(base.SizedSketch):
  """Base of operators that compute some columns of R at a time."""

  @abc.abstractmethod
  def tile(self, key: Key, counter: jax.Array) -> jax.Array:
    """Return the columns f32[size, n] of coordinates uint32[n]."""

  def _columns(self, key: Key, start: jax.Array, n: int, dtype: np.dtype):
    counter = jnp.uint32(start) + jnp.arange(n, dtype=jnp.uint32)
    return self.tile(key, counter).astype(dtype)

  def sketch_runs(self, key, runs, vector):
    data = jax.random.key_data(key), *(run.x for run in runs)
    table = primitives.zeros((self.size,), vector.dtype, *data)
    for start, x in runs:

      def add(at, n, table, x=x, start=start):
        part = lax.dynamic_slice(x, (at,), (n,)).astype(vector.dtype)
        entries = self._columns(key, start + at, n, vector.dtype)
        return table + primitives.product(entries, part)

      table = primitives.fold(x.size, max(TILE // self.size, 1), add, table)
    return table

  def desketch_spans(self, key, table, spans, vector):
    def one_span(start, size, dtype):
      def read(at, n, out):
        entries = self._columns(key, start + at, n, table.dtype)
        part = primitives.product(table, entries)
        return lax.dynamic_update_slice(out, part.astype(dtype), (at,))

      out = primitives.zeros((size,), dtype, jax.random.key_data(key), table)
      return primitives.fold(size, max(TILE // self.size, 1), read, out)

    return [one_span(*span) for span in spans]
