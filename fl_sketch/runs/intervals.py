"""Confidence intervals of means over seeds."""

import math
from typing import Any

import numpy as np
from scipy import special

LEVEL = 0.05  # of two-sided intervals


def half_width(error: float, count: int, tail: float = LEVEL / 2) -> float:
  """Return half the width of a t-interval, from the standard error of a mean.

  >>> round(half_width(error=1.0, count=3), 3)
  4.303
  """
  if count < 2:
    return math.nan
  return float(special.stdtrit(count - 1, 1 - tail)) * error


def interval(values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return the mean over seeds, f64[...], and the ends of its 95 % t-interval.

  values: f64[seeds, ...]. The ends are NaN for one seed.

  >>> [end.round(2).tolist() for end in interval([[0.9], [1.0], [1.1]])]
  [[1.0], [0.75], [1.25]]
  """
  x = np.asarray(values, float)
  mean, count = x.mean(0), len(x)
  half = x.std(0, ddof=int(count > 1)) / count**0.5 * half_width(1.0, count)
  return mean, mean - half, mean + half
