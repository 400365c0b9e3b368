"""Derive the DP mechanism and its accounting from one config.

`release_of` (what the algorithm does) and `guarantee` (what the accountant
computes) read the same fields, here and nowhere else, so they cannot disagree.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any, NamedTuple

from fl_sketch import accounting
from fl_sketch.accounting import hypothesis_tests, statements, types
from fl_sketch.accounting.correlation import Correlation, square_root
from fl_sketch.data import batches, cohorts
from fl_sketch.data.partitions import Partition
from fl_sketch.privacy.mechanisms import grid, private_mean, private_metrics
from fl_sketch.runs import caveats
from fl_sketch.runs.config import Config
from fl_sketch.runs.fields.run import given
import numpy as np

_ZERO_OUT, _REPLACE = types.Adjacency.ZERO_OUT, types.Adjacency.REPLACE_ONE
_BANDS = 16  # of noise that is correlated over rounds
# Adjacency by trust, where the server sees who takes part.
_NATURAL = {'secure_aggregation': _ZERO_OUT, 'local': _REPLACE}


class PrivacyGuarantee(NamedTuple):
  """The DP guarantee of a private run, and the noise that provides it."""

  mechanism: types.GaussianMechanism  # of the whole run
  statement: statements.PrivacyStatement  # likewise
  steps_per_round: int  # how often a round draws a cohort or a batch
  correlation: Correlation | None = None  # of noise over rounds, if any
  sensitivity: float = 1.0  # noise of a draw over that of the mechanism

  @property
  def stated_multiplier(self) -> float:
    """Noise multiplier of the config, or calibrated to its epsilon."""
    return self.mechanism.noise_multiplier * self.sensitivity

  @property
  def noise_multiplier(self) -> float:
    """The same on the sum over the clients that train."""
    return self.stated_multiplier

  @property
  def round_cost(self) -> float | None:
    """What a round's releases may cost: the sum of 1 / noise_multiplier^2.

    None: there is no noise, and so no guarantee.
    """
    z = self.noise_multiplier
    count = self.steps_per_round * self.mechanism.releases_per_step
    return count / z**2 if z else None

  def epsilons(self, rounds: Sequence[int]) -> list[float]:
    """Epsilon after each number of rounds, at the delta of the statement."""
    statement, mechanism = self.statement, self.mechanism
    options = {'delta': statement.delta, 'accountant': statement.accountant}
    if self.correlation is None:
      steps = tuple(self.steps_per_round * r for r in rounds)
      return list(_curve(mechanism, steps, **options))
    mechanisms = (
      self.correlation.mechanism(
        self.stated_multiplier, count, adjacency=mechanism.adjacency,
        releases_per_step=mechanism.releases_per_step,
      )
      for count in rounds
    )  # fmt: skip
    return [_epsilon(each, **options) for each in mechanisms]


def release_of(config: Config) -> private_mean.Release | None:
  """Return the private mean of a config; None without user-level privacy."""
  if not config.is_private or config.privacy_unit == 'sample':
    return None
  options = given(
    expected_cohort=expected_cohort(config), bound=config.bound,
    per_leaf=config.per_layer, max_cohort=max_cohort(config) or config.cohort,
  )  # fmt: skip
  if config.trust == 'local':
    return private_mean.LocalRelease(**options)
  if config.trust == 'secure_aggregation':
    return private_mean.DistributedRelease(
      min_honest=config.min_honest, neighbours=config.neighbours, **options
    )
  count_stddev = config.count_stddev
  if config.bound == 'quantile' and count_stddev is None:
    count_stddev = config.cohort / 20
  banded = correlation_of(config) if config.noise == 'banded' else None
  options |= given(
    before_sketch=config.before_sketch, quantile=config.quantile,
    quantile_lr=config.quantile_lr, count_stddev=count_stddev,
    correlation=banded,
  )  # fmt: skip
  return private_mean.CentralRelease(**options)


def account_of(config: Config, guarantee: PrivacyGuarantee) -> dict[str, Any]:
  """Return the inputs of the account and its epsilon, for a certificate."""
  statement = guarantee.statement
  return types.plain({
    'mechanism': dataclasses.asdict(guarantee.mechanism),
    'rounds': config.rounds, 'steps_per_round': guarantee.steps_per_round,
    'noise_multiplier': guarantee.noise_multiplier, 'delta': statement.delta,
    'correlation': guarantee.correlation
    and dataclasses.asdict(guarantee.correlation),
    'accountant': statement.accountant, 'epsilon': statement.epsilon,
    'noise': statement.noise,
  })  # fmt: skip


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
  release, correlation, sensitivity = release_of(config), None, 1.0
  if release is None:  # each client adds the noise, to its local steps
    assert partition is not None
    spec = _samples(config, releases, partition)
    steps, trust, units = releases, 'local', int(np.sum(partition.sizes))
  else:
    correlation, spec = correlation_of(config), _clients(config, releases)
    steps, trust, units = 1, release.trust, config.population
  if correlation is not None:
    sensitivity = correlation.sensitivity(config.rounds)
  mechanism, options = _mechanism(config, spec, sensitivity)
  z = mechanism.noise_multiplier * sensitivity
  if release is not None:
    _check_noise(release, z)
  price = ''
  if (budget := metrics_budget(config)) is not None:
    price = budget.sentence(z, mechanism.releases_per_step)
  said = caveats.caveats(
    config, mechanism, trust, correlation, metrics=price, **behaviour
  )
  statement = statements.PrivacyStatement(
    _epsilon(mechanism, **options), mechanism=mechanism, trust=trust,
    units=units, noise=statements.NOISE[config.noise_seed is not None],
    caveats=said,
    mu=_mu(mechanism, **options), **options, true_positive_rate=
    _true_positives(mechanism, accountant=options['accountant']),
  )  # fmt: skip
  return PrivacyGuarantee(mechanism, statement, steps, correlation, sensitivity)


def _mechanism(config: Config, spec: dict[str, Any], sensitivity: float):
  fixed = spec['sampling'] is types.Sampling.FIXED_WITHOUT_REPLACEMENT
  accountant = config.accountant or ('rdp' if fixed else 'pld')
  options = {'delta': config.delta, 'accountant': accountant}
  if config.noise_multiplier is None:
    z = _calibrated(epsilon=config.epsilon, **options, **spec)
  else:
    z = config.noise_multiplier / sensitivity
  return types.GaussianMechanism(noise_multiplier=z, **spec), options


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
  bound = given(loss_bound=config.loss_bound)
  return private_metrics.Budget(expected, most, **bound)


def multiplier_of_updates(config: Config, guarantee: PrivacyGuarantee) -> float:
  """Return the stated noise multiplier of updates, beside noisy metrics."""
  budget, z = metrics_budget(config), guarantee.stated_multiplier
  return z if budget is None else budget.of_updates(z)


def _check_noise(release: private_mean.Release, z: float):
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


def _samples(config: Config, releases: int, partition) -> dict[str, Any]:
  from scipy import stats  # slow to import

  # The sampling probability of the smallest client; a batch is cut off at least
  # as often as that of the largest. The number of samples of a client sets that
  # probability and is public: hence zero-out.
  sizes = np.asarray(partition.sizes)
  low, high = int(sizes.min()), int(sizes.max())
  most = batches.max_batch(partition, config.batch_size)
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
