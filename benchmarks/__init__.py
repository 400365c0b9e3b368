"""Benchmarks: speed as ratios of medians taken in one run.

`round` times rounds against hand-written loops on the models of `workloads`,
and `scale` times them while one dimension of a run grows.
`sketch` times sketching and desketching of the operators in `contestants`
against those of other `libraries`. `report` has the tables, curves and JSON of
all three. No benchmark is a test.
"""

from fl_sketch.utils import lazy

__all__ = [
  'contestants', 'libraries', 'report', 'round', 'scale', 'sketch', 'timing',
  'workloads',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
