"""Calibration of the noise multiplier to an epsilon."""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any

from fl_sketch.accounting import gaussian, losses, profiles, types
from fl_sketch.utils import checks
import scipy  # its packages load on first use


def calibrate_noise_multiplier(
  *,
  epsilon: float,
  delta: float,
  steps: int,
  sampling_probability: float = 1.0,
  accountant: str = 'pld',
  rtol: float = 1e-4,
  **spec: Any,
) -> float:
  """Return the least noise multiplier z with epsilon(z) <= `epsilon`.

  `accountant` is 'pld' or 'rdp'; `spec` are fields of `GaussianMechanism`, with
  sampling POISSON by default if the probability is below 1. Raises
  CalibrationError if no multiplier in reach meets the target.

  The least such z is smaller by at most 2 rtol, relatively.

  >>> z = calibrate_noise_multiplier(epsilon=5.0, delta=1e-6, steps=500)
  >>> round(z, 3)
  21.915
  """
  epsilon = checks.positive('epsilon', epsilon)
  delta = checks.fraction('delta', delta)
  poisson = checks.real('sampling_probability', sampling_probability) < 1
  sampling = types.Sampling.POISSON if poisson else types.Sampling.FULL
  spec = {'sampling': sampling, **spec}
  mechanism = types.GaussianMechanism(
    1.0, steps, sampling_probability=sampling_probability, **spec
  )
  types.warn_if_large((mechanism,), delta)
  profile = profiles.profile(mechanism, accountant)

  def log_ratio(answer: float) -> float:
    finite = min(max(answer, 1e-300), 1e300)  # for the root finder
    return math.log(finite) - math.log(epsilon)

  def gap(z: float) -> float:
    part = dataclasses.replace(mechanism, noise_multiplier=z)
    try:
      answer = profiles.profile(part, accountant).epsilon(delta)
    except profiles.OverflowingCohortError:  # too many for any epsilon
      answer = math.inf
    return log_ratio(answer)

  def rough_gap(z: float) -> float:
    part = dataclasses.replace(mechanism, noise_multiplier=z)
    return log_ratio(losses.rough_epsilon((part,), delta))

  full = gaussian.gaussian_noise_multiplier(epsilon, delta)
  if isinstance(profile.curve, profiles.Exact) and profiles.is_full(mechanism):
    start = math.log(full * profile.curve.distance)
    return math.exp(_up(lambda log_z: gap(math.exp(log_z)), start, 1e-10))
  profile.slack(delta, epsilon)
  start = full * math.sqrt(mechanism.steps * mechanism.releases_per_step)
  try:
    guess = _root(rough_gap, start / 4, start, 1e-2)
  except types.CalibrationError:  # no order of Renyi's is small enough
    guess = start
  return _root(gap, 0.6 * guess, 1.02 * guess, rtol)


def _root(
  gap: Callable[[float], float], low: float, high: float, rtol: float
) -> float:
  """Return z with gap(z) <= 0 < gap(z / (1 + 2 rtol)), for a gap that falls."""
  at = functools.cache(lambda log_z: gap(math.exp(log_z)))
  low, high = math.log(low), math.log(high)
  for _ in range(20):
    if not at(high) <= 0:
      low, high = high, high + math.log(2)
    elif not at(low) > 0:
      low, high = low - math.log(2), low
  if not at(low) > 0 >= at(high):
    raise types.CalibrationError(
      f'No noise_multiplier from {math.exp(low):.4g} to {math.exp(high):.4g} '
      'meets the target; use a larger epsilon.'
    )
  root: Any = scipy.optimize.brentq(at, low, high, xtol=rtol / 4)
  return math.exp(_up(at, root, rtol / 4))


def _up(at: Callable[[float], float], log_z: float, step: float) -> float:
  """Return the first log z from `log_z` upwards, in few steps, that fits."""
  for i in range(8):
    if at(log_z + i * step) <= 0:
      return log_z + i * step
  raise types.CalibrationError(
    f'Epsilon does not fall with the noise near {math.exp(log_z):.4g}.'
  )
