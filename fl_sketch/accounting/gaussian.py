"""Exact privacy of a composed Gaussian mechanism.

Source: Balle and Wang, arXiv:1805.06530, Theorem 8; that n steps of multiplier
z equal one of z / sqrt(n): Dong, Roth and Su, arXiv:1905.02383, Corollary 2.
"""

from collections.abc import Callable
import math
from typing import Any

from fl_sketch.utils import checks
import scipy  # its packages load on first use

_SAFE = 1e-10  # relative, on the safe side of a root


def gaussian_epsilon(
  noise_multiplier: float, delta: float, steps: int = 1
) -> float:
  """Return the least epsilon of full participation; inf without noise.

  The root of delta = Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m)
  with m = sqrt(steps) / noise_multiplier, the noise as stddev / sensitivity.

  >>> round(gaussian_epsilon(21.915, delta=1e-6, steps=500), 3)
  5.0
  """
  noise = checks.at_least('noise_multiplier', noise_multiplier, 0)
  steps = checks.count('steps', steps)
  distance = math.sqrt(steps) / noise if noise else math.inf
  return epsilon_at(distance, checks.fraction('delta', delta))


def gaussian_noise_multiplier(
  epsilon: float, delta: float, steps: int = 1
) -> float:
  """Return the least noise multiplier with epsilon at most `epsilon`.

  >>> round(gaussian_noise_multiplier(5.0, delta=1e-6, steps=500), 3)
  21.915
  """
  epsilon = checks.positive('epsilon', epsilon)
  delta = checks.fraction('delta', delta)
  steps = checks.count('steps', steps)
  slope = math.sqrt(2 * math.log(1 / delta))
  # The m at which zero-concentrated privacy, m^2 / 2 + m slope, is epsilon.
  low = 2 * epsilon / (math.hypot(slope, math.sqrt(2 * epsilon)) + slope)
  high = 2 * low
  while _log_delta(high, epsilon) <= math.log(delta):
    high *= 2

  def gap(m: float) -> float:
    return _log_delta(m, epsilon) - math.log(delta)

  return math.sqrt(steps) / root(gap, low, high) * (1 + _SAFE)


def root(
  gap: Callable[[float], float], low: float, high: float, xtol: float = 1e-300
) -> float:
  """Return a root between two numbers at which `gap` differs in sign."""
  found: Any = scipy.optimize.brentq(gap, low, high, xtol=xtol)
  return found


def delta_at(distance: float, epsilon: float) -> float:
  """Return delta of two unit normals `distance` apart; 1 at infinity."""
  if math.isinf(distance):
    return 1.0
  return min(1.0, math.exp(_log_delta(distance, epsilon)))


def epsilon_at(distance: float, delta: float) -> float:
  """Return epsilon of two unit normals `distance` apart; inf at infinity."""
  high = distance * (distance / 2 + math.sqrt(2 * math.log(1 / delta)))
  if math.isinf(high):
    return math.inf
  if delta_at(distance, 0.0) <= delta:
    return 0.0

  def gap(epsilon: float) -> float:
    return _log_delta(distance, epsilon) - math.log(delta)

  return root(gap, 0.0, high) * (1 + _SAFE)


def _log_delta(distance: float, epsilon: float) -> float:
  """Return log delta, in logarithms so that neither term overflows."""
  shift = epsilon / distance
  log_p = scipy.special.log_ndtr(distance / 2 - shift)
  log_q = epsilon + scipy.special.log_ndtr(-distance / 2 - shift)
  if log_q >= log_p:  # by rounding, where delta is tiny
    return -math.inf
  return float(log_p + math.log(-math.expm1(log_q - log_p)))
