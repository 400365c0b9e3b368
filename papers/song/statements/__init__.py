"""Song, Wang, Yu, Zhang (arXiv:2210.08371) as functions.

`convergence` has the theorems, `lemmas`, `plans`, `communication` and `privacy`
what they rest on and what follows from them, `leakage` the theorems on the
attack.
"""

from .convergence import (
  convex,
  largest_step,
  nonconvex,
  nonconvex_step,
  single_step_convex,
  single_step_nonconvex,
  single_step_strongly_convex,
  slowdown,
  strongly_convex,
)

__all__ = [
  'convex', 'largest_step', 'nonconvex', 'nonconvex_step', 'single_step_convex',
  'single_step_nonconvex', 'single_step_strongly_convex', 'slowdown',
  'strongly_convex',
]  # fmt: skip
