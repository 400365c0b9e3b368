"""Derives the DP mechanism and its accounting from one config.

What the algorithm does (`release_of`) and what the accountant computes
(`guarantee`) come from the same fields here, and nowhere else, so they cannot
disagree. A combination whose epsilon is not known is refused, here or in
`fields.privacy`.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

from fl_sketch.data import batches, cohorts
from fl_sketch.experiment import published
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import hypothesis_tests, statements, types
from fl_sketch.privacy.accounting.correlation import Correlation, square_root
from fl_sketch.privacy.mechanisms import grid, private_mean, private_metrics
import numpy as np

_ZERO_OUT, _REPLACE = types.Adjacency.ZERO_OUT, types.Adjacency.REPLACE_ONE
_BANDS = 16  # of noise that is correlated over rounds
_NATURAL = {'secure_aggregation': _ZERO_OUT, 'local': _REPLACE}
# Fields that a `Release` takes as they are.
_OF_RELEASE = (
  'bound', 'trust', 'before_sketch', 'min_honest', 'neighbours', 'quantile',
  'quantile_lr', 'count_stddev',
)  # fmt: skip


class PrivacyGuarantee(NamedTuple):
  """The DP guarantee of a private run, and the noise that provides it.

  With a noise scale below 1 the clients that train stand for a larger cohort,
  whose mechanism and statement these are. A correlation is of noise over
  rounds, or of independent noise where clients take part at known intervals.
  """

  mechanism: types.GaussianMechanism  # of the whole run
  statement: statements.PrivacyStatement  # of the whole run
  steps_per_round: int  # how often a round draws a cohort or a batch
  noise_scale: float = 1.0  # of noise on the sum of the clients that train
  correlation: Correlation | None = None  # None elsewhere
  sensitivity: float = 1.0  # noise of a draw over that of the mechanism

  @property
  def stated_multiplier(self) -> float:
    """Noise multiplier of the config, or calibrated to its epsilon."""
    return self.mechanism.noise_multiplier * self.sensitivity

  @property
  def noise_multiplier(self) -> float:
    """The same on the sum over the clients that train."""
    return self.stated_multiplier * self.noise_scale

  def epsilons(self, rounds: Sequence[int]) -> list[float]:
    """Epsilon after each number of rounds, at the delta of the statement."""
    statement, mechanism = self.statement, self.mechanism
    options = {'delta': statement.delta, 'accountant': statement.accountant}
    if self.correlation is not None:
      z, kept = self.stated_multiplier, ('adjacency', 'releases_per_step')
      spec = {name: getattr(mechanism, name) for name in kept}
      parts = [self.correlation.mechanism(z, r, **spec) for r in rounds]
      return [_epsilon(part, **options) for part in parts]
    steps = tuple(self.steps_per_round * r for r in rounds)
    return list(_curve(mechanism, steps, **options))


def release_of(c: Any) -> private_mean.Release | None:
  """Private aggregation of a config; None without user-level privacy.

  Example-level privacy is that of local work: the mean itself is not private.
  """
  if not c.is_private or c.privacy_unit == 'sample':
    return None
  options = c.given(_OF_RELEASE) | {'max_cohort': max_cohort(c) or c.cohort}
  if c.per_layer is not None:
    options['per_leaf'] = c.per_layer
  if c.bound == 'quantile':  # a twentieth of the cohort, as printed
    options.setdefault('count_stddev', c.cohort / 20)
  if c.noise == 'banded':
    options['correlation'] = correlation_of(c)
  return private_mean.Release(expected_cohort(c), **options)


def max_cohort(c: Any) -> int | None:
  """The largest cohort of a config whose cohorts are of random size."""
  if c.max_cohort is not None or c.sampling not in cohorts.RANDOM_SIZE:
    return c.max_cohort
  # Larger cohorts are cut off; in a private run, at a chance within delta.
  tail = batches.TAIL if c.is_private else 1e-9
  return cohorts.default_max_cohort(c.population, c.sampling_probability, tail)


def guarantee(
  c: Any, releases: int, partition: Any = None, **behaviour: Any
) -> PrivacyGuarantee:
  """The DP guarantee of a private config.

  `releases` are `Algorithm.releases`; `partition` is needed for example-level
  privacy; `behaviour` is of clients, as of `published.caveats`.

  Raises:
    UnsupportedAccountingError: this combination has no privacy analysis.
    CalibrationError: no noise multiplier reaches the epsilon.
  """
  unit, over_rounds = c.privacy_unit, None
  if unit == 'sample':
    per_round, trust, spec = releases, 'local', _samples(c, releases, partition)
    units = int(np.sum(partition.sizes))
  else:
    stated = at_scale(c)
    per_round, trust, units = 1, c.trust or 'central', stated.population
    spec = _clients(stated, releases)
    over_rounds = correlation_of(c)
  sensitivity = 1 if over_rounds is None else over_rounds.sensitivity(c.rounds)
  fixed = spec['sampling'] is types.Sampling.FIXED_WITHOUT_REPLACEMENT
  accountant = c.accountant or ('rdp' if fixed else 'pld')
  options = {'delta': c.delta, 'accountant': accountant}
  if c.noise_multiplier is None:
    z = _calibrated(epsilon=c.epsilon, **options, **spec)
  else:
    z = c.noise_multiplier / sensitivity
  mechanism = types.GaussianMechanism(noise_multiplier=z, **spec)
  epsilon = _epsilon(mechanism, **options)
  simulated, scale, said = c.simulated_cohort is not None, 1.0, ()
  if simulated:
    large, scale = at_scale(c), c.cohort / c.simulated_cohort
    said = (
      f'Not private: a simulation of a cohort of {large.cohort} clients of '
      f'{large.population} by {c.cohort} of {c.population}, whose mean has the '
      'noise of the large cohort; the guarantee is that of the large run.',
    )
  _check_noise(c, z * sensitivity * scale)
  budget, price = metrics_budget(c), ''
  whose = c, mechanism, trust, over_rounds
  if budget is not None:
    price = budget.sentence(z * sensitivity, mechanism.releases_per_step)
  statement = statements.PrivacyStatement(
    epsilon, c.delta, accountant, mechanism, trust, units=units,
    noise=statements.NOISE[2 if simulated else c.noise_seed is not None],
    caveats=said + published.caveats(*whose, metrics=price, **behaviour),
    mu=_mu(mechanism, **options),
    true_positive_rate=_true_positives(mechanism, accountant=accountant),
  )  # fmt: skip
  return PrivacyGuarantee(
    mechanism, statement, per_round, scale, over_rounds, sensitivity
  )


def correlation_of(c: Any) -> Correlation | None:
  """The correlation of a private config's noise over rounds, or None.

  That of independent noise under cyclic sampling says how often a client takes
  part.
  """
  apart = cohorts.groups(c.population, c.cohort)
  if c.noise == 'banded':
    rounds = c.hash_rounds or c.rounds
    weights = square_root(c.noise_bands or min(_BANDS, rounds))
    return Correlation(weights, rounds, apart)
  if c.sampling == 'cyclic':
    return Correlation(square_root(1), 1, apart)
  return None


def expected_cohort(c: Any) -> float:
  """The mean size of the groups of cyclic sampling; else the cohort."""
  if c.sampling == 'cyclic':
    return c.population / cohorts.groups(c.population, c.cohort)
  return float(c.cohort)


def metrics_budget(c: Any) -> private_metrics.Budget | None:
  """Returns the budget of metrics; None unless public_metrics is 'private'."""
  if c.public_metrics != 'private':
    return None
  given = {'share': c.metrics_share, 'loss_bound': c.loss_bound}
  given = {k: v for k, v in given.items() if v is not None}
  expected, most = expected_cohort(c), max_cohort(c) or c.cohort
  return private_metrics.Budget(expected, most, **given)


def at_scale(c: Any) -> Any:
  """The config of the cohort that is simulated; `c` itself if there is none.

  Its population is larger in proportion, so that probabilities are the same.
  """
  if (cohort := c.simulated_cohort) is None:
    return c
  sizes = {'cohort': cohort, 'population': c.population * cohort // c.cohort}
  return dataclasses.replace(c, **sizes, simulated_cohort=None)


def _check_noise(c, z):
  """Refuses noise that the grid, or a bound by a quantile, cannot have."""
  release = release_of(c)
  if release is None:
    return
  least = grid.least_multiplier(release.clients, *release.shares())
  if 0 < z < least:
    raise ValueError(
      f'noise_multiplier={z:.3g} is too small for sums over '
      f'{release.clients:,} clients; use 0 or >= {least:.3g}.'
    )
  if release.count_stddev is not None:
    most = 2 * release.count_stddev
    if not 0 < z < most:
      raise ValueError(
        f"bound='quantile' requires noise_multiplier={z} in (0, {most}), below "
        '2 count_stddev; change one of them.'
      )


# Points of a sweep repeat the same values.
_curve = functools.cache(accounting.epsilon_curve)
_epsilon = functools.cache(accounting.compute_epsilon)
_calibrated = functools.cache(accounting.calibrate_noise_multiplier)
_mu = functools.cache(hypothesis_tests.mu)
_true_positives = functools.cache(hypothesis_tests.true_positive_rate)


def _clients(c, releases) -> dict[str, Any]:
  """The fields of the user-level mechanism."""
  spec = {'steps': c.rounds, 'releases_per_step': releases, 'unit': 'client'}
  sampling, natural = types.Sampling.FULL, types.Adjacency.ADD_OR_REMOVE_ONE
  over_rounds = correlation_of(c)
  if over_rounds is not None:  # an order that is known: no amplification
    spec['steps'] = over_rounds.releases(c.rounds)
    if c.sampling == 'cyclic':  # the order is made for all of them
      natural = _ZERO_OUT
  elif c.trust in _NATURAL:  # the server sees participants: no amplification
    natural = _NATURAL[c.trust]
  elif c.sampling in cohorts.RANDOM_SIZE:
    spec['sampling_probability'] = c.sampling_probability
    most = max_cohort(c)
    spec |= {'population': c.population, 'max_cohort': most}
    sampling = types.Sampling.TRUNCATED_POISSON
    if c.sampling == 'random_allocation':
      sampling = types.Sampling.RANDOM_ALLOCATION
      spec['epoch_steps'] = c.allocation_rounds
    elif most >= c.population:  # cohorts are never cut off
      sampling = types.Sampling.POISSON
  elif c.cohort < c.population:
    sampling = types.Sampling.FIXED_WITHOUT_REPLACEMENT
    natural = _REPLACE
    spec |= {'population': c.population, 'max_cohort': c.cohort}
  adjacency = types.Adjacency(c.adjacency or natural)
  return spec | {'sampling': sampling, 'adjacency': adjacency}


def _samples(c, releases, partition) -> dict[str, Any]:
  """The fields of the example-level mechanism of the worst client."""
  from scipy import stats  # slow to import

  # The sampling probability of the smallest client; a batch is cut off at least
  # as often as that of the largest. The number of samples of a client sets that
  # probability and is public: hence zero-out.
  sizes = np.asarray(partition.sizes)
  low, high = int(sizes.min()), int(sizes.max())
  _, most = batches.poisson_limits(partition, c.batch_size)
  q, cut = c.batch_size / low, min(most, low)
  chance = stats.binom.sf(most, high + 1, c.batch_size / high)
  while cut > 1 and stats.binom.sf(cut, low + 1, q) < chance:
    cut -= 1
  sampling = types.Sampling.TRUNCATED_POISSON
  if most >= high:  # batches are never cut off
    sampling, cut = types.Sampling.POISSON, low
  return {
    'steps': c.rounds * releases, 'unit': 'sample', 'sampling': sampling,
    'sampling_probability': q, 'population': low, 'max_cohort': cut,
    'adjacency': types.Adjacency(c.adjacency or _ZERO_OUT),
  }  # fmt: skip
