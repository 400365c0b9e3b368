"""What a private run releases, as public numbers."""

import dataclasses
import enum
import json
import math
from typing import Any, Literal
import warnings

from fl_sketch.utils import UserError, checks

Unit = Literal['client', 'sample']
Trust = Literal['central', 'secure_aggregation', 'local']
TRUSTS = ('central', 'secure_aggregation', 'local')


class UnsupportedAccountingError(UserError, ValueError):
  """No valid analysis of this combination is implemented."""


class CalibrationError(UserError, ValueError):
  """No parameter within the search range meets the target."""


class Adjacency(enum.Enum):
  """Which two datasets are neighbours; L2 sensitivity of a C-clipped sum.

  C for ADD_OR_REMOVE_ONE and ZERO_OUT (one contribution becomes 0), 2C for
  REPLACE_ONE. ZERO_OUT is about the contribution: where a client without data
  would still send something (a control variate, weight decay), use REPLACE_ONE.
  """

  ADD_OR_REMOVE_ONE = 'add_or_remove_one'
  REPLACE_ONE = 'replace_one'
  ZERO_OUT = 'zero_out'


class Sampling(enum.Enum):
  """How a step chooses the units that take part.

  FULL: everyone. POISSON: an independent secret coin for each unit and step.
  TRUNCATED_POISSON: POISSON, of which a uniform subset of `max_cohort` is kept.
  FIXED_WITHOUT_REPLACEMENT: a uniform subset of `max_cohort` units in each
  step. RANDOM_ALLOCATION: each unit takes part in one of the `epoch_steps`
  steps of every epoch, by an independent secret coin (balls and bins); of a
  step's units a uniform subset of `max_cohort` is kept, if that is given.
  Account round-robin and shuffled epochs as FULL, over the participations of
  one unit.
  """

  FULL = 'full'
  POISSON = 'poisson'
  TRUNCATED_POISSON = 'truncated_poisson'
  FIXED_WITHOUT_REPLACEMENT = 'fixed_without_replacement'
  RANDOM_ALLOCATION = 'random_allocation'


@dataclasses.dataclass(frozen=True)
class GaussianMechanism:
  """Steps that each add Gaussian noise to a sum of clipped contributions.

  One release is sum_i clip(u_i, C) + N(0, (noise_multiplier C)^2 I). The noise
  is independent of who takes part and of how many do.

  Raises TypeError if a number is traced, and ValueError if one is out of its
  range or fields contradict each other.
  """

  noise_multiplier: float  # stddev of the noise on the sum / C; 0: no privacy
  steps: int  # how often a cohort is drawn
  sampling: Sampling = Sampling.FULL  # how it is drawn
  # The coin of POISSON and TRUNCATED_POISSON. Leave it out for the other three,
  # where it follows.
  sampling_probability: float = 1.0
  population: int | None = None  # number of units: of clients or of samples
  max_cohort: int | None = None  # the exact one if the size is fixed
  adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
  unit: Unit = 'client'  # what one contribution belongs to, and is protected
  # Of one cohort in a step, each with noise of its own on contributions of C.
  releases_per_step: int = 1
  epoch_steps: int | None = None  # of RANDOM_ALLOCATION; the last may be cut

  def __post_init__(self):
    for name, kind in ('sampling', Sampling), ('adjacency', Adjacency):
      if not isinstance(getattr(self, name), kind):
        raise TypeError(f'{name} must be a member of {kind.__name__}.')
    checks.choice('unit', self.unit, ('client', 'sample'))
    for name in 'noise_multiplier', 'sampling_probability':
      object.__setattr__(self, name, checks.real(name, getattr(self, name)))
    for name in 'steps', 'releases_per_step':
      object.__setattr__(self, name, checks.count(name, getattr(self, name)))
    for name in 'population', 'max_cohort', 'epoch_steps':
      if (value := getattr(self, name)) is not None:
        object.__setattr__(self, name, checks.count(name, value))
    checks.at_least('noise_multiplier', self.noise_multiplier, 0)
    q = self.sampling_probability
    if not 0 < q <= 1:
      raise ValueError(f'sampling_probability={q} is not in (0, 1].')
    self._check_cohort()
    self._check_probability()

  def _check_cohort(self):
    kind, size, population = self.sampling, self.max_cohort, self.population
    allocated = kind is Sampling.RANDOM_ALLOCATION
    if allocated != (self.epoch_steps is not None):
      raise ValueError(f'{kind} with epoch_steps={self.epoch_steps}.')
    if size is not None and population is not None and size > population:
      raise ValueError(f'max_cohort={size} exceeds {population=}.')
    if kind in (Sampling.FULL, Sampling.POISSON):
      if size not in (None, population):
        raise ValueError(f"{kind} has no max_cohort; use 'truncated_poisson'.")
    elif None in (size, population) and not (allocated and size is None):
      raise ValueError(f'{kind} requires population and max_cohort; set both.')

  def _check_probability(self):
    q = self.sampling_probability
    implied = 1.0  # of FULL
    if self.sampling is Sampling.FIXED_WITHOUT_REPLACEMENT:
      population, cohort = self.sizes
      implied = cohort / population
    elif self.epoch_steps is not None:
      implied = 1 / self.epoch_steps
    elif self.sampling is not Sampling.FULL:
      return
    if q != 1 and not math.isclose(q, implied):
      raise ValueError(
        f'sampling_probability={q} must be {implied} for {self.sampling}.'
      )
    if self.sampling is Sampling.RANDOM_ALLOCATION:
      object.__setattr__(self, 'sampling_probability', implied)

  @property
  def sizes(self) -> tuple[int, int]:
    """Return (population, max_cohort), which this mechanism must have."""
    assert self.population is not None
    assert self.max_cohort is not None
    return self.population, self.max_cohort


@dataclasses.dataclass(frozen=True)
class ComposedMechanism:
  """Mechanisms run one after another on the same data, adaptively.

  Raises ValueError if there is none, or they differ in adjacency or unit.
  """

  parts: tuple[GaussianMechanism, ...]

  def __post_init__(self):
    object.__setattr__(self, 'parts', tuple(self.parts))
    values = {(part.adjacency, part.unit) for part in self.parts}
    if len(values) != 1:
      raise ValueError(f'All parts must have one adjacency and unit: {values}.')


Mechanism = GaussianMechanism | ComposedMechanism


def parts_of(mechanism: Mechanism) -> tuple[GaussianMechanism, ...]:
  """Return the parts of a composition; a single mechanism is its only part."""
  is_composed = isinstance(mechanism, ComposedMechanism)
  return mechanism.parts if is_composed else (mechanism,)


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

  def default(x: Any) -> Any:
    return x.value if isinstance(x, enum.Enum) else x.item()

  def constant(name: str) -> str | float:
    return 'inf' if name == 'Infinity' else float(name)

  return json.loads(json.dumps(value, default=default), parse_constant=constant)
