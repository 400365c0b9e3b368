"""The identity operator: no compression, the reference for all others."""

import dataclasses

from fl_sketch.sketches import base


@dataclasses.dataclass(frozen=True)
class identity(base.VectorSketch):
  """Concatenate the tree's d numbers: a table f32[d], without compression.

  >>> op = identity()
  >>> op.zero_table({'w': [1.0, 2.0, 3.0]}).shape
  (3,)
  """

  @property
  def properties(self):
    zero = lambda like: 0.0
    return base.Properties('identity', base.dimension, zero, zero)

  def sketch_runs(self, key, runs, vector):
    return base.join(runs, vector.size, vector.dtype)

  def desketch_spans(self, key, table, spans, vector):
    return base.cut(table, spans)
