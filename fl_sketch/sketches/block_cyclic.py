"""Block-cyclic Count Sketch: balanced buckets, contiguous memory."""

import dataclasses

from fl_sketch.sketches import base, blocks
from fl_sketch.utils import fields
from jax import lax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class block_cyclic(base.SizedSketch):
  r"""Count Sketch that shifts whole blocks of coordinates.

  With m = size / sparsity buckets, coordinate i = B m + u of block B goes to
  bucket (u + shift_B) mod m with sign s(i); the vector is padded with zeros to
  whole blocks. `sparsity` such sketches, each scaled by 1 / sqrt(sparsity), are
  stacked: an OSNAP of the second kind (Nelson and Nguyen, FOCS 2013).

  Guarantees, for s = `sparsity`, b = `size`, pairwise independent shifts and
  independent signs (`hashing.kwise`, `hashing.word`):
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
    second moment: E||desketch(sketch(x))||^2 = (1 + alpha) ||x||^2 with alpha =
      d / b - 1 / s where m divides d; else at most (d - r) / b for the r
      coordinates of the last block.
    balanced, for s = 1: R R^T = (d / b) I in every draw where b divides d, and
      R is exact at b = d; no unbiased projection has a smaller alpha.
    coordinate-wise constant 2.

  >>> import jax
  >>> op, key, x = block_cyclic(4), jax.random.key(0), {'w': jnp.ones(4)}
  >>> op.desketch(key, op.sketch(key, x), x)['w'].tolist()
  [1.0, 1.0, 1.0, 1.0]

  A larger `sparsity` has lighter tails, and takes a pass over the tree for each
  copy. Tables are f32[size]. Raises ValueError if an argument is below 1,
  sparsity does not divide size, or size exceeds d.

  Source: a construction of this project; related to numBlocks of FetchSGD's
  CSVec (arXiv:2007.07682) and BlockPerm-SJLT (arXiv:2602.06071).
  """

  sparsity: fields.Count = dataclasses.field(default=1, kw_only=True)
  by_lanes = True

  def __post_init__(self):
    super().__post_init__()
    if self.size % self.sparsity:
      raise ValueError(f'{self.sparsity=} must divide {self.size=}.')

  def alpha(self, d):
    # What collides with a coordinate is outside its block.
    return (d - (d % self._cols or self._cols)) / self._cols / self.sparsity

  @property
  def _cols(self) -> int:
    return self.size // self.sparsity

  def sketch_runs(self, key, runs, vector):
    cols, (starts, xs) = self._cols, zip(*runs, strict=True)
    runs_of = lambda xs: list(map(base.Segment, starts, xs))
    form = lambda f: lambda hashes, xs: f(cols, hashes, runs_of(xs), vector)
    hashes = blocks.copies_of(key, cols, self.sparsity, vector.size)
    loop, gather = map(form, (blocks.sketch_loop, blocks.sketch_gather))
    tables = lax.platform_dependent(hashes, xs, cpu=loop, default=gather)
    return self.sparsity**-0.5 * jnp.concatenate(tables)

  def desketch_spans(self, key, table, spans, vector):
    cols, scale = self._cols, self.sparsity**-0.5
    hashes = blocks.copies_of(key, cols, self.sparsity, vector.size)
    tables = list(scale * table.reshape(self.sparsity, cols))
    form = lambda f: lambda hashes, tables: f(cols, hashes, tables, spans)
    loop, gather = map(form, (blocks.desketch_loop, blocks.desketch_gather))
    return lax.platform_dependent(hashes, tables, cpu=loop, default=gather)
