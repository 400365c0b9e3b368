"""Derive the DP mechanism and its accounting from one config.

`release_of` (what the algorithm does) and `guarantee` (what the accountant
computes) read the same fields, here and nowhere else, so they cannot disagree.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any, NamedTuple, cast

from fl_sketch import accounting
from fl_sketch.accounting import hypothesis_tests, statements, types
from fl_sketch.accounting.correlation import Correlation, square_root
from fl_sketch.data import batches, cohorts
from fl_sketch.data.partitions import Partition
from fl_sketch.privacy.mechanisms import grid, private_mean, private_metrics
from fl_sketch.runs import caveats
from fl_sketch.runs.config import Config
import numpy as np

_ZERO_OUT, _REPLACE = types.Adjacency.ZERO_OUT, types.Adjacency.REPLACE_ONE
_BANDS = 16  # of noise that is correlated over rounds
# Adjacency by trust, where the server sees who takes part.
_NATURAL = {'secure_aggregation': _ZERO_OUT, 'local': _REPLACE}
# Release and its fields that are fields of a config, by trust.
_RELEASES: Mapping[str, tuple[Callable[..., private_mean.Release], set[str]]]
_RELEASES = {
  'central': (private_mean.CentralRelease,
    {'bound', 'before_sketch', 'quantile', 'quantile_lr', 'count_stddev'}),
  'secure_aggregation': (private_mean.DistributedRelease,
    {'bound', 'min_honest', 'neighbours'}),
  'local': (private_mean.LocalRelease, {'bound'}),
}  # fmt: skip


class PrivacyGuarantee(NamedTuple):
  """The DP guarantee of a private run, and the noise that provides it."""

  mechanism: types.GaussianMechanism  # of the whole run, at simulated size
  statement: statements.PrivacyStatement  # likewise
  steps_per_round: int  # how often a round draws a cohort or a batch
  noise_scale: float = 1.0  # cohort / simulated_cohort
  correlation: Correlation | None = None  # of noise over rounds, if any
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
    if self.correlation is None:
      steps = tuple(self.steps_per_round * r for r in rounds)
      return list(_curve(mechanism, steps, **options))
    spec = {
      'adjacency': mechanism.adjacency,
      'releases_per_step': mechanism.releases_per_step,
    }
    of_rounds = functools.partial(
      self.correlation.mechanism, self.stated_multiplier, **spec
    )
    return [_epsilon(of_rounds(count), **options) for count in rounds]


def release_of(config: Config) -> private_mean.Release | None:
  """Return the private mean of a config; None without user-level privacy."""
  if not config.is_private or config.privacy_unit == 'sample':
    return None
  make, names = _RELEASES[config.trust or 'central']
  options = config.subset(names)
  options['max_cohort'] = max_cohort(config) or config.cohort
  if config.per_layer is not None:
    options['per_leaf'] = config.per_layer
  if config.bound == 'quantile':  # a twentieth of the cohort, as printed
    options.setdefault('count_stddev', config.cohort / 20)
  if config.noise == 'banded':
    options['correlation'] = correlation_of(config)
  return make(expected_cohort(config), **options)


def max_cohort(config: Config) -> int | None:
  """Return the size above which random cohorts are cut off; None elsewhere."""
  is_random = config.sampling in cohorts.RANDOM_SIZE
  if config.max_cohort is not None or not is_random:
    return config.max_cohort
  # The probability that a cohort is cut off: accounted for in a private run.
  tail = batches.TAIL if config.is_private else 1e-9
  return cohorts.default_max_cohort(
    config.population, config.sampling_probability, tail
  )


def guarantee(
  config: Config,
  releases: int,
  partition: Partition | None = None,
  **behaviour: Any,
) -> PrivacyGuarantee:
  """Return the DP guarantee of a private config.

  releases: of a round; partition: required by example-level privacy;
  behaviour: of clients, see `caveats.caveats`. Raises
  `UnsupportedAccountingError` or `CalibrationError`, which are ValueErrors.
  """
  assert config.delta is not None  # the config is private
  trust: types.Trust = 'local'
  if config.privacy_unit == 'sample':
    assert partition is not None
    steps_per_round, correlation = releases, None
    spec = _samples(config, releases, partition)
    units = int(np.sum(partition.sizes))
  else:
    stated = at_scale(config)
    steps_per_round = 1
    trust = cast(types.Trust, config.trust or 'central')
    spec, units = _clients(stated, releases), stated.population
    correlation = correlation_of(config)
  sensitivity = correlation.sensitivity(config.rounds) if correlation else 1.0
  fixed = spec['sampling'] is types.Sampling.FIXED_WITHOUT_REPLACEMENT
  accountant = config.accountant or ('rdp' if fixed else 'pld')
  options = {'delta': config.delta, 'accountant': accountant}
  if config.noise_multiplier is None:
    z = _calibrated(epsilon=config.epsilon, **options, **spec)
  else:
    z = config.noise_multiplier / sensitivity
  mechanism = types.GaussianMechanism(noise_multiplier=z, **spec)
  noise_scale, noise = 1.0, statements.NOISE[config.noise_seed is not None]
  simulation: tuple[str, ...] = ()
  if config.simulated_cohort is not None:
    simulation = (caveats.simulation(config, at_scale(config)),)
    noise_scale = config.cohort / config.simulated_cohort
    noise = statements.NOISE[2]
  _check_noise(config, z * sensitivity * noise_scale)
  budget, price = metrics_budget(config), ''
  if budget is not None:
    price = budget.sentence(z * sensitivity, mechanism.releases_per_step)
  said = caveats.caveats(
    config, mechanism, trust, correlation, metrics=price, **behaviour
  )
  statement = statements.PrivacyStatement(
    _epsilon(mechanism, **options), config.delta, accountant, mechanism, trust,
    units=units, noise=noise, caveats=(*simulation, *said),
    mu=_mu(mechanism, **options),
    true_positive_rate=_true_positives(mechanism, accountant=accountant),
  )  # fmt: skip
  return PrivacyGuarantee(
    mechanism, statement, steps_per_round, noise_scale, correlation, sensitivity
  )


def correlation_of(config: Config) -> Correlation | None:
  """Return the correlation of a private config's noise over rounds, or None.

  Under cyclic sampling, independent noise has one of one band.
  """
  separation = cohorts.groups(config.population, config.cohort)
  if config.noise == 'banded':
    rounds = config.hash_rounds or config.rounds
    weights = square_root(config.noise_bands or min(_BANDS, rounds))
    return Correlation(weights, rounds, separation)
  if config.sampling == 'cyclic':
    return Correlation(square_root(1), 1, separation)
  return None


def expected_cohort(config: Config) -> float:
  """Return the expected size of a cohort."""
  if config.sampling == 'cyclic':
    return config.population / cohorts.groups(config.population, config.cohort)
  return float(config.cohort)


def metrics_budget(config: Config) -> private_metrics.Budget | None:
  """Return the budget of metrics; None unless public_metrics is 'private'."""
  if config.public_metrics != 'private':
    return None
  expected, most = expected_cohort(config), max_cohort(config) or config.cohort
  return private_metrics.Budget(expected, most, **config.subset(['loss_bound']))


def at_scale(config: Config) -> Config:
  """Return the config of the simulated cohort; this one if there is none.

  Its population is larger in proportion, so that probabilities are the same.
  """
  cohort = config.simulated_cohort
  if cohort is None:
    return config
  population = config.population * cohort // config.cohort
  return dataclasses.replace(
    config, cohort=cohort, population=population, simulated_cohort=None
  )


def _check_noise(config: Config, z: float):
  """Refuse noise that the grid, or a bound by a quantile, cannot have."""
  release = release_of(config)
  if release is None:
    return
  least = grid.least_multiplier(release.clients, *release.shares())
  if 0 < z < least:
    raise ValueError(
      f'noise_multiplier={z:.3g} is too small for sums over '
      f'{release.clients:,} clients; use 0 or >= {least:.3g}.'
    )
  is_central = isinstance(release, private_mean.CentralRelease)
  if is_central and release.count_stddev is not None:
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


def _clients(config: Config, releases: int) -> dict[str, Any]:
  """Return the arguments of the user-level mechanism."""
  spec: dict[str, Any] = {
    'steps': config.rounds, 'releases_per_step': releases, 'unit': 'client',
  }  # fmt: skip
  sampling, natural = types.Sampling.FULL, types.Adjacency.ADD_OR_REMOVE_ONE
  correlation = correlation_of(config)
  if correlation is not None:  # the order is known: no amplification
    spec['steps'] = correlation.releases(config.rounds)
    if config.sampling == 'cyclic':  # the order is made for all clients
      natural = _ZERO_OUT
  elif config.trust in _NATURAL:  # participants are seen: no amplification
    natural = _NATURAL[config.trust]
  elif config.sampling in cohorts.RANDOM_SIZE:
    spec['sampling_probability'] = config.sampling_probability
    most = max_cohort(config)
    spec |= {'population': config.population, 'max_cohort': most}
    sampling = types.Sampling.TRUNCATED_POISSON
    if config.sampling == 'random_allocation':
      sampling = types.Sampling.RANDOM_ALLOCATION
      spec['epoch_steps'] = config.allocation_rounds
    elif most is None or most >= config.population:  # cohorts are never cut off
      sampling = types.Sampling.POISSON
  elif config.cohort < config.population:
    sampling = types.Sampling.FIXED_WITHOUT_REPLACEMENT
    natural = _REPLACE
    spec |= {'population': config.population, 'max_cohort': config.cohort}
  adjacency = types.Adjacency(config.adjacency or natural)
  return spec | {'sampling': sampling, 'adjacency': adjacency}


def _samples(
  config: Config, releases: int, partition: Partition
) -> dict[str, Any]:
  """Return the arguments of the worst client's example-level mechanism."""
  from scipy import stats  # slow to import

  # The sampling probability of the smallest client; a batch is cut off at least
  # as often as that of the largest. The number of samples of a client sets that
  # probability and is public: hence zero-out.
  sizes = np.asarray(partition.sizes)
  low, high = int(sizes.min()), int(sizes.max())
  _, most = batches.poisson_limits(partition, config.batch_size)
  q, cut = config.batch_size / low, min(most, low)
  chance = stats.binom.sf(most, high + 1, config.batch_size / high)
  while cut > 1 and stats.binom.sf(cut, low + 1, q) < chance:
    cut -= 1
  sampling = types.Sampling.TRUNCATED_POISSON
  if most >= high:  # batches are never cut off
    sampling, cut = types.Sampling.POISSON, low
  return {
    'steps': config.rounds * releases, 'unit': 'sample', 'sampling': sampling,
    'sampling_probability': q, 'population': low, 'max_cohort': cut,
    'adjacency': types.Adjacency(config.adjacency or _ZERO_OUT),
  }  # fmt: skip
