"""Epsilon and delta of a mechanism, and the noise for a target.

`'pld'` (privacy loss distributions) is tight, and exact for full participation;
`'rdp'` (Renyi) is looser. `events` lists the supported combinations.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import dataclasses
import functools
import itertools
import math
from typing import Any

from fl_sketch.accounting import gaussian, losses, profiles, types
from fl_sketch.accounting.types import GaussianMechanism, Mechanism
from fl_sketch.utils import checks

_RTOL = 1e-4  # of a calibrated noise multiplier


def compute_epsilon(
  mechanism: Mechanism, *, delta: float, accountant: str = 'pld'
) -> float:
  """Return an epsilon for which the mechanism is (epsilon, delta)-private.

  An upper bound, rounding included, and exact for full participation by 'pld';
  infinite without noise, never NaN, and 0 only where the total variation
  distance allows it. Added releases lower it by at most a relative 1e-5; inside
  an epoch of random allocation 1e-3. A delta of 1 / population or more warns.

  Raises UnsupportedAccountingError if there is no valid analysis, or
  `max_cohort` or delta is too small for it.

  >>> m = GaussianMechanism(noise_multiplier=21.915, steps=500)
  >>> round(compute_epsilon(m, delta=1e-6), 3)
  5.0
  """
  delta = checks.fraction('delta', delta)
  profile = profiles.profile(mechanism, accountant)
  types.warn_if_large(types.parts_of(mechanism), delta)
  return profile.epsilon(delta)


def compute_delta(
  mechanism: Mechanism, *, epsilon: float, accountant: str = 'pld'
) -> float:
  """Return a delta for which the mechanism is (epsilon, delta)-private.

  1 without noise; at least 1e-12 for a sampled mechanism by 'pld'. Raises
  UnsupportedAccountingError if there is no valid analysis.

  >>> m = GaussianMechanism(noise_multiplier=1.0, steps=1)
  >>> round(compute_delta(m, epsilon=1.0), 4)
  0.1269
  """
  epsilon = checks.at_least('epsilon', epsilon, 0)
  return profiles.profile(mechanism, accountant).delta(epsilon)


def epsilon_curve(
  mechanism: GaussianMechanism,
  steps: Sequence[int],
  *,
  delta: float,
  accountant: str = 'pld',
) -> list[float]:
  """Return epsilon after each number of steps; `mechanism.steps` is ignored.

  A point takes about 0.1 s; by 'rdp', or with full participation, no time.

  >>> m = GaussianMechanism(noise_multiplier=10.0, steps=1)
  >>> [round(e, 2) for e in epsilon_curve(m, [1, 100], delta=1e-5)]
  [0.34, 4.38]
  """
  at = functools.partial(dataclasses.replace, mechanism)
  return [
    compute_epsilon(at(steps=count), delta=delta, accountant=accountant)
    for count in steps
  ]


def compose(mechanisms: Iterable[Mechanism]) -> types.ComposedMechanism:
  """Return mechanisms run one after another on the same data.

  Raises ValueError if there is none, or they differ in adjacency or unit.
  """
  parts = itertools.chain.from_iterable(map(types.parts_of, mechanisms))
  return types.ComposedMechanism(tuple(parts))


def parallel_composition(epsilons: Iterable[float]) -> float:
  """Return epsilon of mechanisms on disjoint data, one unit in one of them.

  The maximum, also if each sees the others' earlier releases. Source: Song et
  al., Lemma H.2; McSherry, SIGMOD 2009, Theorem 4.

  >>> parallel_composition([1.0, 3.0, 2.0])
  3.0
  """
  values = list(epsilons)
  for value in values:
    if value != float('inf'):
      checks.at_least('epsilon', value, 0)
  return float(max(values))


def calibrate_noise_multiplier(
  *,
  epsilon: float,
  delta: float,
  steps: int,
  sampling_probability: float = 1.0,
  accountant: str = 'pld',
  **spec: Any,
) -> float:
  """Return the least noise multiplier z with epsilon(z) <= `epsilon`.

  `accountant` is 'pld' or 'rdp'; `spec` are fields of `GaussianMechanism`, with
  sampling POISSON by default if the probability is below 1. Raises
  CalibrationError if no multiplier in reach meets the target.

  The least such z is smaller by at most 2e-4, relatively.

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

  def gap(z: float, rough: bool = False) -> float:
    """Return log epsilon(z) - log `epsilon`, finite for the root finder."""
    part = dataclasses.replace(mechanism, noise_multiplier=z)
    try:
      answer = (
        losses.rough_epsilon((part,), delta)
        if rough
        else profiles.profile(part, accountant).epsilon(delta)
      )
    except profiles.OverflowingCohortError:  # too many for any epsilon
      answer = math.inf
    return math.log(min(max(answer, 1e-300), 1e300)) - math.log(epsilon)

  full = gaussian.gaussian_noise_multiplier(epsilon, delta)
  if isinstance(profile.curve, profiles.Exact) and profiles.is_full(mechanism):
    start = math.log(full * profile.curve.distance)
    return math.exp(_up(lambda log_z: gap(math.exp(log_z)), start, 1e-10))
  profile.slack(delta, epsilon)
  releases = mechanism.steps * mechanism.releases_per_step
  guess = start = full * math.sqrt(releases)
  with contextlib.suppress(types.CalibrationError):  # no order is small enough
    rough_gap = functools.partial(gap, rough=True)
    guess = _root(rough_gap, start / 4, start, 1e-2)
  return _root(gap, 0.6 * guess, 1.02 * guess, _RTOL)


def _root(
  gap: Callable[[float], float], low: float, high: float, rtol: float
) -> float:
  """Return z with gap(z) <= 0 < gap(z / (1 + 2 rtol)), for a gap that falls."""

  @functools.cache
  def at(log_z: float) -> float:
    return gap(math.exp(log_z))

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
  root = gaussian.root(at, low, high, rtol / 4)
  return math.exp(_up(at, root, rtol / 4))


def _up(at: Callable[[float], float], log_z: float, step: float) -> float:
  """Return the first log z from `log_z` upwards, in few steps, that fits."""
  for i in range(8):
    if at(log_z + i * step) <= 0:
      return log_z + i * step
  raise types.CalibrationError(
    f'Epsilon does not fall with the noise near {math.exp(log_z):.4g}.'
  )
