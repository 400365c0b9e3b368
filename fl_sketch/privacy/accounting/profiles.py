"""Privacy profile delta(epsilon) of a mechanism: closed form, PLD, or Renyi.

Every curve is an upper bound. Renyi divergences are dp_accounting's, and what
it does not check is checked here; `tilted_losses` composes privacy losses.

Coupling: the truncated run equals the exact one but for a probability of
b <= steps P[Binom(population + 1, q) > max_cohort]: so for neighbours D, E::

  P[D in S] <= P'[D in S] + b <= e^eps P'[E in S] + delta'(eps) + b
            <= e^eps P[E in S] + delta'(eps) + (1 + e^eps) b.
"""

import dataclasses
import functools
import math
from typing import Any

from fl_sketch.privacy.accounting import events, gaussian, losses, types
from fl_sketch.privacy.accounting.tilted_losses import Composition
from fl_sketch.privacy.accounting.types import Mechanism, Sampling, parts_of
from fl_sketch.utils import checks
import numpy as np

# The library's own orders; those that do not converge say so and are dropped.
ORDERS = (
  *(1 + x / 10 for x in range(1, 100)), *range(11, 65), 128, 256, 512, 1024,
)  # fmt: skip
_RENYI_ROUNDING = 1e-12  # of logarithms that a sampled divergence sums
_LEAST_DELTA = 1e-12  # that 'pld' answers to


class OverflowingCohortError(types.UnsupportedAccountingError):
  """Cohorts are truncated too often for the coupling with exact Poisson."""


@dataclasses.dataclass(frozen=True)
class Exact:
  """Closed form of two unit normals: full participation, the worst sampling."""

  distance: float

  def get_epsilon_for_delta(self, delta: float) -> float:
    """Return the least epsilon at `delta`."""
    return gaussian.epsilon_at(self.distance, delta)

  def get_delta_for_epsilon(self, epsilon: float) -> float:
    """Return the least delta at `epsilon`."""
    return gaussian.delta_at(self.distance, epsilon)


@dataclasses.dataclass(frozen=True)
class Renyi:
  """The curve that follows from Renyi divergences at some orders."""

  orders: tuple[float, ...]
  divergences: Any

  def get_epsilon_for_delta(self, delta: float) -> float:
    """Return the least epsilon at `delta` over the orders."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return rdp.compute_epsilon(self.orders, self.divergences, delta)[0]

  def get_delta_for_epsilon(self, epsilon: float) -> float:
    """Return the least delta at `epsilon` over the orders."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return rdp.compute_delta(self.orders, self.divergences, epsilon)[0]


