"""Privacy profile delta(epsilon) of a mechanism: closed form, PLD, or Renyi.

Every curve is an upper bound. `tilted_losses` composes privacy losses; Renyi
divergences are dp_accounting's. A run whose cohorts exceed `max_cohort` with
probability b has delta'(epsilon) + (1 + e^epsilon) b, by coupling
(docs/concepts/accounting.md).
"""

import dataclasses
import functools
import math

from fl_sketch.accounting import events, gaussian, losses, types
from fl_sketch.accounting.tilted_losses import Composition
from fl_sketch.accounting.types import Mechanism, Sampling, parts_of
from fl_sketch.utils import checks
import numpy as np

# The orders of dp_accounting, which drops those that do not converge.
ORDERS = (
  *(1 + x / 10 for x in range(1, 100)), *range(11, 65), 128, 256, 512, 1024,
)  # fmt: skip
_RENYI_ROUNDING = 1e-12  # of logarithms that a sampled divergence sums
_LEAST_DELTA = 1e-12  # that 'pld' answers to


class OverflowingCohortError(types.UnsupportedAccountingError):
  """Cohorts exceed `max_cohort` too often for the coupling."""


@dataclasses.dataclass(frozen=True)
class Exact:
  """Closed form of two unit normals: full participation."""

  distance: float

  def epsilon(self, delta: float) -> float:
    """Return the least epsilon at `delta`."""
    return gaussian.epsilon_at(self.distance, delta)

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Return the least delta at each epsilon, f64[epsilons]."""
    return np.array([gaussian.delta_at(self.distance, e) for e in epsilons])


@dataclasses.dataclass(frozen=True)
class Renyi:
  """The curve that follows from Renyi divergences at some orders."""

  orders: tuple[float, ...]
  divergences: tuple[float, ...]  # at each order

  def epsilon(self, delta: float) -> float:
    """Return the least epsilon at `delta` over the orders."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    return float(rdp.compute_epsilon(self.orders, self.divergences, delta)[0])

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Return the least delta over the orders at each epsilon, f64[epsilons]."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    curve = self.orders, self.divergences
    return np.array(
      [rdp.compute_delta(*curve, e)[0] for e in epsilons.tolist()]
    )


Curve = Exact | Renyi | Composition


@dataclasses.dataclass(frozen=True)
class Profile:
  """A curve, what truncation adds to it, and which answers it may give."""

  curve: Curve  # without truncation, where `overflow` is not 0
  overflow: float = 0.0  # probability b that any cohort exceeds `max_cohort`
  visible: float = 0.0  # a lower bound of delta at epsilon 0
  resolution: float = 0.0  # the least delta that is answered
  ceiling: Exact | None = None  # another upper bound, which may be lower

  def epsilon(self, delta: float) -> float:
    """Return epsilon at `delta`."""
    if not self.overflow:
      return self._curve_epsilon(delta)
    # Epsilon is at most that at delta / 2, whose slack therefore suffices.
    slack = self.slack(delta, self._curve_epsilon(delta / 2))
    return self._curve_epsilon(delta - slack)

  def slack(self, delta: float, epsilon: float) -> float:
    """Return (1 + e^epsilon) overflow, which must be at most delta / 2."""
    slack = _cost(epsilon) * self.overflow if self.overflow else 0.0
    if not slack <= delta / 2:
      raise OverflowingCohortError(
        f'max_cohort is exceeded with probability {self.overflow:.3g}: times '
        f'1 + e^{epsilon:.4g} more than delta / 2 = {delta / 2:.3g}; raise it.'
      )
    return slack

  def delta(self, epsilon: float) -> float:
    """Return delta at `epsilon`."""
    return max(float(self.deltas(np.array([epsilon]))[0]), self.resolution)

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Return delta at ascending epsilons, however small, f64[epsilons]."""
    total = self.curve.deltas(epsilons)
    if self.ceiling is not None:
      total = np.minimum(total, self.ceiling.deltas(epsilons))
    if self.overflow:
      total = total + self.overflow * np.array([_cost(e) for e in epsilons])
    total = np.where(np.isnan(total), 1.0, np.clip(total, 0.0, 1.0))
    # Delta never rises: a bound at a smaller epsilon is one here.
    return np.minimum.accumulate(total)

  def _curve_epsilon(self, delta: float) -> float:
    if delta < self.resolution:
      raise types.UnsupportedAccountingError(
        f'delta={delta} is below {self.resolution}, the least that accountant='
        "'pld' resolves; choose accountant='rdp'."
      )
    epsilon = self.curve.epsilon(delta)
    if math.isnan(epsilon) or (epsilon <= 0 and delta < self.visible):
      raise types.UnsupportedAccountingError(
        f'{epsilon=} at {delta=} cannot be: one step has delta >= '
        f'{self.visible} at epsilon 0; choose the other accountant.'
      )
    if self.ceiling is not None:
      epsilon = min(epsilon, self.ceiling.epsilon(delta))
    return epsilon


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
  """Return the curve of full participation, or None where it is no bound.

  It bounds every sampling in which who takes part does not depend on the
  neighbour: both neighbours are then mixtures, with equal weights, of pairs
  that are no further apart. Under add-or-remove-one truncation does depend on
  it, since one unit displaces others.
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
  """Return the total variation distance of one step, a lower bound."""
  return max(
    events.probability_of(part)
    * math.erf(1 / (math.sqrt(8) * events.noise_of(part)))
    for part in parts
  )


def renyi(parts: losses.Parts, orders: tuple[float, ...]) -> Renyi:
  """Return the Renyi curve; inf at orders that do not converge."""
  total = np.zeros(len(orders))
  for part in parts:
    one = dataclasses.replace(part, steps=1)
    total = total + part.steps * _step_divergences(one, orders)
  return Renyi(orders, tuple(total.tolist()))


@functools.lru_cache(maxsize=64)
def _step_divergences(
  part: types.GaussianMechanism, orders: tuple[float, ...]
) -> np.ndarray:
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
