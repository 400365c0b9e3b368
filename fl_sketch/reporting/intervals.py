"""Confidence intervals of means over seeds."""

import math

from scipy import special

LEVEL = 0.05  # of two-sided intervals


def half_width(error: float, count: int, tail: float = LEVEL / 2) -> float:
  """Half the width of a t-interval.

  >>> round(half_width(error=1.0, count=3), 3)
  4.303

  Args:
    error: standard error of the mean; NaN has no interval.
    count: values that the mean is of; below 2 there is no interval.
    tail: probability beyond each end.

  Returns:
    NaN where there is no interval.
  """
  if count < 2:
    return math.nan
  return float(special.stdtrit(count - 1, 1 - tail)) * error
