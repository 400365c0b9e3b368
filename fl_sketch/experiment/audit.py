"""Empirical DP audit of a config: canaries on a 64-parameter model."""

from collections.abc import Mapping
import dataclasses
import fractions
import math
from typing import Any

from fl_sketch import algorithms, experiment, rounds as rounds_lib
from fl_sketch.data import partitions
from fl_sketch.experiment import canary_clients, privacy_plan
from fl_sketch.experiment.config import Config, checked
from fl_sketch.experiment.privacy_plan import PrivacyGuarantee as Guarantee
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.accounting.correlation import Correlation
from fl_sketch.privacy.auditing import audit, canaries
from fl_sketch.rounds import transforms
from fl_sketch.rounds.algorithm import with_hyper
from fl_sketch.utils.types import Key
import jax
import numpy as np

_NUMBERS = 64  # parameters of the model
_UNITS = 2  # clients or samples in a step on average, or a few more
_MOST_SKETCH = {'size': 32, 'cols': 8, 'rows': 4}
_MOST_OPTIONS = {'k': 8, 'local_k': 8}


@checked()
def audit_config(
  c: Config,
  *,
  samples: int = 5000,
  data: str | None = None,
  rounds: int = 20,
  seed: int = 0,
  significance: float = 0.05,
) -> audit.Report:
  """Audit the mechanism of a private config with canaries.

  Algorithm, private mean and guarantee are built from the config. Noise
  multiplier, sampling probability, local steps and clip norm are the config's;
  the model has 64 parameters, and population, cohort, sketch and rounds are
  smaller. The audited guarantee is that of the smaller mechanism. Weight decay
  and schedules, which change no contribution's bound, are left out.

  `samples` are runs in each world (5,000 see noise too small by 0.7, 20,000 by
  0.85), with at most `rounds` rounds. The significance is of the whole report.
  `data` is the directory of tensorflow-datasets, for example-level privacy.

  Raises:
    ConfigError: the config is not private, or no noise can give its epsilon.
  """
  check(c)
  by_sample = c.privacy_unit == 'sample'
  whole = experiment.build(c, data).partition if by_sample else None
  small, partition = _small(c, rounds, whole)
  make, guarantee = _built(small, partition)
  mechanism = guarantee.mechanism
  full = mechanism.sampling is types.Sampling.FULL
  # Without accounted sampling, a whole cohort takes part.
  units = mechanism.population or (small.cohort if full else small.population)
  public, secret = jax.random.split(jax.random.key(seed))
  game = canaries.Game(
    make, experiment.hyper_of(small, guarantee),
    dataclasses.replace(mechanism, population=units),
    _canary(small, public, guarantee.correlation), public,
    guarantee.steps_per_round, _noise(small, guarantee, make, units),
    guarantee.correlation,
  )  # fmt: skip
  return canaries.audit(
    game, secret, accountant=guarantee.statement.accountant, samples=samples,
    significance=significance,
  )  # fmt: skip


def check(c: Config) -> None:
  """Raise ConfigError for a config that no audit can attack."""
  c.refuse(
    (not c.is_private,
     'An audit requires a private config; set epsilon or noise_multiplier.'),
    (c.simulated_cohort is not None,
     '{simulated_cohort} has less noise than its statement says; remove it '
     'for an audit.'),
  )  # fmt: skip


def _noise(
  c: Config, guarantee: Guarantee, make: rounds_lib.Make, participants: int
) -> float | None:
  """Return the noise in clipped contributions; None if more is broadcast."""
  release, hp = privacy_plan.release_of(c), experiment.hyper_of(c, guarantee)
  if release is None or release.before_sketch or c.downlink_codec is not None:
    return None
  data = {'x': np.zeros((c.cohort, 1, 1, _NUMBERS), np.float32)}
  ids, weight = np.arange(c.cohort, dtype=np.int32), data['x'][:, 0, 0, 0] + 1
  cohort = rounds_lib.Cohort(ids, weight, data)
  params = canaries.parameters(_NUMBERS)
  is_mean = canary_clients.payload_sizes(make, hp, params, cohort) is not None
  if not is_mean or make(hp).correction:  # clients without data send it, too
    return None
  z = guarantee.stated_multiplier
  return canary_clients.multiplier(release, z, participants)


