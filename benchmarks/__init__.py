"""Benchmarks: speed as ratios of medians taken in one run.

`round` times rounds against hand-written loops on the models of `workloads`,
and `scale` times them while one dimension of a run grows (`scale_report`).
`sketch` times sketching and desketching of the operators in `contestants`
against those of other `libraries` (`sketch_report`). No benchmark is a test.
"""

from fl_sketch.utils import lazy

__all__ = [
  'contestants', 'libraries', 'round', 'scale', 'scale_report', 'sketch',
  'sketch_report', 'workloads',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
