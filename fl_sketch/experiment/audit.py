"""Audits of what a config describes, in small: its algorithm on canaries."""

import dataclasses
import fractions
import math
from typing import Any

from fl_sketch import algorithms, experiment
from fl_sketch.data import partitions
from fl_sketch.experiment import privacy_checks, privacy_plan
from fl_sketch.experiment.config import Config
from fl_sketch.privacy import audit, canaries, types
import jax
import numpy as np

_NUMBERS = 64  # of the model
_UNITS = 2  # that a step takes on average, or a few more
_MOST = {'size': 32, 'cols': 8, 'rows': 4}  # of a sketch
_K = 8


def audit_config(
  c: Config,
  *,
  samples: int = 5000,
  data: str | None = None,
  rounds: int = 20,
  seed: int = 0,
  significance: float = 0.05,
) -> audit.Report:
  """Attacks the mechanism of a private config, on a model of 64 numbers.

  The algorithm, its release and its claim are made from the config as a run
  makes them. Its noise multiplier, sampling probability, local steps and clip
  norm are kept; population, cohort, sketch and rounds are smaller, and the
  claim is that of the smaller mechanism. Weight decay and decay of rates, which
  touch no contribution's bound, are left out.

  Args:
    c: a private config.
    samples: runs in each world; 5,000 see noise too small by 0.7, 20,000 by
      0.85.
    data: where tensorflow-datasets keeps its files, which is asked for where
      samples are protected: their coin depends on who holds how many.
    rounds: the most that are played.
    seed: of the audit, which draws its own noise.
    significance: of the whole report.

  Raises:
    ValueError: the config claims no privacy, or none that noise could give.
  """
  if not privacy_checks.is_private(c):
    raise ValueError('Expected epsilon or noise_multiplier in an audit.')
  whole = None
  if privacy_checks.unit_of(c) == 'sample':
    whole = experiment.build(c, data).partition
  small, partition = _small(c, rounds, whole)
  make = _make(small)
  guarantee = _guarantee(small, make, partition)
  mechanism = guarantee.mechanism
  units = mechanism.population or small.population
  public, secret = jax.random.split(jax.random.key(seed))
  game = canaries.Game(
    make,
    experiment.hyper_of(small, guarantee),
    dataclasses.replace(mechanism, population=units),
    _canary(small, public),
    public,
    guarantee.steps_per_round,
    small.min_honest,
  )
  full = game.mechanism.sampling is types.Sampling.FULL
  one_kind = full or game.mechanism.unit == 'sample'
  return canaries.audit(
    game,
    secret,
    samples=samples,
    others=('silent',) if one_kind else ('silent', 'opposite'),
    significance=significance,
    accountant=guarantee.statement.accountant,
  )


def _make(c: Config):
  options = experiment.algorithm_options(c)
  return algorithms.make(c.algorithm, canaries.inner_product, **options)


def _guarantee(c: Config, make, partition) -> privacy_plan.PrivacyGuarantee:
  guarantee = experiment.guarantee_of(c, make, partition)
  assert guarantee is not None  # the config is private
  return guarantee


def _small(c: Config, rounds: int, whole: partitions.Partition | None):
  """The config in small, with its noise, and who holds which samples."""
  guarantee = _guarantee(c, _make(c), whole)
  fields: dict[str, Any] = {
    'epsilon': None,
    'noise_multiplier': guarantee.noise_multiplier,
    'rounds': min(c.rounds, rounds),
    'rounds_per_dispatch': 1,
    'max_cohort': None,
    'neighbours': None,
    'k': c.k and min(c.k, _K),
    'local_k': c.local_k and min(c.local_k, _K),
  }
  if c.sketch is not None:
    fields['sketch'] = {
      name: min(value, _MOST.get(name, value))
      for name, value in c.sketch.items()
    }
  partition = None
  if whole is not None:
    size, held = _scaled(c.batch_size, int(whole.sizes.min()))
    fields |= {'batch_size': size, 'population': 1, 'cohort': 1}
    partition = partitions.Partition(np.arange(held), np.array([0, held]))
  elif c.trust == 'local':  # the server sees one message: the mean of one
    fields |= {'population': 1, 'cohort': 1}
  else:
    cohort, population = _scaled(c.cohort, c.population)
    fields |= {'cohort': cohort, 'population': population}
    if c.min_honest is not None:
      fields['min_honest'] = max(1, c.min_honest * cohort // c.cohort)
  if c.bound == 'quantile':  # one that stays: attacks suppose a scale
    options = experiment.algorithm_options(c)
    fields['quantile_lr'] = 1e-6
    fields['count_stddev'] = options['privacy'].count_stddev
  return dataclasses.replace(c, **fields), partition


def _scaled(some: int, every: int) -> tuple[int, int]:
  """The same share of a smaller number."""
  share = fractions.Fraction(some, every)
  times = min(math.ceil(_UNITS / share.numerator), some // share.numerator)
  return times * share.numerator, times * share.denominator


def _canary(c: Config, public: jax.Array) -> np.ndarray:
  """f32[rounds, d]: what the sketch stretches most, or any direction."""
  shape = c.rounds, _NUMBERS
  if c.sketch is not None:
    hashes = 'run' if c.algorithm == 'fetchsgd' else 'round'
    op = experiment.algorithm_options(c)['sketch']
    return canaries.stretched(op, public, shape, hashes)
  return np.full(shape, _NUMBERS**-0.5, np.float32)