def _built(
  c: Config, partition: partitions.Partition | None
) -> tuple[rounds_lib.Make, Guarantee]:
  """Return the algorithm of a private config and its guarantee."""
  options = experiment.algorithm_options(c)
  make = algorithms.make(c.algorithm, canaries.inner_product, **options)
  guarantee = experiment.guarantee_of(c, make, partition)
  assert guarantee is not None  # the config is private
  return make, guarantee


def _small(c: Config, rounds: int, whole: partitions.Partition | None):
  """Return the scaled-down config with the same noise, and its partition."""
  _, guarantee = _built(c, whole)
  fields: dict[str, Any] = {
    'epsilon': None, 'noise_multiplier': guarantee.noise_multiplier,
    'rounds': min(c.rounds, rounds), 'rounds_per_dispatch': 1,
    'max_cohort': None, 'neighbours': None,
    'options': _limited(c.options or {}, _MOST_OPTIONS),
  }  # fmt: skip
  if c.sketch is not None:
    fields['sketch'] = _limited(c.sketch, _MOST_SKETCH)
  partition = None
  if whole is not None:
    size, count = _scaled(c.batch_size, int(whole.sizes.min()))
    fields |= {'batch_size': size, 'population': 1, 'cohort': 1}
    partition = partitions.Partition(np.arange(count), np.array([0, count]))
  elif c.trust == 'local':  # the server sees one message: the mean of one
    fields |= {'population': 1, 'cohort': 1}
  else:
    cohort, population = _scaled(c.cohort, c.population)
    fields |= {'cohort': cohort, 'population': population}
    if c.min_honest is not None:
      fields['min_honest'] = max(1, c.min_honest * cohort // c.cohort)
  if c.bound == 'quantile':  # a bound that stays: attacks need its scale
    release = experiment.algorithm_options(c)['privacy']
    fields |= {'quantile_lr': 1e-6, 'count_stddev': release.count_stddev}
  if c.noise == 'banded':  # two epochs
    epoch = min(c.hash_rounds or c.rounds, rounds)
    if c.hash_rounds:
      epoch = fields['hash_rounds'] = min(c.hash_rounds, max(1, rounds // 2))
    fields['noise_bands'] = min(c.noise_bands or epoch, epoch)
  return dataclasses.replace(c, **fields), partition


def _limited(options: Mapping[str, Any], most: Mapping[str, int]):
  """Return the options, some of them limited to a largest value."""
  return {k: min(v, most[k]) if k in most else v for k, v in options.items()}


def _scaled(part: int, total: int) -> tuple[int, int]:
  """Return the same fraction with a smaller denominator."""
  share = fractions.Fraction(part, total)
  times = min(math.ceil(_UNITS / share.numerator), part // share.numerator)
  return times * share.numerator, times * share.denominator


def _canary(
  c: Config, public: Key, correlation: Correlation | None
) -> np.ndarray:
  """Return f32[rounds, d]: what the sketch stretches most, or random signs."""
  # Signs are new in each round. Under banded noise they are new in each epoch:
  # contributions of one direction move its releases most.
  shape, rounds = (c.rounds, _NUMBERS), np.arange(c.rounds)
  signs = np.random.default_rng(1).choice(np.array([-1, 1], np.float32), shape)
  if correlation is not None:
    signs = signs[rounds // correlation.rounds]
    signs = signs * (rounds % correlation.separation == 0)[:, None]
  if c.sketch is not None:
    in_run = c.algorithm == 'fetchsgd'
    hashes = 'run' if in_run else transforms.hash_key(c.hash_rounds)
    sketch = experiment.algorithm_options(c)['sketch']
    op = with_hyper(sketch, experiment.hyper_of(c))
    return signs[:, -1:] * canaries.stretched(op, public, shape, hashes)
  return signs * np.float32(_NUMBERS**-0.5)
