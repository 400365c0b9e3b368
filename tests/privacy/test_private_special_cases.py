"""Where nothing is left of privacy, and what is left where nothing else is."""

import cases
from fl_sketch import algorithms
from fl_sketch.privacy.mechanisms import private_mean
import numpy as np
from private_steps import private_steps
import pytest

from tests.algorithms import test_special_cases
from tests.algorithms.test_special_cases import FEDAVG, STEPS, at, make

N, COUNT, MEAN = cases.POPULATION, cases.COUNT, cases.MEAN


def off(made, bound=16):
  """Without noise, and with a bound that nothing exceeds."""
  return at(made, clip_norm=bound, noise_multiplier=0)


def rows():
  release = private_mean.Release(float(N))
  private = lambda name, release=release, **options: off(
    make(name, privacy=release, **options)
  )
  follows = {'bound': 'quantile', 'count_stddev': 1.0}
  masked = {'trust': 'secure_aggregation'}
  for terms in ({}, {'trust': 'local'}, {'per_leaf': True}, follows, masked):
    made = private('dp_fedavg', release._replace(**terms))
    yield f'dp_fedavg {terms}', made, FEDAVG
  clip, norm = (
    at(make(name, privacy=release), clip_norm=0.5)  # all are longer
    for name in ('dp_fedavg', 'dp_normfedavg')
  )
  yield 'dp_normfedavg', norm, clip
  steps = private_steps(cases.loss_fn, least=-np.inf, expected_batch=5)
  samples = algorithms.make(
    'private_iterative_sketching', local=steps, sketch=MEAN, **STEPS
  )
  song = make('iterative_sketching', sketch=MEAN)
  yield 'private_iterative_sketching', off(samples), song
  before = release._replace(before_sketch=True)
  yield 'song before', private('iterative_sketching', before, sketch=MEAN), song


def table_rows():
  release = private_mean.Release(float(N))
  for name, sketch, options in [
    ('iterative_sketching', MEAN, {}),
    ('safl', cases.CYCLIC, {}),
    ('fedsketch_privix', COUNT, {}),
    ('fedsketch_heaprix', COUNT, {'k': 3}),
    ('fedsketch_heaprix', COUNT, {'k': 3, 'exact': False}),
    ('fedsketchgate', COUNT, STEPS),
    ('fedsketchgate', COUNT, {'k': 3, **STEPS}),
    ('fetchsgd', COUNT, {'k': 2}),
    ('sketched_sgd', COUNT, {'k': 2}),
  ]:
    plain = make(name, sketch=sketch, **options)
    private = make(name, sketch=sketch, privacy=release, **options)
    # No table is longer, and Adam divides what the grid rounds by small roots.
    yield f'{name} {options}', off(private, 4), plain


LONG = [pytest.mark.long]
# Compiling takes long, and the links are the same for all.
FAST = 'dp_fedavg {}', 'dp_normfedavg', 'private_iterative_sketching'
ROWS = [
  pytest.param(made, want, id=name, marks=[] if name in FAST else LONG)
  for name, made, want in [*rows(), *table_rows()]
]


@pytest.mark.representatives('dp_fedavg {}')
@pytest.mark.covers(
  'S0-Alg2 = Alg3[private_iterative_sketching]', 'S1-Alg3[dp_fedavg {}]',
  'S1-Clow[dp_normfedavg]',
)  # fmt: skip
@pytest.mark.parametrize(('made', 'want'), ROWS)
def test_without_noise_and_bound_it_is_the_other_algorithm(made, want):
  """Where all that are expected take part."""
  test_special_cases.check_same(made, want, cases.full_participation)
