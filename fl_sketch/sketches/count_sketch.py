"""Count Sketch: a few independent hash rows, read back by median or mean."""

import dataclasses
from typing import Annotated

from fl_sketch.sketches import base, columns, hashing, median
from fl_sketch.utils import fields
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class count_sketch(base.VectorSketch):
  r"""Count Sketch of Charikar, Chen and Farach-Colton (ICALP 2002).

  .. math:: T_{j,c} = \sum_{i: h_j(i) = c} s_j(i) x_i, \qquad
     \hat x_i = \mathrm{combine}_j\; s_j(i) T_{j, h_j(i)}

  The median is what FedSKETCH (arXiv:2008.04975) calls PRIVIX. Buckets are
  pairwise independent (`hashing.kwise`); signs are of `hashing.word`, since a
  median is unbiased only if they are all independent.

  Guarantees, for independent signs:
    linear: the sketch, and with 'mean' the desketch too.
    unbiased: E desketch(sketch(x)) = x.
    second moment: with 'mean', E||desketch(sketch(x))||^2 = (1 + (d - 1) /
      (rows cols)) ||x||^2, and the coordinate-wise constant is 2.
    adjoint: with 'mean', <sketch x, y> = rows <x, desketch y>.

  >>> import jax
  >>> op, x = count_sketch(5, 8), {'w': jnp.zeros(40).at[3].set(9.0)}
  >>> table = op.sketch(jax.random.key(0), x)
  >>> float(op.desketch(jax.random.key(0), table, x)['w'][3])
  9.0

  `combine` is 'median' (robust to heavy tails) or 'mean' (linear, and the
  `linear_reader` of the other). Tables are f32[rows, cols]. Raises ValueError
  if rows or cols are below 1, for another `combine`, and if rows * cols exceeds
  d without `allow_larger`, which FedSKETCHGATE needs for small models.
  """

  rows: fields.Count
  cols: fields.Count
  _: dataclasses.KW_ONLY
  combine: Annotated[str, fields.choice(('median', 'mean'))] = 'median'
  allow_larger: bool = False
  axes = 'rows', 'cols'

  @property
  def properties(self):
    mean, size = self.combine == 'mean', self.rows * self.cols
    known = mean or self.rows <= 2  # of two rows the median is the mean
    alpha = lambda like: (base.dimension(like) - 1) / size
    return base.Properties(
      'count_sketch', floats=lambda like: size,
      alpha=alpha if known else None,
      coordinate_wise=(lambda like: 2.0) if known else None,
      linear=mean, adjoint_scale=float(self.rows) if mean else None,
    )  # fmt: skip

  @property
  def linear_reader(self):
    if self.combine == 'mean':
      return None
    return dataclasses.replace(self, combine='mean')

  def sketch_runs(self, key, runs, vector):
    size = self.rows * self.cols
    table = columns.sketch(self._columns(key), runs, size, vector.dtype)
    return table.reshape(self.rows, self.cols)

  def desketch_spans(self, key, table, spans, vector):
    # `jnp.mean` over axis 0 is ten times slower.
    mean = lambda xs: sum(xs) / len(xs)
    reduce = mean if self.combine == 'mean' else median.median
    return columns.desketch(self._columns(key), table.ravel(), spans, reduce)

  def _columns(self, key):
    row = jnp.arange(self.rows, dtype=jnp.int32)[:, None]
    flat = lambda words: row * self.cols + hashing.bucket(words, self.cols)
    return columns.hashed(key, self.rows, flat)
