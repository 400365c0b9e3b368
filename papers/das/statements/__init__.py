"""Das, Hashemi, Sanghavi, Dhillon (arXiv:2106.07094) as functions.

`rates` has the convergence bounds of clipping and of normalising, `lemmas` the
constants of a problem, `tradeoffs` privacy against accuracy.
"""

from .rates import (
  Schedule,
  clip_left,
  normalize_left,
  right,
  rounds_needed,
  schedule,
  simplified_bound,
)

__all__ = [
  'Schedule', 'clip_left', 'normalize_left', 'right', 'rounds_needed',
  'schedule', 'simplified_bound',
]  # fmt: skip
