"""Dense sketches: R is generated a tile at a time, inside the product."""

import abc
import dataclasses

from fl_sketch.sketches import base, hashing, primitives
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

TILE = 2**20  # entries of R that are held at a time
_SIGNS = 31  # in a word of `hashing.kwise`


class DenseSketch(base.SizedSketch):
  """Base of operators of O(b d) time: references for b up to about 10^3."""

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


@dataclasses.dataclass(frozen=True)
class gaussian(DenseSketch):
  r"""Sketch by independent normal entries, :math:`R_{ij} \sim N(0, 1 / b)`.

  Definition D.2 of Song et al., with b = `size` and `hashing.normal`.

  Guarantees, for words that are independent (`hashing.word`):
    second moment: E||desketch(sketch(x))||^2 = (1 + (d + 1) / b) ||x||^2.
    coordinate-wise constant 2: the variance of <h, R^T R g> is
      (||g||^2 ||h||^2 + <g, h>^2) / b.
  """

  def alpha(self, d):
    return (d + 1) / self.size

  def tile(self, key, counter):
    seeds = hashing.seeds(key, self.size, hashing.ENTRY)
    words = jax.vmap(hashing.word, (None, 0))(counter, seeds)
    return hashing.normal(words) * (1 / self.size) ** 0.5


@dataclasses.dataclass(frozen=True)
class ams(DenseSketch):
  r"""Sketch by a matrix of signs, :math:`R_{ij} = \pm 1 / \sqrt b`.

  The sketch of Alon, Matias and Szegedy (STOC 1996), Definition D.4 of Song et
  al., with b = `size`.

  Guarantees, proven: any four signs of a row, or of any two rows, are
  independent, as 31 rows are the bits of one word of `hashing.kwise`:
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1) / b) ||x||^2.
    coordinate-wise constant 2: the variance of <h, R^T R g> is (||g||^2
      ||h||^2 + <g, h>^2 - 2 sum_i g_i^2 h_i^2) / b.

  >>> op, x = ams(4), {'w': jnp.zeros(8).at[2].set(6.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> jnp.abs(table).tolist()
  [3.0, 3.0, 3.0, 3.0]
  """

  def alpha(self, d):
    return (d - 1) / self.size

  def tile(self, key, counter):
    groups = -(-self.size // _SIGNS)
    families = hashing.families(key, groups, 4, hashing.SIGN)
    words = jax.vmap(hashing.kwise, (None, 0))(counter, families)[:, None]
    plane = jnp.arange(1, 1 + _SIGNS, dtype=jnp.uint32)[None, :, None]
    shape = groups, _SIGNS, counter.size
    scale = jnp.full(shape, self.size**-0.5, jnp.float32)
    signs = hashing.flip(scale, words, plane)  # bit 31 is never set
    return signs.reshape(-1, counter.size)[: self.size]
