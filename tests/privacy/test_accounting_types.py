"""Descriptions of mechanisms refuse contradictions; statements are plain."""

import json

import accounting_reference as ref
from accounting_reference import INF, NAN, ONE, SIZES, mechanism
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import GaussianMechanism, statements
import jax
import numpy as np
import pytest
from refusals import refused, refused_calls

COUNTS = (
  'steps', 'population', 'max_cohort', 'releases_per_step', 'epoch_steps',
)  # fmt: skip
POISSON, TRUNCATED = ref.POISSON, ref.TRUNCATED
ALLOCATED = {'sampling': ref.ALLOCATION, 'epoch_steps': 5}


@pytest.mark.parametrize(('field', 'value'), [
  *(('noise_multiplier', value) for value in (-1.0, NAN, INF)),
  *(('sampling_probability', value) for value in (0, 1.1, NAN)),
  *((name, 0) for name in COUNTS),
])  # fmt: skip
def test_a_mechanism_refuses_numbers_out_of_range(field, value):
  spec = {'sampling': TRUNCATED, 'sampling_probability': 0.1, **SIZES}
  with pytest.raises(ValueError, match=f'{field}={value}'):
    mechanism(**spec | {field: value})


test_counts_are_integers = refused_calls(
  *(
    (lambda c={name: x}: mechanism(**c), f'{name} must be an integer')
    for name in COUNTS
    for x in (1.0, np.float64(3))
  ),
  (lambda: jax.jit(mechanism)(noise_multiplier=1.0), 'on the host, not'),
  error=TypeError,
)


def test_numpy_scalars_are_numbers():
  numpy = GaussianMechanism(np.float32(2.0), np.int64(5))
  assert numpy == GaussianMechanism(2.0, 5)
  json.dumps([numpy.noise_multiplier, numpy.steps])
  numbers = np.float64(2), np.float64(1e-5), np.int32(5)
  eps = accounting.compute_epsilon(numpy, delta=1e-5)
  assert accounting.gaussian_epsilon(*numbers) == eps


test_a_mechanism_refuses_fields_that_contradict = refused(
  lambda fields: mechanism(**fields),
  ({'sampling_probability': 0.5}, "0.5 has no effect for sampling='full'"),
  ({'sampling': TRUNCATED}, 'population=None'),
  ({'sampling': ref.FIXED}, 'max_cohort=None'),
  ({'population': 5, 'max_cohort': 6}, 'max_cohort=6 exceeds population=5'),
  ({'sampling': POISSON, **SIZES}, "'truncated_poisson', which is cut off"),
  ({'max_cohort': 5}, 'max_cohort=5 has no effect'),
  ({'sampling': ref.FIXED, 'sampling_probability': 0.3, **SIZES},
    'sampling_probability=0.3 is not max_cohort / population = 0.2'),
  ({'unit': 'token'}, "unit='token'"),
  ({'sampling': ref.ALLOCATION}, 'epoch_steps=None with'),
  ({'epoch_steps': 5}, "epoch_steps=5 with sampling='full'"),
  (ALLOCATED | {'sampling_probability': 0.1},
    'sampling_probability=0.1 is not 1 / epoch_steps = 0.2'),
  (ALLOCATED | {'max_cohort': 5}, 'got population=None'),
  (ALLOCATED | {'max_cohort': 5, 'population': 4},
    'max_cohort=5 exceeds populat'),
)  # fmt: skip


def test_the_coin_of_an_allocation_follows_from_its_epoch():
  """Catches a probability that stays at its default of 1."""
  for given in ({}, {'sampling_probability': 0.2}):
    part = mechanism(**ALLOCATED, **given)
    assert part.sampling_probability == 0.2
    assert (
      'random allocation to one of 5' in statement(mechanism=part).sentence()
    )


def statement(
  epsilon=5.0, delta=1e-5, mechanism=ONE, trust='central', **fields
):
  spec = epsilon, delta, 'pld', mechanism, trust
  return statements.PrivacyStatement(*spec, **fields)


