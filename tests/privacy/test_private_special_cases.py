"""Where nothing is left of privacy, and what is left where nothing else is."""

import cases
from fl_sketch import algorithms
from fl_sketch.privacy.mechanisms import private_mean
import numpy as np
from private_steps import private_steps
import pytest

from tests.algorithms import test_special_cases
from tests.algorithms.test_special_cases import FEDAVG, STEPS, at, make

MEAN = cases.MEAN


def off(made):
  """Without noise, and with a bound that nothing exceeds."""
  return at(made, clip_norm=16, noise_multiplier=0)


def private(name, cls=private_mean.CentralRelease, fields=None, **options):
  privacy = cls(float(cases.POPULATION), **fields or {})
  return make(name, privacy=privacy, **options)


def rows():
  follows = {'bound': 'quantile', 'count_stddev': 1.0}
  central = private_mean.CentralRelease
  for cls, fields in (
    (central, {}), (private_mean.LocalRelease, {}), (central, follows),
    (central, {'per_leaf': True}), (private_mean.DistributedRelease, {}),
  ):  # fmt: skip
    made = off(private('dp_fedavg', cls, fields))
    yield f'dp_fedavg {cls.trust} {fields}', made, FEDAVG
  norm, clip = (
    at(private(name), clip_norm=0.5)  # all are longer
    for name in ('dp_normfedavg', 'dp_fedavg')
  )
  yield 'dp_normfedavg', norm, clip
  steps = private_steps(cases.loss_fn, least=-np.inf, expected_batch=5)
  samples = algorithms.make(
    'private_iterative_sketching', local=steps, sketch=MEAN, **STEPS
  )
  song, before = {'sketch': MEAN}, {'before_sketch': True}
  plain = make('iterative_sketching', **song)
  yield 'private_iterative_sketching', off(samples), plain
  before = private('iterative_sketching', fields=before, **song)
  yield 'song before', off(before), plain


LONG = [pytest.mark.long]
FAST = 'dp_fedavg central {}', 'dp_normfedavg', 'private_iterative_sketching'
ROWS = [
  pytest.param(made, want, id=name, marks=[] if name in FAST else LONG)
  for name, made, want in rows()
]


@pytest.mark.representatives('dp_fedavg central {}')
@pytest.mark.parametrize(('made', 'want'), ROWS)
def test_without_noise_and_bound_it_is_the_other_algorithm(made, want):
  """Where all that are expected take part."""
  same = test_special_cases.test_a_special_case_is_the_other_algorithm
  same(made, want, cases.full_participation)
