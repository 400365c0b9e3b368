"""Derives the DP mechanism and its accounting from one config.

What the algorithm does (`release_of`) and what the accountant computes
(`guarantee`) come from the same fields here, and nowhere else, so they cannot
disagree. A combination whose epsilon is not known is refused, here or in
`privacy_checks`.
"""

from collections.abc import Sequence
import functools
import math
from typing import Any, NamedTuple

from fl_sketch.data import availability, batches, cohorts
from fl_sketch.experiment import participation, privacy_checks
from fl_sketch.privacy import (
  accounting,
  aggregation,
  correlation as correlation_lib,
  grid,
  types,
)
import numpy as np

_CAVEATS = (
  'What is published are broadcasts, and all that follows from them: '
  'train_loss, participants, rejected_clients, late_clients, silent_clients '
  'and bytes in metrics.jsonl, checkpoints and labels.png are of the '
  'simulation, without noise.',
  'Choosing hyperparameters on the same data is not accounted for.',
  'Noise is float32 from a 64-bit key: side channels of its bits are left out.',
)
_HONEST = (
  'Clients are honest, add their share of the noise, and no more than cohort - '
  'min_honest of them drop out or collude with the server.',
  'That every table is rounded to a fixed-point grid is left out.',
)
_KNOWN = (
  'Which clients take part is not hidden: each of them is supposed to do so in '
  'every round.',
)
_FAULTS = (
  'Whether a client is silent or late is supposed not to depend on any data.',
)
_PRETRAINED = (
  'Training starts from the parameters of a file; what they were fitted to is '
  'not protected.',
)
_HELD_OUT = (
  'Metrics of clients (client_...) are of samples that they hold out, without '
  'noise; training does not see these samples.',
)
_OF_TRUST = {
  'central': (),
  'secure_aggregation': _HONEST + _KNOWN,
  'local': _KNOWN,
}
_NATURAL = {
  'secure_aggregation': types.Adjacency.ZERO_OUT,
  'local': types.Adjacency.REPLACE_ONE,
}


class PrivacyGuarantee(NamedTuple):
  """The DP guarantee of a private run, and the noise that provides it.

  Attributes:
    mechanism: of the whole run.
    statement: of the whole run.
    steps_per_round: how often a round draws a cohort or a batch.
    correlation: of noise over rounds, or of independent noise where clients
      take part at known intervals; None elsewhere.
    sensitivity: of the correlation: the noise of a draw is as many times that
      of the mechanism.
  """

  mechanism: types.GaussianMechanism
  statement: types.PrivacyStatement
  steps_per_round: int
  correlation: correlation_lib.Correlation | None = None
  sensitivity: float = 1.0

  @property
  def noise_multiplier(self) -> float:
    """Noise multiplier of the config, or calibrated to its epsilon."""
    return self.mechanism.noise_multiplier * self.sensitivity

  def epsilons(self, rounds: Sequence[int]) -> list[float]:
    """Epsilon after each number of rounds, at the delta of the statement."""
    statement, mechanism = self.statement, self.mechanism
    options = {'delta': statement.delta, 'accountant': statement.accountant}
    if self.correlation is not None:
      z, kept = self.noise_multiplier, ('adjacency', 'releases_per_step')
      spec = {name: getattr(mechanism, name) for name in kept}
      parts = [self.correlation.mechanism(z, r, **spec) for r in rounds]
      return [_epsilon(part, **options) for part in parts]
    steps = tuple(self.steps_per_round * r for r in rounds)
    return list(_curve(mechanism, steps, **options))


def release_of(c: Any) -> aggregation.Release | None:
  """Private aggregation of a config; None without user-level privacy.

  Example-level privacy is that of local work: the mean itself is not private.
  """
  if not privacy_checks.is_private(c) or privacy_checks.unit_of(c) == 'sample':
    return None
  options = {
    'bound': c.bound, 'trust': c.trust, 'per_leaf': c.per_layer,
    'before_sketch': c.before_sketch, 'min_honest': c.min_honest,
    'neighbours': c.neighbours, 'quantile': c.quantile,
    'quantile_lr': c.quantile_lr, 'count_stddev': c.count_stddev,
    'max_cohort': max_cohort(c) or c.cohort,
  }  # fmt: skip
  options = {k: v for k, v in options.items() if v is not None}
  if c.bound == 'quantile':  # a twentieth of the cohort, as printed
    options.setdefault('count_stddev', c.cohort / 20)
  if c.noise == 'banded':
    options['correlation'] = participation.correlation_of(c)
  return aggregation.Release(participation.expected_cohort(c), **options)


def max_cohort(c: Any) -> int | None:
  """The largest cohort of a config under Poisson sampling."""
  if c.max_cohort is not None or c.sampling != 'poisson':
    return c.max_cohort
  # Larger cohorts are cut off; in a private run, at a chance within delta.
  tail = batches.TAIL if privacy_checks.is_private(c) else 1e-9
  probability = c.cohort / c.population
  return cohorts.default_max_cohort(c.population, probability, tail)


