"""Which sampling has an analysis under which adjacency, and by which proof.

| sampling | adjacency | accountants | proof |
| --- | --- | --- | --- |
| full | all | pld, rdp | pld: the closed form, exact |
| poisson | add/remove, zero-out | pld, rdp | dominating pair |
| poisson | replace-one | pld | dominating pair |
| truncated Poisson | add/remove | pld, rdp | coupling with exact Poisson |
| truncated Poisson | zero-out | pld | Ganesh et al., arXiv:2508.15089 |
| fixed size | replace-one | rdp | Theorem 27 of arXiv:1808.00087 at z / 2 |
| random allocation | add/remove, zero-out | pld | arXiv:2412.16802 |

The coupling (docs/concepts/accounting.md) also covers random allocation with a
largest cohort, and truncation that happens once in 1e15 steps at most.
"""

from collections.abc import Sequence
import dataclasses
import math

from fl_sketch.accounting import types
from fl_sketch.accounting.types import GaussianMechanism, Sampling
import scipy  # its packages load on first use

_RARE = 1e-15  # a chance of truncation at which the coupling is as tight
_ADD, _ZERO = types.Adjacency.ADD_OR_REMOVE_ONE, types.Adjacency.ZERO_OUT
_REPLACE = types.Adjacency.REPLACE_ONE
_ALL = _ADD, _ZERO, _REPLACE
_VALID = {
  Sampling.FULL: {'pld': _ALL, 'rdp': _ALL},
  Sampling.POISSON: {'pld': _ALL, 'rdp': (_ADD, _ZERO)},
  Sampling.TRUNCATED_POISSON: {'pld': (_ADD, _ZERO), 'rdp': (_ADD,)},
  Sampling.FIXED_WITHOUT_REPLACEMENT: {'rdp': (_REPLACE,)},
  Sampling.RANDOM_ALLOCATION: {'pld': (_ADD, _ZERO)},
}


def check_supported(part: GaussianMechanism, accountant: str) -> None:
  """Raise UnsupportedAccountingError unless the table has the triple."""
  proofs = _VALID[part.sampling]
  if part.adjacency not in proofs.get(accountant, ()):
    supported = {name: [x.value for x in proofs[name]] for name in proofs}
    raise types.UnsupportedAccountingError(
      f'sampling={part.sampling.value!r} has no analysis with adjacency='
      f'{part.adjacency.value!r} by {accountant=}; use one of {supported}.'
    )


def simplest(part: GaussianMechanism) -> GaussianMechanism:
  """Return the part; FULL if its sampling takes everyone in every step."""
  fixed = part.sampling is Sampling.FIXED_WITHOUT_REPLACEMENT
  everyone = part.max_cohort in (None, part.population)
  coins = part.sampling in (Sampling.POISSON, Sampling.RANDOM_ALLOCATION)
  if everyone and (fixed or (coins and part.sampling_probability == 1)):
    full = {'sampling': Sampling.FULL, 'sampling_probability': 1.0}
    return dataclasses.replace(part, **full, epoch_steps=None)
  return part


def untruncated(part: GaussianMechanism) -> GaussianMechanism:
  """Return the part without its largest cohort, where the coupling pays."""
  capped = part.max_cohort not in (None, part.population)
  if part.sampling is Sampling.RANDOM_ALLOCATION and capped:
    return dataclasses.replace(part, max_cohort=None)
  if part.sampling is not Sampling.TRUNCATED_POISSON:
    return part
  if part.adjacency is _ADD or _cut_off(part) <= _RARE:
    return dataclasses.replace(part, sampling=Sampling.POISSON, max_cohort=None)
  return part


def overflow_probability(part: GaussianMechanism) -> float:
  """Return a bound of P[any cohort is truncated]; 0 without the coupling."""
  if untruncated(part) is part:
    return 0.0
  return min(1.0, part.steps * _cut_off(part))


def _cut_off(part: GaussianMechanism) -> float:
  """Return P[Binom(population + 1, q) > max_cohort], for one step."""
  population, cohort = part.sizes
  q = part.sampling_probability
  return float(scipy.stats.binom.sf(cohort, population + 1, q))


def noise_of(part: GaussianMechanism) -> float:
  """Return the noise multiplier of one release equal to all of a step's."""
  return part.noise_multiplier / math.sqrt(part.releases_per_step)


def distance(parts: Sequence[GaussianMechanism]) -> float:
  """Return the distance of the unit normals of full participation."""
  return math.hypot(*map(_distance, parts))


def _distance(part: GaussianMechanism) -> float:
  moved = 2 if part.adjacency is _REPLACE else 1  # the sum, by 2C
  return math.sqrt(participations(part)) / noise_of(part) * moved


def probability_of(part: GaussianMechanism) -> float:
  """Return a lower bound of the probability that a unit takes part."""
  if part.max_cohort is None:
    return part.sampling_probability
  population, cohort = part.sizes
  return part.sampling_probability * cohort / population


def participations(part: GaussianMechanism) -> int:
  """Return in how many steps a unit takes part at most."""
  return -(-part.steps // (part.epoch_steps or 1))


def step_event(part: GaussianMechanism):
  """Return one step as an event for dp_accounting's Renyi accountant.

  The accountant uses sensitivity C under replace-one, where it is 2C
  (google/differential-privacy issue 378): the event has half the multiplier.
  """
  import dp_accounting

  noise = noise_of(part)
  if part.adjacency is _REPLACE:
    noise /= 2
  event = dp_accounting.GaussianDpEvent(noise)
  if part.sampling is Sampling.POISSON:
    return dp_accounting.PoissonSampledDpEvent(part.sampling_probability, event)
  if part.sampling is Sampling.FIXED_WITHOUT_REPLACEMENT:
    return dp_accounting.SampledWithoutReplacementDpEvent(*part.sizes, event)
  return event


def relation(adjacency: types.Adjacency):
  """Return dp_accounting's name of the adjacency."""
  from dp_accounting import NeighboringRelation

  special = adjacency is _ZERO
  return NeighboringRelation['REPLACE_SPECIAL' if special else adjacency.name]
