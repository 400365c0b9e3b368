"""Calibration of the noise multiplier to an epsilon."""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any

from fl_sketch.privacy.accounting import gaussian, losses, profiles, types
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

  Exact for full participation by 'pld'. Elsewhere the root of log epsilon in
  log z, to a relative `rtol` and put on the safe side, from a bracket by
  Renyi's estimate. The target is epsilon > 0 at delta in (0, 1), the accountant
  'pld' or 'rdp'; the others, and `spec`, are fields of `GaussianMechanism`,
  whose default sampling is Poisson's where its probability is below 1. Raises
  CalibrationError if no multiplier in reach meets the target.

  Guarantees:
    * epsilon of the returned multiplier is at most `epsilon`.
    * The least such multiplier is smaller by 2 rtol at most.

  >>> z = calibrate_noise_multiplier(epsilon=5.0, delta=1e-6, steps=500)
  >>> round(z, 3)
  21.915
  """
  epsilon = checks.positive('epsilon', epsilon)
  delta = checks.fraction('delta', delta)
  rtol = checks.fraction('rtol', rtol)
  mechanism = _mechanism(1.0, steps, sampling_probability, spec)
  types.warn_if_large((mechanism,), delta)
  profile = profiles.profile(mechanism, accountant)
  noisy = lambda z: dataclasses.replace(mechanism, noise_multiplier=z)
  # Finite, for the root finder.
  log_ratio = lambda e: math.log(min(max(e, 1e-300), 1e300)) - math.log(epsilon)
  gap = lambda z: log_ratio(_epsilon(noisy(z), delta, accountant))
  rough = lambda z: log_ratio(losses.rough_epsilon((noisy(z),), delta))
  full = gaussian.gaussian_noise_multiplier(epsilon, delta)
  if isinstance(profile.curve, profiles.Exact) and profiles.is_full(mechanism):
    start = math.log(full * profile.curve.distance)
    return math.exp(_up(lambda log_z: gap(math.exp(log_z)), start, 1e-10))
  profile.slack(delta, epsilon)
  # From a rough one to ever finer brackets.
  start = full * math.sqrt(mechanism.steps * mechanism.releases_per_step)
  try:
    guess = _root(rough, start / 4, start, 1e-2)
  except types.CalibrationError:  # Renyi's orders are too few
    guess = start
  return _root(gap, 0.6 * guess, 1.02 * guess, rtol)


def _mechanism(noise_multiplier, steps, probability, spec):
  poisson = checks.real('sampling_probability', probability) < 1
  default = types.Sampling.POISSON if poisson else types.Sampling.FULL
  spec = {'sampling': default, **spec, 'sampling_probability': probability}
  return types.GaussianMechanism(noise_multiplier, steps, **spec)


def _epsilon(mechanism, delta: float, accountant: str) -> float:
  """Return epsilon; inf where too many cohorts overflow for any."""
  try:
    return profiles.profile(mechanism, accountant).epsilon(delta)
  except profiles.OverflowingCohortError:
    return math.inf


def _root(gap, low: float, high: float, rtol: float) -> float:
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
