"""Sparse embeddings: a fixed number of signed nonzeros in every column."""

import dataclasses
from typing import Annotated

from fl_sketch.sketches import base, columns, hashing, primitives
from fl_sketch.utils import fields
from jax import lax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class sparse_embedding(base.SizedSketch):
  r"""OSNAP of Nelson and Nguyen (FOCS 2013), of kind 'I' or 'II'.

  Every column of R has s = `sparsity` entries :math:`\pm 1 / \sqrt s`: in
  distinct uniform rows (kind 'I'), or one in each of s bands of b / s rows
  (kind 'II'). Definitions D.6 and D.7 of Song et al.

  Guarantees, for pairwise independent buckets and independent signs
  (`hashing.kwise`, `hashing.word`):
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1) / b) ||x||^2, for
      every s; a larger s brings lighter tails.
    coordinate-wise constant 2.

  >>> import jax
  >>> op, x = sparse_embedding(8, 4), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> float(op.desketch(jax.random.key(0), table, x)['w'][3])
  9.0

  Tables are f32[size]. Buckets of kind 'I' cost s^2 comparisons a coordinate.
  Raises ValueError if an argument is below 1, sparsity exceeds or (kind 'II')
  does not divide size, size exceeds d, or there is no such kind.
  """

  sparsity: fields.Count
  _: dataclasses.KW_ONLY
  kind: Annotated[str, fields.choice(('I', 'II'))] = 'II'

  def __post_init__(self):
    super().__post_init__()
    size, sparsity = self.size, self.sparsity
    if sparsity > size:
      raise ValueError(f'{sparsity=} exceeds {size=}; use a smaller one.')
    if self.kind == 'II' and size % sparsity:
      raise ValueError(f'{sparsity=} must divide {size=}.')

  def alpha(self, d):
    return (d - 1) / self.size

  def sketch_runs(self, key, runs, vector):
    table = columns.sketch(self._columns(key), runs, self.size, vector.dtype)
    return self.sparsity**-0.5 * table

  def desketch_spans(self, key, table, spans, vector):
    matrix = self._columns(key)
    return columns.desketch(matrix, self.sparsity**-0.5 * table, spans, sum)

  def _columns(self, key):
    rows = _distinct if self.kind == 'I' else _banded
    return columns.hashed(key, self.sparsity, lambda w: rows(w, self.size))


def _banded(words, size):
  band = size // len(words)
  start = band * jnp.arange(len(words), dtype=jnp.int32)[:, None]
  return start + hashing.bucket(words, band)


def _distinct(words, size):
  """Floyd's sampling without replacement (CACM 1987)."""
  s = len(words)
  step = jnp.arange(s, dtype=jnp.int32)[:, None]

  def draw(j, rows):
    limit = size - s + j
    row = (words[j] % (limit + 1).astype(jnp.uint32)).astype(jnp.int32)
    repeated = ((rows == row[None]) & (step < j)).any(0)
    return rows.at[j].set(jnp.where(repeated, limit, row))

  rows = primitives.zeros(words.shape, jnp.int32, words)
  return lax.fori_loop(0, s, draw, rows)
