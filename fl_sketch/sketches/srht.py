"""Subsampled randomised Hadamard transform."""

import dataclasses

from fl_sketch.sketches import base, hashing, primitives, signs
from fl_sketch.sketches.hadamard import fwht


@dataclasses.dataclass(frozen=True)
class srht(base.SizedSketch):
  r"""Subsample a Hadamard transform of coordinates with random signs.

  :math:`R = \sqrt{n / b}\, S H D` with b = `size`, n the power of two at or
  above d (padded with zeros), D random signs, H orthonormal and S rows drawn
  without replacement (Ailon and Chazelle, STOC 2006; Tropp, arXiv:1011.1595).
  Tables are f32[size]; a size below 1, or above d, raises ValueError.

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
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
