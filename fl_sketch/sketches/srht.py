"""Subsampled randomised Hadamard transforms, of all coordinates or blocks."""

import dataclasses

from fl_sketch.sketches import base, block_rows, hashing, primitives, signs
from fl_sketch.sketches.hadamard import fwht
from fl_sketch.utils import fields


@dataclasses.dataclass(frozen=True)
class srht(base.SizedSketch):
  r"""Subsample a Hadamard transform of coordinates with random signs.

  :math:`R = \sqrt{n / b}\, S H D` with b = `size`, n the power of two at or
  above d (padded with zeros), D random signs, H orthonormal and S rows drawn
  without replacement (Ailon and Chazelle, STOC 2006; Tropp, arXiv:1011.1595).

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    orthogonal rows: R R^T = (n / b) I always at d = n; exact at b = d = n.
    second moment: E||desketch(sketch(x))||^2 = (1 + (d - 1)(n - b) /
      (b (n - 1))) ||x||^2, which is (n / b) ||x||^2 at d = n.
    coordinate-wise constant 2 (n - b) / (n - 1).
  """

  by_lanes = True

  def alpha(self, d):
    n, b = _padded(d), self.size
    return (d - 1) * (n - b) / (b * max(n - 1, 1))

  def coordinate_wise(self, d):
    n = _padded(d)
    return 2 * (n - self.size) / max(n - 1, 1)

  def sketch_runs(self, key, runs, vector):
    n = _padded(vector.size)
    x = fwht(signs.fill(key, runs, n, vector.dtype))
    rows = hashing.sample(key, self.size, n)
    return x.at[rows].get(mode='promise_in_bounds') / self.size**0.5

  def desketch_spans(self, key, table, spans, vector):
    n = _padded(vector.size)
    rows = hashing.sample(key, self.size, n)
    x = primitives.zeros((n,), table.dtype, rows, table)
    x = x.at[rows].set(table / self.size**0.5, unique_indices=True)
    return signs.read(key, fwht(x), spans)


def _padded(d: int) -> int:
  if d > 2**30:
    raise ValueError(f'{d=} exceeds 2**30: padded, it exceeds an int32.')
  return 1 << (d - 1).bit_length()


@dataclasses.dataclass(frozen=True)
class block_srht(base.SizedSketch):
  r"""Subsample Hadamard transforms of blocks of coordinates with random signs.

  :math:`R = \sqrt{d / b}\, S H D` with b = `size`, D random signs, H orthogonal
  and S rows drawn without replacement. Let m be the largest power of two up to
  `block` and d. Coordinate i of the first m floor(d / m) is in block i mod
  floor(d / m), and each block is transformed. Where m does not divide d, the
  last m coordinates are first transformed with other signs, which mixes the
  rest with the blocks. The same random rows of all blocks are kept, and of one
  row those of neighbouring blocks from a random one on.

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    orthogonal rows: R R^T = (d / b) I always, whatever b and d; exact at b = d.
    second moment: E||desketch(sketch(x))||^2 = (d / b) ||x||^2, the least.
    coordinate-wise constant about 2 (m - r) / (m - 1) times the number of
      blocks, for r rows of each; known where m divides d.

  Raises ValueError if block is no power of two.

  Source: a construction of this project, of blocks of `srht`.
  """

  block: fields.Count = 4096
  by_lanes = True

  def __post_init__(self):
    super().__post_init__()
    if self.block.bit_count() != 1:
      raise ValueError(f'block={self.block} must be a power of two.')

  def alpha(self, d):
    return d / self.size - 1

  def coordinate_wise(self, d):
    return block_rows.constant(self._plan(d))

  def _plan(self, like: base.Like) -> block_rows.Plan:
    return block_rows.plan(base.dimension(like), self.size, self.block)

  def sketch_runs(self, key, runs, vector):
    x = base.join(runs, vector.size, vector.dtype)
    return block_rows.take(key, x, self._plan(vector))

  def desketch_spans(self, key, table, spans, vector):
    return base.cut(block_rows.put(key, table, self._plan(vector)), spans)
