"""Group privacy: several clients that belong to one person. No JAX."""

import dataclasses
import math

from fl_sketch.privacy.accounting import gaussian, profiles, types
from fl_sketch.utils import checks
import numpy as np

_POINTS = 1024  # epsilons of a pass; the second is that much finer
# Of delta, on the way to the given one; a curve may not reach the first ones.
_LEAST = 1e-40, 1e-30, 1e-20, 1e-15
_SAFE = 1e-9  # of log delta, for rounding
_VACUOUS = 700.0  # exp of more is no float64


def group_epsilon(
  mechanism: types.Mechanism, k: int, *, delta: float, accountant: str = 'pld'
) -> float:
  r"""Return epsilon at `delta` of any k >= 1 units together; inf without noise.

  For full participation that of sensitivity k C (2 k C under replace-one), and
  exact. Elsewhere the k-fold bound, of each (e, d) of the accountant's curve::

    epsilon = k e,  delta = d (exp(k e) - 1) / (exp(e) - 1),

  which holds for every mechanism, by a path of k neighbours (Dwork and Roth,
  The Algorithmic Foundations of Differential Privacy, Theorem 2.2; Vadhan, The
  Complexity of Differential Privacy, Lemma 2.2): at the least e that meets
  `delta` in (0, 1), and at most what k units cost under full participation,
  where sampling never hurts. The accountant is 'pld' or 'rdp'. Raises
  UnsupportedAccountingError if there is no valid analysis, or the k-fold bound
  is vacuous: no e meets `delta`, or none below 700.

  Guarantees:
    * Holds for any k units, as long as each is sampled by a coin of its own, or
      in the same fixed-size cohort as everybody: units that are drawn together
      are one unit with a larger contribution, and not a group.
    * Each unit is still clipped by itself. A person whose clients are counted
      in one contribution of norm C needs no group.
    * Never below epsilon of one unit.

  >>> m = types.GaussianMechanism(noise_multiplier=21.915, steps=500)
  >>> [round(group_epsilon(m, k, delta=1e-6), 2) for k in (1, 2)]
  [5.0, 11.27]
  """
  k = checks.count('k', k)
  delta = checks.fraction('delta', delta)
  types.warn_if_large(types.parts_of(mechanism), delta)
  profile = profiles.profile(_of_larger(mechanism, k - 1), accountant)
  if k == 1:
    return profile.epsilon(delta)
  full = profiles.full_participation(mechanism)
  ceiling = math.inf
  if full is not None:
    ceiling = gaussian.epsilon_at(k * full.distance, delta)
    if profiles.is_full(mechanism) or math.isinf(full.distance):
      return ceiling
  epsilon = min(ceiling, k * _least(profile, k, delta))
  if epsilon > _VACUOUS:
    raise types.UnsupportedAccountingError(
      f'The {k}-fold bound at {delta=} is vacuous, not below {_VACUOUS:g}; use '
      'a smaller group or more noise.'
    )
  return epsilon


def _of_larger(mechanism, more: int) -> types.Mechanism:
  """Return the mechanism in a larger population, which a path may lead to."""
  parts = [
    part
    if part.population is None or part.adjacency is types.Adjacency.REPLACE_ONE
    else dataclasses.replace(part, population=part.population + more)
    for part in types.parts_of(mechanism)
  ]
  return parts[0] if len(parts) == 1 else types.ComposedMechanism(tuple(parts))


def _least(profile: profiles.Profile, k: int, delta: float) -> float:
  """Return the least e whose k-fold delta is at most `delta`, or inf."""
  # Past this epsilon the curve has no use.
  ends = (profile.curve.get_epsilon_for_delta(least) for least in _LEAST)
  last = next((float(end) for end in ends if math.isfinite(end)), math.inf)
  if profile.overflow:  # past it truncation alone costs more than delta
    last = min(last, math.log(delta / profile.overflow) + 1)
  if math.isinf(last):
    return math.inf
  low, high = 0.0, max(last, 0.0)
  for _ in range(2):
    epsilons = np.linspace(low, high, _POINTS + 1)
    totals = _log_group_delta(profile, epsilons, k)
    (fits,) = np.nonzero(totals <= math.log(delta))
    if not fits.size:
      return math.inf
    low, high = epsilons[max(fits[0] - 1, 0)], epsilons[fits[0]]
  return float(high)


def _log_group_delta(profile, epsilons: np.ndarray, k: int) -> np.ndarray:
  """Return log of d sum_{i < k} exp(i e) at each e, with the curve's d."""
  with np.errstate(divide='ignore'):
    log_sum = (k - 1) * epsilons + _log_rise(k * epsilons) - _log_rise(epsilons)
    log_sum = np.where(epsilons > 0, log_sum, math.log(k))
    return np.log(profile.deltas(epsilons)) + log_sum + _SAFE


def _log_rise(x: np.ndarray) -> np.ndarray:
  """Return log(1 - exp(-x)), for x > 0."""
  return np.log(-np.expm1(-np.maximum(x, 1e-300)))
