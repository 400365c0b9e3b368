"""Privacy profile delta(epsilon) of a mechanism: closed form, PLD, or Renyi.

The numbers are upper bounds that dp_accounting computes; what it does not check
is checked here.

Coupling: the truncated run equals the exact one but for a probability of
b <= steps P[Binom(population + 1, q) > max_cohort], so that for any two
neighbours D, E::

  P[D in S] <= P'[D in S] + b <= e^eps P'[E in S] + delta'(eps) + b
            <= e^eps P[E in S] + delta'(eps) + (1 + e^eps) b.
"""

import dataclasses
import functools
import math
from typing import Any

from fl_sketch.privacy import allocation, events, gaussian
from fl_sketch.privacy.types import (
  Adjacency,
  GaussianMechanism,
  Mechanism,
  Sampling,
  UnsupportedAccountingError,
  parts_of,
)
from fl_sketch.utils import checks
import numpy as np

Parts = tuple[GaussianMechanism, ...]
_COARSE = (*range(2, 65), 128, 256, 512, 1024)
# The library's own orders; those that do not converge say so and are dropped.
ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 65), *_COARSE[-4:])
# Rounding of the logarithms that a sampled Renyi divergence is a sum of.
_RENYI_ROUNDING = 1e-12
# Below it a delta is the rounding of a Fourier transform.
_LEAST_DELTA = 1e-12
# Width of a cell of the privacy loss, and the epsilon past which it grows, so
# that memory stays below 1 GiB; a wider cell loosens the bound.
_CELL, _WIDE = 1e-4, 40.0
# Past these, epsilon is bounded by that of full participation: to sample never
# hurts, the trade-off being convex in the pair of distributions.
_LEAST_NOISE, _HOPELESS = 1e-3, 1e4


class OverflowingCohortError(UnsupportedAccountingError):
  """Cohorts are truncated too often for the coupling with exact Poisson."""


@dataclasses.dataclass(frozen=True)
class Exact:
  """Closed-form curve of two unit normals at a distance."""

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
  """A curve, its resolution, and what truncation adds.

  Args:
    curve: The mechanism's; under add/remove that without truncation.
    overflow: b above, 0 where the curve has the truncation in it.
    visible: A lower bound of delta at epsilon 0.
    resolution: a delta below it cannot be distinguished from rounding.
    ceiling: Another valid curve, which may be lower.
  """

  curve: Any
  overflow: float = 0.0
  visible: float = 0.0
  resolution: float = 0.0
  ceiling: Any = None

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
        f'Expected (1 + e^{epsilon:.4g}) * overflow={self.overflow:.3g} <= '
        f'delta / 2 = {delta / 2:.3g}: max_cohort is too small.'
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
      raise UnsupportedAccountingError(f'delta at {epsilon=} is not a number.')
    return min(max(delta, self.resolution), 1.0)

  def _curve_epsilon(self, delta: float) -> float:
    """Return the curve's epsilon, which must make sense."""
    if delta < self.resolution:
      raise UnsupportedAccountingError(
        f"Expected delta={delta} >= {self.resolution} for accountant='pld'; "
        "choose accountant='rdp'."
      )
    epsilon = float(self.curve.get_epsilon_for_delta(delta))
    if math.isnan(epsilon) or (epsilon <= 0 and delta < self.visible):
      raise UnsupportedAccountingError(
        f'{epsilon=} at {delta=} cannot be, for one step alone has delta >= '
        f'{self.visible} at epsilon 0: choose the other accountant.'
      )
    if self.ceiling is not None:
      epsilon = min(epsilon, self.ceiling.get_epsilon_for_delta(delta))
    return epsilon


def _cost(epsilon: float) -> float:
  """Return 1 + e^epsilon; inf where that overflows."""
  return 1 + math.exp(epsilon) if epsilon < 700 else math.inf


