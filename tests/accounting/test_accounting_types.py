"""Mechanisms, statements of what is guaranteed, and what is refused."""

import itertools
import json
import types

import accounting_reference as ref
from accounting_reference import ADD, INF, NAN, ONE, REPLACE, SIZES, mechanism
from fl_sketch import accounting
from fl_sketch.accounting import (
  Adjacency,
  GaussianMechanism,
  Sampling,
  UnsupportedAccountingError,
  calibrate_noise_multiplier,
  hypothesis_tests,
  losses,
  statements,
)
from fl_sketch.accounting.correlation import Correlation
import jax
import numpy as np
import pytest


def test_numpy_scalars_are_numbers():
  numpy = GaussianMechanism(np.float32(2.0), np.int64(5))
  assert numpy == GaussianMechanism(2.0, 5)
  json.dumps([numpy.noise_multiplier, numpy.steps])
  numbers = np.float64(2), np.float64(1e-5), np.int32(5)
  eps = accounting.compute_epsilon(numpy, delta=1e-5)
  assert accounting.gaussian_epsilon(*numbers) == eps


def test_the_coin_of_an_allocation_follows_from_its_epoch():
  """Catches a probability that stays at its default of 1."""
  for fields in ({}, {'sampling_probability': 0.2}):
    part = mechanism(sampling=ref.ALLOCATION, epoch_steps=5, **fields)
    assert part.sampling_probability == 0.2
    sentence = statement(mechanism=part).sentence()
    assert 'random allocation to one of 5' in sentence


def statement(
  epsilon=5.0, delta=1e-5, mechanism=ONE, trust='central', **fields
):
  spec = epsilon, delta, 'pld', mechanism, trust
  return statements.PrivacyStatement(*spec, **fields)


def test_a_statement_is_plain_json():
  """Catches an infinite epsilon that is no JSON, or an enum."""
  composed = accounting.compose([ONE, ONE])
  plain = statement(INF, mechanism=composed, mu=INF).as_dict()
  assert json.loads(json.dumps(plain, allow_nan=False)) == plain
  assert plain['epsilon'] == plain['mu'] == 'inf'


NOT = {
  'Not private: noise_seed fixes the noise.': {'noise': statements.NOISE[1]},
  'Not private: (inf, 1e-05)-': {'epsilon': INF},
}


@pytest.mark.parametrize('begins', ['(5, 1e-05)-', *NOT])
def test_a_statement_says_for_whom_against_whom_and_whether(begins):
  """Catches a lost "Not private", and a promise of tests without privacy."""
  tests = {'mu': 0.5, 'true_positive_rate': 0.0043}
  spec = {'caveats': ('Mind.', 'And this.'), **NOT.get(begins, {})}
  whole = statement(**tests, **spec)
  first, computed, *rest, last = whole.sentence('in a file').split('\n')
  assert first == whole.headline()
  assert first.startswith(begins)
  assert 'one client (add or remove one) against anyone but the trus' in first
  assert 'the server included' in statement(trust='local').headline()
  assert 'PLD: 1 steps, sampling full' in computed
  assert len(rest) == (begins not in NOT)
  assert all('mu 0.5 of Gaussian' in line for line in rest)
  assert last.endswith('2: in a file')
  lines = [first, computed, *rest, *whole.caveats]
  assert whole.as_dict()['sentence'].split('\n') == lines


def test_what_means_little_is_said_first():
  """Catches epsilon = 10^6, or delta >= 1 / clients, stated like any other."""
  grid = itertools.product([10.0, 10.01, INF], [1e-9, 1 / 49, 0.5], [None, 49])
  for epsilon, delta, units in grid:
    headline = statement(epsilon, delta, units=units).headline()
    *weak, promise = headline.split('\n')
    share = delta >= 0.01 or (units is not None and delta >= 1 / units)
    assert len(weak) == (epsilon < INF and (epsilon > 10 or share))
    assert f'({epsilon:.4g}, {delta:.3g})-differential' in promise
    for line in weak:
      assert (f'share of {units or "all"} clients' in line) == share
      assert (f'epsilon={epsilon:.4g} allows' in line) == (epsilon > 10)


def test_a_statement_refuses_what_means_nothing():
  """Catches a negative epsilon, or a delta of no guarantee."""
  for field, value in ('epsilon', NAN), ('epsilon', -1.0), ('delta', 0.0):
    with pytest.raises(ValueError, match=field):
      statement(**{field: value})


REALS = 'noise_multiplier', 'sampling_probability'
COUNTS = 'steps', 'releases_per_step', 'population', 'max_cohort', 'epoch_steps'
GOAL = {'epsilon': 1.0, 'delta': 1e-5, 'steps': 1}


def refused(name, call, error=(TypeError, ValueError)):
  """`call` raises, and the message has the name of what it refuses."""
  with pytest.raises(error) as refusal:
    call()
  assert name in str(refusal.value)


def test_a_mechanism_names_the_field_that_is_no_number():
  """Catches a traced, rounded or negative number that is accounted."""
  spec = {'sampling': ref.TRUNCATED, 'sampling_probability': 0.1, **SIZES}
  bad = [*ref.FOREIGN, -1, NAN, INF]
  rows = [
    *itertools.product(REALS, bad),
    *itertools.product(COUNTS, [*bad, 0, 1.0]),
    ('sampling_probability', 0), ('sampling_probability', 1.1),
  ]  # fmt: skip
  rows.remove(('epoch_steps', None))  # which is its default
  for field, value in rows:
    refused(field, lambda c=spec | {field: value}: mechanism(**c))
  with pytest.raises(TypeError):
    jax.jit(mechanism)(noise_multiplier=1.0)


