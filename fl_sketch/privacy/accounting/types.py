"""Types that describe a private run's releases from public configuration."""

import dataclasses
import enum
import math
from typing import Any, Literal
import warnings

from fl_sketch.utils import checks

Unit = Literal['client', 'sample']
Trust = Literal['central', 'secure_aggregation', 'local']
TRUSTS = ('central', 'secure_aggregation', 'local')


class UnsupportedAccountingError(ValueError):
  """No valid analysis of this combination is implemented."""


class CalibrationError(ValueError):
  """No parameter within the search range meets the target."""


class Adjacency(enum.Enum):
  """Which two datasets are neighbours; L2 sensitivity of a C-clipped sum.

  C for ADD_OR_REMOVE_ONE and ZERO_OUT (one contribution becomes 0; also known
  as REPLACE_SPECIAL), 2C for REPLACE_ONE.

  Zero-out is of the contribution, not of the data: where a client without data,
  whose gradients are all 0, would still send something (a control variate, a
  residual of earlier rounds, decay of the weights), its neighbour under
  ZERO_OUT is no client that could take part. Its contribution may differ from
  that of the client with data by up to 2C, which REPLACE_ONE covers.
  """

  ADD_OR_REMOVE_ONE = 'add_or_remove_one'
  REPLACE_ONE = 'replace_one'
  ZERO_OUT = 'zero_out'
  REPLACE_SPECIAL = 'zero_out'


class Sampling(enum.Enum):
  """How a step chooses the units that take part.

  FULL is everyone. POISSON is an independent secret coin for each unit and
  step. TRUNCATED_POISSON keeps a uniform `max_cohort` of those when more come
  up. FIXED_WITHOUT_REPLACEMENT draws exactly `max_cohort` units uniformly,
  anew in each step. RANDOM_ALLOCATION gives each unit one of the `epoch_steps`
  steps of every epoch, by an independent secret coin (balls and bins); it
  keeps a uniform `max_cohort` of those of a step, if that is given.
  Round-robin, shuffled epochs and unions of batches are none of these: account
  them as FULL over the participations of one unit.
  """

  FULL = 'full'
  POISSON = 'poisson'
  TRUNCATED_POISSON = 'truncated_poisson'
  FIXED_WITHOUT_REPLACEMENT = 'fixed_without_replacement'
  RANDOM_ALLOCATION = 'random_allocation'


@dataclasses.dataclass(frozen=True)
class GaussianMechanism:
  """Steps that each add Gaussian noise to a sum of clipped contributions.

  One release is sum_i clip(u_i, C) + N(0, (noise_multiplier C)^2 I), the noise
  independent of who takes part and of how many do.

  Args:
    noise_multiplier: stddev of the noise on the sum / C; 0 is no privacy.
    steps: How often a cohort is drawn.
    sampling: How it is drawn.
    sampling_probability: The coin of POISSON and TRUNCATED_POISSON. 1 under
      FULL; under FIXED_WITHOUT_REPLACEMENT it is max_cohort / population, and
      under RANDOM_ALLOCATION 1 / epoch_steps: both may be left out.
    population: Number of units: of clients or of samples.
    max_cohort: Largest cohort; the exact one if the size is fixed.
    adjacency: Which datasets are neighbours.
    unit: What one contribution belongs to, and so what is protected.
    releases_per_step: Releases of one cohort in one step, each with noise of
      its own and each with contributions clipped to C.
    epoch_steps: Of RANDOM_ALLOCATION; the last epoch may be incomplete.

  Raises:
    TypeError: if a number is traced, or not Python's or NumPy's, or a bool.
    ValueError: if a number is out of its range or fields contradict another.

  >>> GaussianMechanism(noise_multiplier=1.0, steps=0)
  Traceback (most recent call last):
  ValueError: steps=0 must be >= 1.
  """

  noise_multiplier: float
  steps: int
  sampling: Sampling = Sampling.FULL
  sampling_probability: float = 1.0
  population: int | None = None
  max_cohort: int | None = None
  adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
  unit: Unit = 'client'
  releases_per_step: int = 1
  epoch_steps: int | None = None

  def __post_init__(self):
    checks.member('sampling', self.sampling, Sampling)
    checks.member('adjacency', self.adjacency, Adjacency)
    checks.choice('unit', self.unit, ('client', 'sample'))
    for name in 'noise_multiplier', 'sampling_probability':
      object.__setattr__(self, name, checks.real(name, getattr(self, name)))
    optional = 'population', 'max_cohort', 'epoch_steps'
    for name in 'steps', 'releases_per_step', *optional:
      value = getattr(self, name)
      if value is not None or name in ('steps', 'releases_per_step'):
        object.__setattr__(self, name, checks.count(name, value))
    checks.at_least('noise_multiplier', self.noise_multiplier, 0)
    if not 0 < self.sampling_probability <= 1:
      raise ValueError(
        f'sampling_probability={self.sampling_probability} is not in (0, 1].'
      )
    self._check_epoch()
    self._check_cohort()

  def _check_epoch(self):
    allocated = self.sampling is Sampling.RANDOM_ALLOCATION
    if allocated != (self.epoch_steps is not None):
      raise ValueError(
        f'epoch_steps={self.epoch_steps} with sampling='
        f"{self.sampling.value!r}: set it for 'random_allocation' alone."
      )
    if self.epoch_steps is None:
      return
    q, chance = self.sampling_probability, 1 / self.epoch_steps
    if not (q == 1 or math.isclose(q, chance)):
      raise ValueError(
        f'sampling_probability={q} is not 1 / epoch_steps = {chance}, as '
        "sampling='random_allocation' has it; leave it out."
      )
    object.__setattr__(self, 'sampling_probability', chance)

  def _check_cohort(self):
    plain = self.sampling in (Sampling.FULL, Sampling.POISSON)
    allocated = self.sampling is Sampling.RANDOM_ALLOCATION
    size, population = self.max_cohort, self.population
    q = self.sampling_probability
    if size is not None and population is not None and size > population:
      raise ValueError(
        f'max_cohort={size} exceeds {population=}; use a smaller one.'
      )
    whole = plain or (allocated and size is None)
    if not whole and (size is None or population is None):
      raise ValueError(
        f'sampling={self.sampling.value!r} requires population and max_cohort; '
        f'got population={population}, max_cohort={size}.'
      )
    if plain and size not in (None, population):
      raise ValueError(
        f'max_cohort={size} has no effect for '
        f'sampling={self.sampling.value!r}; remove it, set '
        f'population={population} to it, or use '
        f'{Sampling.TRUNCATED_POISSON.value!r}, which is cut off there.'
      )
    if self.sampling is Sampling.FULL and q != 1:
      raise ValueError(
        f"sampling_probability={q} has no effect for sampling='full'; use 1."
      )
    if self.sampling is Sampling.FIXED_WITHOUT_REPLACEMENT and not (
      q == 1 or math.isclose(q, size / population)  # pyright: ignore
    ):
      raise ValueError(
        f'sampling_probability={q} is not max_cohort / population = '
        f'{size / population}; leave it out.'  # pyright: ignore
      )


