"""Empirical DP audit of a config: canaries on a 64-parameter model."""

from collections.abc import Mapping
import dataclasses
import fractions
import math
from typing import Any

from fl_sketch import algorithms, rounds as rounds_lib
from fl_sketch.accounting import types
from fl_sketch.accounting.correlation import Correlation
from fl_sketch.data import partitions
from fl_sketch.privacy.auditing import audit, canaries
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds.algorithm import with_hyper
from fl_sketch.runs import canary_clients, privacy_plan
from fl_sketch.runs.build import build, guarantee_of
from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.method import algorithm_options, hyper_of, part_of
from fl_sketch.runs.privacy_plan import PrivacyGuarantee as Guarantee
from fl_sketch.utils.types import Key
import jax
import numpy as np

_NUMBERS = 64  # parameters of the model
_UNITS = 2  # clients or samples in a step on average, or a few more
_MOST = {'size': 32, 'cols': 8, 'rows': 4, 'k': 8}


@checked()
def audit_config(
  config: Config,
  *,
  samples: int = 5000,
  data: str | None = None,
  rounds: int = 20,
  seed: int = 0,
  significance: float = 0.05,
) -> audit.Report:
  """Audit the mechanism of a private config with canaries.

  Noise multiplier, sampling probability, local steps and clip norm are the
  config's; the model has 64 parameters, and population, cohort, sketch and
  rounds are smaller. The audited guarantee is that of the smaller mechanism.

  `samples` are runs in each world (5,000 see noise too small by 0.7, 20,000 by
  0.85), with at most `rounds` rounds. The significance is of the whole report.
  `data` is the directory of tensorflow-datasets, for example-level privacy.
  Raises ConfigError if the config is not private.
  """
  game, accountant = game_of(config, data=data, rounds=rounds, seed=seed)
  secret = jax.random.split(jax.random.key(seed))[1]
  return canaries.audit(
    game, secret, accountant=accountant, samples=samples,
    significance=significance,
  )  # fmt: skip


def game_of(
  config: Config, *, data: str | None = None, rounds: int = 20, seed: int = 0
) -> tuple[canaries.Game, str]:
  """Return the game of an audit, and its accountant, as `audit_config`."""
  check(config)
  by_sample = config.privacy_unit == 'sample'
  whole = build(config, data).partition if by_sample else None
  small, partition = _small(config, rounds, whole)
  make, guarantee = _built(small, partition)
  mechanism = guarantee.mechanism
  # Without accounted sampling, a whole cohort takes part.
  full = mechanism.sampling is types.Sampling.FULL
  units = mechanism.population or (small.cohort if full else small.population)
  public = jax.random.split(jax.random.key(seed))[0]
  release = privacy_plan.release_of(small)
  is_central = isinstance(release, private_mean.CentralRelease)
  game = canaries.Game(
    make, hyper_of(small, guarantee),
    dataclasses.replace(mechanism, population=units),
    _canary(small, public, guarantee.correlation), public,
    guarantee.steps_per_round, _noise(small, guarantee, make, units),
    guarantee.correlation, release if is_central else None,
  )  # fmt: skip
  return game, guarantee.statement.accountant


def check(config: Config) -> None:
  """Raise ConfigError for a config that no audit can attack."""
  if not config.is_private:
    raise config.refusal(
      'An audit requires a private config; set epsilon or noise_multiplier.'
    )


def _noise(
  config: Config, guarantee: Guarantee, make: rounds_lib.Make, participants: int
) -> float | None:
  """Return the noise in clipped contributions; None if more is broadcast."""
  release = privacy_plan.release_of(config)
  if release is None or config.before_sketch or config.downlink_codec:
    return None
  hp, clients = hyper_of(config, guarantee), config.cohort
  cohort = rounds_lib.Cohort(
    np.arange(clients, dtype=np.int32), np.ones(clients, np.float32),
    {'x': np.zeros((clients, 1, 1, _NUMBERS), np.float32)},
  )  # fmt: skip
  params = canaries.parameters(_NUMBERS)
  is_mean = canary_clients.payload_sizes(make, hp, params, cohort) is not None
  if not is_mean or make(hp).correction:  # clients without data send it, too
    return None
  z = privacy_plan.multiplier_of_updates(config, guarantee)
  return canary_clients.multiplier(release, z, participants)