QUESTIONS = {
  'delta': [
    lambda d: accounting.compute_epsilon(ONE, delta=d),
    lambda d: accounting.gaussian_epsilon(1.0, d),
    lambda d: accounting.gaussian_noise_multiplier(1.0, d),
    lambda d: hypothesis_tests.mu(ONE, delta=d),
    lambda d: calibrate_noise_multiplier(**GOAL | {'delta': d}),
  ],
  'epsilon': [
    lambda e: ref.delta_of(ONE, e),
    lambda e: accounting.gaussian_noise_multiplier(e, 1e-5),
    lambda e: accounting.parallel_composition([1.0, e, -INF]),
    lambda e: calibrate_noise_multiplier(**GOAL | {'epsilon': e}),
  ],
}


@pytest.mark.parametrize('name', QUESTIONS)
def test_questions_name_the_number_that_is_none(name):
  """Catches a delta of 0, or an epsilon of NaN, that gets an answer."""
  bad = [*ref.FOREIGN, -1e-5, NAN, INF]
  bad += [0, 1] if name == 'delta' else []
  for call, value in itertools.product(QUESTIONS[name], bad):
    refused(name, lambda call=call, value=value: call(value))


@pytest.mark.parametrize(('name', 'call'), [
  ('sampling_probability', lambda: mechanism(sampling_probability=0.5)),
  ('sampling_probability', lambda: mechanism(
    sampling=ref.FIXED, sampling_probability=0.3, **SIZES)),
  ('max_cohort', lambda: mechanism(sampling=ref.POISSON, **SIZES)),
  ('epoch_steps', lambda: mechanism(epoch_steps=5)),
  ('delta', lambda: ref.epsilon(ref.poisson(5.0, 10, 0.1), 1e-13)),
  ('adjacency',
    lambda: accounting.compose([ONE, mechanism(adjacency=REPLACE)])),
  ('unit', lambda: accounting.compose([ONE, mechanism(unit='sample')])),
  ('weights', lambda: Correlation((2**15, 1), 5, 1)),
  ('weights', lambda: Correlation((2**15, -(2**15), -1), 5, 1)),
])  # fmt: skip
def test_what_has_no_account_is_refused(name, call):
  """Catches another sampling than stated, two kinds of neighbours, no proof."""
  refused(name, call)


SUPPORTED = {
  *itertools.product([Sampling.FULL], Adjacency, ['pld', 'rdp']),
  *itertools.product([ref.POISSON], Adjacency, ['pld']),
  *itertools.product([ref.POISSON], [ADD, ref.ZERO], ['rdp']),
  *itertools.product([ref.TRUNCATED], [ADD], ['pld', 'rdp']),
  (ref.TRUNCATED, ref.ZERO, 'pld'),
  (ref.FIXED, REPLACE, 'rdp'),
  *itertools.product([ref.ALLOCATION], [ADD, ref.ZERO], ['pld']),
}
SPECS = {
  Sampling.FULL: {},
  ref.POISSON: {'sampling_probability': 0.1},
  ref.TRUNCATED: {'sampling_probability': 0.1, **SIZES, 'max_cohort': 99},
  ref.FIXED: {'population': 10, 'max_cohort': 9},
  ref.ALLOCATION: {'epoch_steps': 5},
}


@pytest.mark.parametrize('sampling', Sampling)
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
def test_only_analyses_that_exist(sampling, adjacency, accountant):
  """Catches a sampling that is accounted without a proof, silent or not."""
  spec = {'sampling': sampling, 'adjacency': adjacency, **SPECS[sampling]}
  part = mechanism(noise_multiplier=8.0, **spec)
  if (sampling, adjacency, accountant) in SUPPORTED:
    assert 0 < ref.epsilon(part, 1e-3, accountant) < 5
    return
  silent = mechanism(noise_multiplier=0.0, **spec)
  options = {'delta': 1e-3, 'accountant': accountant}
  for call in (
    lambda: ref.epsilon(silent, 1e-3, accountant),
    lambda: ref.delta_of(part, 1, accountant),
    lambda: calibrate_noise_multiplier(epsilon=1, steps=1, **options, **spec),
  ):
    with pytest.raises(UnsupportedAccountingError):
      call()


def test_a_delta_that_publishes_a_unit_is_warned_of():
  part = mechanism(population=1000, noise_multiplier=9.0)
  with pytest.warns(UserWarning, match='delta=0.001'):
    accounting.compute_epsilon(part, delta=1e-3)
  with pytest.warns(UserWarning, match='delta=0.001'):
    calibrate_noise_multiplier(**GOAL | {'delta': 1e-3}, population=1000)
  assert ref.epsilon(part, 0.9e-3) > 0


@pytest.mark.parametrize('epsilon', [0.0, NAN, -1.0])
def test_an_answer_that_cannot_be_is_refused(monkeypatch, epsilon):
  """Catches epsilon 0 from a curve whose loss was rounded away."""
  curve = types.SimpleNamespace(epsilon=lambda delta: epsilon)
  monkeypatch.setattr(losses, 'composition', lambda parts: curve)
  with pytest.raises(UnsupportedAccountingError):
    accounting.compute_epsilon(ref.poisson(1.0, 10, 0.1), delta=1e-5)