def profile(
  mechanism: Mechanism, accountant: str = 'pld', cell: float | None = None
) -> Profile:
  """Return the mechanism's privacy profile.

  Args:
    mechanism: What is released.
    accountant: 'pld' or 'rdp'.
    cell: Width of a cell of the privacy loss; None chooses it.

  Raises:
    UnsupportedAccountingError: if there is no valid analysis.
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
  quiet = min(map(events.noise_of, parts)) < _LEAST_NOISE
  if quiet or (full and accountant == 'pld'):
    return Profile(_exact(parts), overflow)
  if accountant == 'rdp':
    # Renyi's bound of a fixed size does not vanish with the noise.
    schemes = {part.sampling for part in parts}
    fixed = Sampling.FIXED_WITHOUT_REPLACEMENT in schemes
    ceiling = _exact(parts) if fixed else None
    curve = renyi(parts, ORDERS)
    return Profile(curve, overflow, _visible(parts), ceiling=ceiling)
  cell = cell or cell_width(parts)
  if math.isinf(cell):
    return Profile(_exact(parts), overflow)
  return Profile(_losses(parts, cell), overflow, _visible(parts), _LEAST_DELTA)


def _visible(parts: Parts) -> float:
  """Return a lower bound of the total variation distance: of one step."""
  return max(
    events.probability_of(part)
    * math.erf(1 / (math.sqrt(8) * events.noise_of(part)))
    for part in parts
  )


def _exact(parts: Parts) -> Exact:
  """Return the curve of full participation; replace-one moves 2C."""
  distances = []
  for part in parts:
    moved = 2 if part.adjacency is Adjacency.REPLACE_ONE else 1
    times = math.sqrt(events.participations(part))
    distances.append(times / events.noise_of(part) * moved)
  return Exact(math.hypot(*distances))


def renyi(parts: Parts, orders) -> Renyi:
  """Return the Renyi curve; inf at orders that do not converge."""
  total = np.zeros(len(orders))
  for part in parts:
    one = dataclasses.replace(part, steps=1)
    total = total + part.steps * _step_divergences(one, orders)
  return Renyi(orders, total)


@functools.lru_cache(maxsize=64)
def _step_divergences(part: GaussianMechanism, orders) -> np.ndarray:
  """Return one step's divergences, rounding put on the safe side."""
  from dp_accounting.rdp import RdpAccountant

  accountant = RdpAccountant(orders, events.relation(part.adjacency))
  try:
    accountant.compose(events.step_event(part, 'rdp'))
  except ValueError:  # a logarithm of what rounding has made 0
    return np.full(len(orders), np.inf)
  if part.sampling is Sampling.FULL:
    return accountant.rdp
  return np.maximum(accountant.rdp, 0) + _RENYI_ROUNDING


def rough_epsilon(parts: Parts, delta: float) -> float:
  """Return a quick estimate, no bound, by few Renyi orders; inf past 1e4."""
  rough = []
  for part in map(events.untruncated, parts):
    doubled = part.adjacency is Adjacency.REPLACE_ONE or (
      part.sampling is Sampling.TRUNCATED_POISSON
    )
    noise = part.noise_multiplier / (2 if doubled else 1)
    if noise < _LEAST_NOISE:
      return math.inf
    q, releases = events.probability_of(part), part.releases_per_step
    spec = noise, part.steps, Sampling.FULL if q == 1 else Sampling.POISSON, q
    rough.append(GaussianMechanism(*spec, releases_per_step=releases))
  epsilon = renyi(tuple(rough), _COARSE).get_epsilon_for_delta(delta)
  return epsilon if epsilon < _HOPELESS else math.inf


def cell_width(parts: Parts) -> float:
  """Return a width of cells that keeps their number bounded; inf if none."""
  return width(rough_epsilon(parts, 1e-6))


def width(epsilon: float) -> float:
  """Return the width of a cell of losses that are about `epsilon`."""
  return _CELL * max(1.0, epsilon / _WIDE)


def _losses(parts: Parts, cell: float):
  """Return the privacy loss distribution of the composition."""
  composed = []
  for part in parts:
    if part.sampling is Sampling.RANDOM_ALLOCATION:
      composed += allocation.epochs(part, cell)
      continue
    step = _step_losses(dataclasses.replace(part, steps=1), cell)
    composed.append(step.self_compose(part.steps))
  return functools.reduce(lambda a, b: a.compose(b), composed)


@functools.lru_cache(maxsize=4)
def _step_losses(part: GaussianMechanism, cell: float):
  """Return one step's privacy loss distribution."""
  from dp_accounting.pld import privacy_loss_distribution as pld

  noise, q = events.noise_of(part), part.sampling_probability
  spec = {
    'value_discretization_interval': cell,
    'neighboring_relation': events.relation(part.adjacency),
  }
  if part.sampling is Sampling.TRUNCATED_POISSON:
    population, cohort = events.sizes(part)
    return pld.from_truncated_subsampled_gaussian_mechanism(
      population, q, cohort, noise, **spec
    )
  return pld.from_gaussian_mechanism(noise, sampling_prob=q, **spec)
