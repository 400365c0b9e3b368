"""Descriptions of mechanisms refuse contradictions; statements are plain."""

import itertools
import json

from accounting_reference import INF, NAN, ONE, SIZES, mechanism
from fl_sketch.privacy import accounting, types
from fl_sketch.privacy.accounting import GaussianMechanism, Sampling
import jax
import numpy as np
import pytest
from refusals import refused


@pytest.mark.parametrize(
  ('field', 'value'),
  [
    *(('noise_multiplier', value) for value in (-1.0, NAN, INF, -INF)),
    *(('sampling_probability', v) for v in (0, -0.1, 1.1, NAN, INF)),
    *itertools.product(
      ('steps', 'population', 'max_cohort', 'releases_per_step'), (0, -3)
    ),
  ],
)
def test_a_mechanism_refuses_numbers_out_of_range(field, value):
  poisson = {'sampling': Sampling.TRUNCATED_POISSON, **SIZES}
  with pytest.raises(ValueError, match=f'{field}={value}'):
    mechanism(**{'sampling_probability': 0.1, **poisson, field: value})
  if field == 'noise_multiplier':
    with pytest.raises(ValueError, match=f'{field}={value}'):
      accounting.gaussian_epsilon(value, 1e-5)


@pytest.mark.parametrize('value', [1.0, 2.5, np.float64(3)])
def test_counts_are_integers(value):
  for field in ('steps', 'population', 'max_cohort', 'releases_per_step'):
    with pytest.raises(TypeError, match=f'Expected {field} to be an integer'):
      mechanism(**{field: value})


def test_a_traced_value_is_a_type_error():
  def traced(z):
    mechanism(noise_multiplier=z)

  with pytest.raises(TypeError, match='on the host, got'):
    jax.jit(traced)(1.0)


def test_numpy_scalars_are_numbers():
  numpy = GaussianMechanism(np.float32(2.0), np.int64(5))
  assert numpy == GaussianMechanism(2.0, 5)
  json.dumps([numpy.noise_multiplier, numpy.steps])
  assert accounting.gaussian_epsilon(
    np.float64(2), np.float64(1e-5), np.int32(5)
  ) == accounting.compute_epsilon(numpy, delta=1e-5)


test_a_mechanism_refuses_fields_that_contradict = refused(
  lambda fields: mechanism(**fields),
  ({'sampling_probability': 0.5}, "== 1 for sampling='full'"),
  ({'sampling': Sampling.TRUNCATED_POISSON}, 'population=None'),
  ({'sampling': Sampling.FIXED_WITHOUT_REPLACEMENT}, 'max_cohort=None'),
  ({'population': 5, 'max_cohort': 6}, 'max_cohort=6 <= population=5'),
  ({'sampling': Sampling.POISSON, **SIZES}, "is 'truncated_poisson'"),
  ({'max_cohort': 5}, 'to be population=None'),
  (
    {
      'sampling': Sampling.FIXED_WITHOUT_REPLACEMENT,
      'sampling_probability': 0.3,
      **SIZES,
    },
    'sampling_probability=0.3 == max_cohort / population = 0.2',
  ),
  ({'unit': 'token'}, "unit='token'"),
)


def statement(**fields):
  defaults = {
    'epsilon': 5.0,
    'delta': 1e-5,
    'accountant': 'pld',
    'mechanism': ONE,
    'trust': 'central',
  }
  return accounting.PrivacyStatement(**{**defaults, **fields})


def test_a_statement_is_plain_json():
  composed = accounting.compose([ONE, ONE])
  for given in (ONE, composed):
    made = statement(mechanism=given, epsilon=INF, caveats=('Mind.',))
    plain = made.as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain['epsilon'] == 'inf'
    assert plain['caveats'] == ['Mind.']
    assert 'add_or_remove_one' in json.dumps(plain)


def test_a_statement_says_for_whom_against_whom_and_whether():
  said = statement(trust='local', caveats=('Mind.',)).sentence()
  assert '(5, 1e-05)' in said
  assert 'one client (add or remove one)' in said
  assert 'the server included' in said
  assert said.endswith('Mind.')
  assert statement(epsilon=INF).sentence().startswith('Not private')
  known = statement(noise=types.NOISE[1])
  assert known.sentence().startswith('Not private, for its noise')


@pytest.mark.parametrize(
  'fields',
  [
    {'epsilon': NAN},
    {'epsilon': -1.0},
    {'delta': 0.0},
    {'delta': NAN},
    {'trust': 'none'},
    {'noise': 'loud'},
  ],
)
def test_a_statement_refuses_what_means_nothing(fields):
  with pytest.raises(ValueError, match=next(iter(fields))):
    statement(**fields)