@dataclasses.dataclass(frozen=True)
class Profile:
  """A curve, its resolution, and what truncation adds."""

  curve: Any  # the mechanism's; under add/remove that without truncation
  overflow: float = 0.0  # b above, 0 where the curve has the truncation in it
  visible: float = 0.0  # a lower bound of delta at epsilon 0
  resolution: float = 0.0  # less cannot be distinguished from rounding
  ceiling: Any = None  # another valid curve, which may be lower

  def epsilon(self, delta: float) -> float:
    """Return epsilon at `delta`."""
    if not self.overflow:
      return self._curve_epsilon(delta)
    # The final epsilon is at most that at delta / 2, which has its room.
    slack = self.slack(delta, self._curve_epsilon(delta / 2))
    return self._curve_epsilon(delta - slack)

  def slack(self, delta: float, epsilon: float) -> float:
    """Return (1 + e^epsilon) overflow, which must be at most delta / 2."""
    slack = _cost(epsilon) * self.overflow if self.overflow else 0.0
    if not slack <= delta / 2:
      raise OverflowingCohortError(
        f'max_cohort is too small: cohorts exceed it with overflow='
        f'{self.overflow:.3g}, and (1 + e^{epsilon:.4g}) * overflow exceeds '
        f'delta / 2 = {delta / 2:.3g}; raise it.'
      )
    return slack

  def delta(self, epsilon: float) -> float:
    """Return delta at `epsilon`."""
    delta = float(self.curve.get_delta_for_epsilon(epsilon))
    if self.ceiling is not None:
      delta = min(delta, self.ceiling.get_delta_for_epsilon(epsilon))
    if self.overflow:
      delta += _cost(epsilon) * self.overflow
    if math.isnan(delta):
      raise types.UnsupportedAccountingError(
        f'delta at {epsilon=} is not a number.'
      )
    return min(max(delta, self.resolution), 1.0)

  @property
  def is_vectorised(self) -> bool:
    """Whether many deltas take hardly longer than one."""
    return isinstance(self.curve, Composition)

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Return delta at ascending epsilons, however small, f64[epsilons].

    The least delta never rises, so that a bound at a smaller epsilon is one.
    """
    curves = [self.curve] + [self.ceiling] * (self.ceiling is not None)
    total = np.min([_deltas(curve, epsilons) for curve in curves], axis=0)
    if self.overflow:
      total = total + self.overflow * np.array([_cost(e) for e in epsilons])
    total = np.where(np.isnan(total), 1.0, np.clip(total, 0.0, 1.0))
    return np.minimum.accumulate(total)

  def _curve_epsilon(self, delta: float) -> float:
    if delta < self.resolution:
      raise types.UnsupportedAccountingError(
        f'delta={delta} is below {self.resolution}, the least that accountant='
        "'pld' resolves; choose accountant='rdp'."
      )
    epsilon = float(self.curve.get_epsilon_for_delta(delta))
    if math.isnan(epsilon) or (epsilon <= 0 and delta < self.visible):
      raise types.UnsupportedAccountingError(
        f'{epsilon=} at {delta=} cannot be, for one step alone has delta >= '
        f'{self.visible} at epsilon 0: choose the other accountant.'
      )
    if self.ceiling is not None:
      epsilon = min(epsilon, self.ceiling.get_epsilon_for_delta(delta))
    return epsilon


def _deltas(curve: Any, epsilons: np.ndarray) -> np.ndarray:
  if isinstance(curve, Composition):
    return np.asarray(curve.get_delta_for_epsilon(epsilons))
  return np.array([curve.get_delta_for_epsilon(float(e)) for e in epsilons])


def _cost(epsilon: float) -> float:
  """Return 1 + e^epsilon; inf where that overflows."""
  return 1 + math.exp(epsilon) if epsilon < 700 else math.inf


def profile(mechanism: Mechanism, accountant: str = 'pld') -> Profile:
  """Return the mechanism's privacy profile, by the accountant 'pld' or 'rdp'.

  Raises UnsupportedAccountingError if there is no valid analysis.
  """
  checks.choice('accountant', accountant, ('pld', 'rdp'))
  parts = tuple(map(events.simplest, parts_of(mechanism)))
  for part in parts:
    events.check_supported(part, accountant)
  if any(events.noise_of(part) == 0 for part in parts):
    return Profile(Exact(math.inf))
  overflow = math.fsum(map(events.overflow_probability, parts))
  parts = tuple(map(events.untruncated, parts))
  full = all(part.sampling is Sampling.FULL for part in parts)
  quiet = min(map(events.noise_of, parts)) < losses.LEAST_NOISE
  if quiet or (full and accountant == 'pld'):
    return Profile(Exact(events.distance(parts)), overflow)
  if accountant == 'rdp':
    # Renyi's bound of a fixed size does not vanish with the noise.
    schemes = {part.sampling for part in parts}
    fixed = Sampling.FIXED_WITHOUT_REPLACEMENT in schemes
    ceiling = Exact(events.distance(parts)) if fixed else None
    curve = renyi(parts, ORDERS)
    return Profile(curve, overflow, _visible(parts), ceiling=ceiling)
  curve = losses.composition(parts)
  if curve is None:
    return Profile(Exact(events.distance(parts)), overflow)
  return Profile(curve, overflow, _visible(parts), _LEAST_DELTA)


def full_participation(mechanism: Mechanism) -> Exact | None:
  """Return the curve if everybody took part, a bound; None if it is none.

  Which units take part must not depend on which of the neighbours it is: then
  both are mixtures, with the same weights, of pairs of normals that are no
  further apart than with everybody, and trade-offs are convex in the pair.
  Not so truncation under add-or-remove-one, where one unit displaces others.
  """
  parts = tuple(map(events.simplest, parts_of(mechanism)))
  if any(events.noise_of(part) == 0 for part in parts):
    return Exact(math.inf)
  displaced = any(
    part.sampling in (Sampling.TRUNCATED_POISSON, Sampling.RANDOM_ALLOCATION)
    and part.max_cohort is not None
    and part.adjacency is not types.Adjacency.ZERO_OUT
    for part in parts
  )
  return None if displaced else Exact(events.distance(parts))


def is_full(mechanism: Mechanism) -> bool:
  """Return whether everybody takes part in every step."""
  parts = map(events.simplest, parts_of(mechanism))
  return all(part.sampling is Sampling.FULL for part in parts)


def _visible(parts: losses.Parts) -> float:
  """Return a lower bound of the total variation distance: of one step."""
  return max(
    events.probability_of(part)
    * math.erf(1 / (math.sqrt(8) * events.noise_of(part)))
    for part in parts
  )


def renyi(parts: losses.Parts, orders) -> Renyi:
  """Return the Renyi curve; inf at orders that do not converge."""
  total = np.zeros(len(orders))
  for part in parts:
    one = dataclasses.replace(part, steps=1)
    total = total + part.steps * _step_divergences(one, orders)
  return Renyi(orders, total)


@functools.lru_cache(maxsize=64)
def _step_divergences(part: types.GaussianMechanism, orders) -> np.ndarray:
  """Return one step's divergences, rounding put on the safe side."""
  from dp_accounting.rdp import RdpAccountant

  accountant = RdpAccountant(orders, events.relation(part.adjacency))
  try:
    accountant.compose(events.step_event(part))
  except ValueError:  # a logarithm of what rounding has made 0
    return np.full(len(orders), np.inf)
  if part.sampling is Sampling.FULL:
    return accountant.rdp
  return np.maximum(accountant.rdp, 0) + _RENYI_ROUNDING