@dataclasses.dataclass(frozen=True)
class ComposedMechanism:
  """Mechanisms run one after another on the same data, adaptively.

  A part that is not a GaussianMechanism raises TypeError. Raises ValueError if
  there is none, or if parts differ in adjacency or unit.
  """

  parts: tuple[GaussianMechanism, ...]

  def __post_init__(self):
    object.__setattr__(self, 'parts', tuple(self.parts))
    if not self.parts:
      raise ValueError('len(parts)=0; compose one mechanism or more.')
    for part in self.parts:
      if not isinstance(part, GaussianMechanism):
        raise TypeError(f'The part {part!r} is no GaussianMechanism.')
    for field in 'adjacency', 'unit':
      values = {getattr(part, field) for part in self.parts}
      if len(values) > 1:
        names = sorted(getattr(value, 'value', value) for value in values)
        raise ValueError(f'All parts must have one {field}, got {names}.')


Mechanism = GaussianMechanism | ComposedMechanism


def parts_of(mechanism: Mechanism) -> tuple[GaussianMechanism, ...]:
  """Return the parts of a composition; a single mechanism is its only part.

  Anything else raises TypeError: a bound's float is no mechanism.
  """
  if isinstance(mechanism, ComposedMechanism):
    return mechanism.parts
  if isinstance(mechanism, GaussianMechanism):
    return (mechanism,)
  raise TypeError(
    'A mechanism is a GaussianMechanism or a ComposedMechanism, '
    f'got {type(mechanism).__name__}.'
  )


def warn_if_large(parts: tuple[GaussianMechanism, ...], delta: float) -> None:
  """Warn where delta >= 1 / population, which allows to publish one unit."""
  sizes = [part.population for part in parts if part.population is not None]
  if sizes and delta >= 1 / max(sizes):
    warnings.warn(
      f'delta={delta} >= 1 / population={max(sizes)} allows to publish one '
      f'{parts[0].unit} outright; use a smaller delta.',
      UserWarning,
      stacklevel=3,
    )


def plain(value: Any) -> Any:
  """Return `value` as JSON has it: enums as values, infinity as 'inf'."""
  if isinstance(value, dict):
    return {name: plain(inner) for name, inner in value.items()}
  if isinstance(value, tuple | list):
    return [plain(inner) for inner in value]
  if isinstance(value, enum.Enum):
    return value.value
  return 'inf' if value == math.inf else value
