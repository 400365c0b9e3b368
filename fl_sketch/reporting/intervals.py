"""Confidence intervals of means over seeds."""

import math
from typing import Any

import numpy as np
from scipy import special

LEVEL = 0.05  # of two-sided intervals


def half_width(error: float, count: int, tail: float = LEVEL / 2) -> float:
  """Half the width of a t-interval, NaN where there is none.

  >>> round(half_width(error=1.0, count=3), 3)
  4.303

  Args:
    error: standard error of the mean; NaN has no interval.
    count: values that the mean is of; below 2 there is no interval.
    tail: probability beyond each end.
  """
  if count < 2:
    return math.nan
  return float(special.stdtrit(count - 1, 1 - tail)) * error


def interval(values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Computes the mean over seeds and the ends of its 95 % t-interval.

  >>> [end.round(2).tolist() for end in interval([[0.9], [1.0], [1.1]])]
  [[1.0], [0.75], [1.25]]

  Args:
    values: f64[seeds, ...].

  Returns:
    f64[...] each; the ends are NaN where there is one seed.
  """
  x = np.asarray(values, float)
  mean, count = x.mean(0), len(x)
  error = x.std(0, ddof=int(count > 1)) / count**0.5
  half = error * half_width(1.0, count)
  return mean, mean - half, mean + half