def _built(
  config: Config, partition: partitions.Partition | None
) -> tuple[rounds_lib.Make, Guarantee]:
  """Return the algorithm of a private config and its guarantee."""
  options = algorithm_options(config)
  make = algorithms.make(config.algorithm, canaries.inner_product, **options)
  guarantee = guarantee_of(config, make, partition)
  assert guarantee is not None  # the config is private
  return make, guarantee


def _small(config: Config, rounds: int, whole: partitions.Partition | None):
  """Return the scaled-down config with the same noise, and its partition."""
  _, guarantee = _built(config, whole)
  fields: dict[str, Any] = {
    'epsilon': None, 'noise_multiplier': guarantee.stated_multiplier,
    'rounds': min(config.rounds, rounds), 'rounds_per_dispatch': 1,
    'max_cohort': None, 'neighbours': None,
    'options': _limited(config.options), 'sketch': _limited(config.sketch),
  }  # fmt: skip
  partition = None
  if whole is not None:
    size, count = _scaled(config.batch_size, int(whole.sizes.min()))
    fields |= {'batch_size': size, 'population': 1, 'cohort': 1}
    partition = partitions.Partition(np.arange(count), np.array([0, count]))
  elif config.trust == 'local':  # the server sees one message: the mean of one
    fields |= {'population': 1, 'cohort': 1}
  else:
    cohort, population = _scaled(config.cohort, config.population)
    fields |= {'cohort': cohort, 'population': population}
    if config.min_honest is not None:
      fields['min_honest'] = max(1, config.min_honest * cohort // config.cohort)
  if config.bound == 'quantile':  # one that never exceeds a canary's update
    release = privacy_plan.release_of(config)
    assert isinstance(release, private_mean.CentralRelease)
    fields |= {'quantile_lr': 1e-3, 'count_stddev': release.count_stddev}
  if config.noise == 'banded':  # two epochs
    epoch = min(config.hash_rounds or config.rounds, rounds)
    if config.hash_rounds:
      epoch = min(config.hash_rounds, max(1, rounds // 2))
      fields['hash_rounds'] = epoch
    fields['noise_bands'] = min(config.noise_bands or epoch, epoch)
  return dataclasses.replace(config, **fields), partition


def _limited(options: Mapping[str, Any] | None) -> dict[str, Any]:
  """Return the options, with sizes that suit the model."""
  limited = dict(options or {})
  for name in _MOST.keys() & limited:
    limited[name] = min(limited[name], _MOST[name])
  return limited


def _scaled(part: int, total: int) -> tuple[int, int]:
  """Return the same fraction with a smaller denominator."""
  share = fractions.Fraction(part, total)
  times = min(math.ceil(_UNITS / share.numerator), part // share.numerator)
  return times * share.numerator, times * share.denominator


def _canary(
  config: Config, public: Key, correlation: Correlation | None
) -> np.ndarray:
  """Return f32[rounds, d]: what the sketch stretches most, or random signs."""
  # Signs are new in each round. Under banded noise they are new in each epoch:
  # contributions of one direction move its releases most.
  shape, rounds = (config.rounds, _NUMBERS), np.arange(config.rounds)
  signs = np.random.default_rng(1).choice(np.array([-1, 1], np.float32), shape)
  if correlation is not None:
    signs = signs[rounds // correlation.rounds]
    signs = signs * (rounds % correlation.separation == 0)[:, None]
  if config.sketch is not None:
    in_run = config.algorithm == 'fetchsgd'
    hash_rounds = 0 if in_run else config.hash_rounds
    op = with_hyper(part_of(config, 'sketch'), hyper_of(config))
    return signs[:, -1:] * canaries.stretched(op, public, shape, hash_rounds)
  return signs * np.float32(_NUMBERS**-0.5)
