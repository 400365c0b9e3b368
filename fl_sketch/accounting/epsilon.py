"""Epsilon and delta of a mechanism.

`'pld'` (privacy loss distributions) is tight, and exact for full participation;
`'rdp'` (Renyi) is looser. `events` lists the supported combinations.
"""

from collections.abc import Iterable, Sequence
import dataclasses
import itertools

from fl_sketch.accounting import profiles, types
from fl_sketch.accounting.types import GaussianMechanism, Mechanism
from fl_sketch.utils import checks


def compute_epsilon(
  mechanism: Mechanism, *, delta: float, accountant: str = 'pld'
) -> float:
  """Return an epsilon for which the mechanism is (epsilon, delta)-private.

  An upper bound, rounding included, and exact for full participation by 'pld';
  infinite without noise, never NaN, and 0 only where the total variation
  distance allows it. Added releases lower it by at most a relative 1e-7; inside
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
  lengths = [dataclasses.replace(mechanism, steps=count) for count in steps]
  options = {'delta': delta, 'accountant': accountant}
  return [compute_epsilon(length, **options) for length in lengths]


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