def guarantee(
  c: Any, releases: float, partition: Any = None
) -> PrivacyGuarantee | None:
  """The DP guarantee of a config; None if it claims no privacy.

  Args:
    c: a `Config`.
    releases: of its algorithm, `Algorithm.releases`.
    partition: of samples over clients; needed for example-level privacy.

  Raises:
    UnsupportedAccountingError: this combination has no privacy analysis.
    CalibrationError: no noise multiplier reaches the epsilon.
  """
  if not privacy_checks.is_private(c):
    return None
  releases = accounted(releases)
  unit, over_rounds = privacy_checks.unit_of(c), None
  if unit == 'sample':
    per_round, trust, spec = releases, 'local', _samples(c, releases, partition)
  else:
    per_round, trust, spec = 1, c.trust or 'central', _clients(c, releases)
    over_rounds = participation.correlation_of(c)
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
  _check_noise(c, z * sensitivity)
  statement = types.PrivacyStatement(
    epsilon,
    c.delta,
    accountant,
    mechanism,
    trust,
    noise=types.NOISE[c.noise_seed is not None],
    caveats=_OF_TRUST[trust]
    + _FAULTS * availability.in_force(c)
    + participation.caveats(c, over_rounds)
    + _PRETRAINED * (c.pretrained is not None)
    + _HELD_OUT * (c.client_holdout > 0)
    + _CAVEATS,
  )
  return PrivacyGuarantee(
    mechanism, statement, per_round, over_rounds, sensitivity
  )


def accounted(releases: float) -> int:
  """The releases of an algorithm, all of whose noise has a known law.

  Raises:
    UnsupportedAccountingError: there are infinitely many.
  """
  if math.isinf(releases):
    raise types.UnsupportedAccountingError(
      'Expected the noise of a private run to be that of its releases, not '
      'injected by Release.noise, of which no epsilon is known.'
    )
  return int(releases)


def _check_noise(c, z):
  """Refuses noise that the grid, or a bound by a quantile, cannot have."""
  release = release_of(c)
  if release is None:
    return
  least = grid.least_multiplier(release.clients, *release.shares())
  if 0 < z < least:
    raise ValueError(
      f'Expected noise_multiplier={z:.3g} to be 0 or >= {least:.3g}: the grid '
      f'of sums of {release.clients:,} clients has no finer noise.'
    )
  if c.bound == 'quantile':
    most = 2 * release.count_stddev
    if not 0 < z < most:
      raise ValueError(
        f'Expected 0 < noise_multiplier={z} < 2 count_stddev={most} with '
        "bound='quantile'."
      )


# Points of a sweep repeat the same values.
_curve = functools.cache(accounting.epsilon_curve)
_epsilon = functools.cache(accounting.compute_epsilon)
_calibrated = functools.cache(accounting.calibrate_noise_multiplier)


def _clients(c, releases) -> dict[str, Any]:
  """The fields of the user-level mechanism."""
  spec = {'steps': c.rounds, 'releases_per_step': releases, 'unit': 'client'}
  sampling, natural = types.Sampling.FULL, types.Adjacency.ADD_OR_REMOVE_ONE
  over_rounds = participation.correlation_of(c)
  if over_rounds is not None:  # an order that is known: no amplification
    spec['steps'] = over_rounds.releases(c.rounds)
  elif c.trust in _NATURAL:  # the server sees participants: no amplification
    natural = _NATURAL[c.trust]
  elif c.sampling == 'poisson':
    spec['sampling_probability'] = c.cohort / c.population
    most = max_cohort(c)
    spec |= {'population': c.population, 'max_cohort': most}
    sampling = types.Sampling.TRUNCATED_POISSON
    if most >= c.population:  # cohorts are never cut off
      sampling = types.Sampling.POISSON
  elif c.cohort < c.population:
    sampling = types.Sampling.FIXED_WITHOUT_REPLACEMENT
    natural = types.Adjacency.REPLACE_ONE
    spec |= {'population': c.population, 'max_cohort': c.cohort}
  return spec | {'sampling': sampling, 'adjacency': _adjacency(c, natural)}


def _samples(c, releases, partition) -> dict[str, Any]:
  """The fields of the example-level mechanism of the worst client.

  The sampling probability is that of the smallest client, and the probability
  that a batch is cut off at least that of the largest. The number of samples of
  a client sets its sampling probability and is public: hence zero-out.
  """
  from scipy import stats  # slow to import

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
    'steps': c.rounds * releases,
    'unit': 'sample',
    'sampling': sampling,
    'sampling_probability': q,
    'population': low,
    'max_cohort': cut,
    'adjacency': _adjacency(c, types.Adjacency.ZERO_OUT),
  }


def _adjacency(c, natural) -> types.Adjacency:
  return natural if c.adjacency is None else types.Adjacency(c.adjacency)
