"""The identity operator: no compression, the reference for all others."""

from fl_sketch.sketches import base


def identity() -> base.Sketch:
  """No compression: the table is the tree's d numbers in a row.

  Guarantees: linear; exact; its own adjoint; the wire carries exactly d
  numbers, f32[d]; E||desketch(sketch(x))||^2 = ||x||^2; the key is not used.

  >>> op = identity()
  >>> op.zero_table({'w': [1.0, 2.0, 3.0]}).shape
  (3,)
  """
  promises = base.Properties(
    'identity', base.dimension, alpha=lambda like: 0.0,
    coordinate_wise=lambda like: 0.0, variance=lambda g, h: 0.0,
    exact_at_full_size=True, orthogonal_rows=True,
  )  # fmt: skip
  return base.from_runs(
    promises, None,
    lambda key, runs, vector: base.join(runs, vector.size, vector.dtype),
    lambda key, table, spans, vector: base.cut(table, spans),
  )  # fmt: skip
