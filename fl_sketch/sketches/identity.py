"""The identity operator: no compression, the reference for all others."""

from fl_sketch.sketches import base


def identity() -> base.Sketch:
  """Concatenate the tree's d numbers: a table f32[d], without compression.

  >>> op = identity()
  >>> op.zero_table({'w': [1.0, 2.0, 3.0]}).shape
  (3,)
  """
  stated = base.Properties(
    'identity', base.dimension, alpha=lambda like: 0.0,
    coordinate_wise=lambda like: 0.0,
  )  # fmt: skip
  return base.from_runs(
    stated, None,
    lambda key, runs, vector: base.join(runs, vector.size, vector.dtype),
    lambda key, table, spans, vector: base.cut(table, spans),
  )  # fmt: skip