def test_a_statement_is_plain_json():
  for part in (ONE, accounting.compose([ONE, ONE])):
    plain = statement(INF, mechanism=part, caveats=('Mind.',)).as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain['epsilon'] == 'inf'
    assert plain['caveats'] == ['Mind.']
    assert 'add_or_remove_one' in json.dumps(plain)


@pytest.mark.parametrize(('fields', 'begins'), [
  ({}, '(5, 1e-05)-'),
  ({'mu': 0.5, 'true_positive_rate': 0.0043}, '(5, 1e-05)-'),
  ({'noise': statements.NOISE[1]}, 'Not private: noise_seed fixes the noise.'),
  ({'epsilon': INF}, 'Not private: (inf, 1e-05)-'),
])  # fmt: skip
def test_a_statement_says_for_whom_against_whom_and_whether(fields, begins):
  """Catches 1,300 characters in the console, and a lost "Not private"."""
  whole = statement(caveats=('Mind.' * 200, 'And this.'), **fields)
  first, *rest, last = whole.sentence('in a file').split('\n')
  assert first == whole.headline()
  assert first.startswith(begins)
  of_whom = 'of one client (add or remove one) against anyone but the trusted s'
  assert of_whom in first
  assert 'the server included' in statement(trust='local').headline()
  assert rest[0] == 'Computed by PLD: 1 steps, sampling full.'
  assert last == 'Conditions and caveats, 2: in a file'
  assert (len(rest) <= 2, len(first) < 200) == (True, True)
  lines = [first, *rest, *whole.caveats]
  assert whole.as_dict()['sentence'].split('\n') == lines


@pytest.mark.parametrize('units', [None, 1, 49, 10**6])
@pytest.mark.parametrize('delta', [1e-9, 1e-6, 1 / 49, 0.5, 1 - 1e-9])
@pytest.mark.parametrize('epsilon', [0.0, 10.0, 10.01, 1e6, INF])
def test_what_means_little_is_said_first(epsilon, delta, units):
  """Catches epsilon = 10^6, or delta >= 1 / clients, stated like any other."""
  one = statement(epsilon, delta, units=units)
  *weak, promise = one.headline().split('\n')
  share = delta >= 0.01 or (units is not None and delta >= 1 / units)
  assert len(weak) == (epsilon < INF and (epsilon > 10 or share))
  assert f'({epsilon:.4g}, {delta:.3g})-differential' in promise
  for line in weak:
    assert line.startswith('This guarantee means little: ')
    assert (f'share of {units or "all"} clients' in line) == share
    assert (f'epsilon={epsilon:.4g} allows' in line) == (epsilon > 10)
    assert len(line) < 200


def test_a_statement_says_what_a_test_can_tell():
  """Catches a promise of tests where the noise or epsilon promises nothing."""
  tests = {'mu': 0.5, 'true_positive_rate': 0.0043}
  sentence = statement(caveats=('Mind.',), **tests).sentence()
  assert 'mu 0.5 of Gaussian differential privacy at every' in sentence
  assert 'at most 0.43 % true positives at 0.1 % false' in sentence
  assert statement(**tests).as_dict()['mu'] == 0.5
  assert statement(mu=INF).as_dict()['mu'] == 'inf'
  for silent in (
    statement(),
    statement(epsilon=INF, **tests),
    statement(noise=statements.NOISE[1], **tests),
  ):
    assert 'true positives' not in silent.sentence()


test_a_statement_refuses_what_means_nothing = refused(
  lambda fields: statement(**fields),
  ({'epsilon': NAN}, 'epsilon=nan is no'),
  ({'epsilon': -1.0}, 'epsilon=-1.0 is no'),
  ({'delta': 0.0}, 'delta=0.0 must be > 0 and < 1'),
  ({'delta': NAN}, 'delta=nan'),
  ({'trust': 'none'}, "trust='none'"),
  ({'noise': 'loud'}, "noise='loud'"),
)
