"""Benchmarks: speed as ratios of medians taken in one run; see README.md."""

from fl_sketch.utils import lazy

__all__ = [
  'contestants', 'libraries', 'report', 'round', 'scale', 'sketch', 'slow_link',
  'timing', 'workloads',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
