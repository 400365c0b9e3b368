"""What accounting refuses: bad numbers, contradictions, missing analyses."""

import itertools
import types

import accounting_reference as ref
from accounting_reference import ADD, INF, NAN, ONE, REPLACE, SIZES, mechanism
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import (
  Adjacency,
  Sampling,
  UnsupportedAccountingError,
  calibrate_noise_multiplier,
  gaussian,
  losses,
)
import jax
import pytest

REALS = 'noise_multiplier', 'sampling_probability'
COUNTS = 'steps', 'releases_per_step', 'population', 'max_cohort', 'epoch_steps'
ALLOCATED = {'sampling': ref.ALLOCATION, 'epoch_steps': 5}


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


def test_questions_name_the_number_that_is_none():
  """Catches a delta of 0, or an epsilon of NaN, that gets an answer."""
  goal = {'epsilon': 1.0, 'delta': 1e-5}
  for delta in [*ref.FOREIGN, 0, 1, -1e-5, NAN, INF]:
    for call in (
      lambda d: accounting.compute_epsilon(ONE, delta=d),
      lambda d: accounting.epsilon_curve(ONE, [1], delta=d),
      lambda d: calibrate_noise_multiplier(epsilon=1, delta=d, steps=1),
      lambda d: gaussian.gaussian_epsilon(1.0, d),
      lambda d: gaussian.gaussian_noise_multiplier(1.0, d),
    ):
      refused('delta', lambda call=call, d=delta: call(d))
  for epsilon in [*ref.FOREIGN, -1.0, NAN, INF]:
    for call in (
      lambda e: ref.delta_of(ONE, e),
      lambda e: gaussian.gaussian_delta(1.0, e),
      lambda e: calibrate_noise_multiplier(**goal | {'epsilon': e}, steps=1),
      lambda e: gaussian.gaussian_noise_multiplier(e, 1e-5),
    ):
      refused('epsilon', lambda call=call, e=epsilon: call(e))
  refused('epsilon', lambda: gaussian.gaussian_noise_multiplier(0, 1e-5))
  refused('rtol', lambda: calibrate_noise_multiplier(**goal, steps=1, rtol=0))


@pytest.mark.parametrize(('name', 'fields'), [
  ('sampling', {'sampling': 'poisson'}),
  ('adjacency', {'adjacency': 'replace_one'}),
  ('unit', {'unit': 'token'}),
  ('sampling_probability', {'sampling_probability': 0.5}),
  ('sampling_probability',
    {'sampling': ref.FIXED, 'sampling_probability': 0.3, **SIZES}),
  ('sampling_probability', ALLOCATED | {'sampling_probability': 0.1}),
  ('population', {'sampling': ref.TRUNCATED}),
  ('population', ALLOCATED | {'max_cohort': 5}),
  ('max_cohort', {'population': 5, 'max_cohort': 6}),
  ('max_cohort', {'sampling': ref.POISSON, **SIZES}),
  ('epoch_steps', {'sampling': ref.ALLOCATION}),
  ('epoch_steps', {'epoch_steps': 5}),
])  # fmt: skip
def test_a_mechanism_refuses_fields_that_contradict(name, fields):
  """Catches an account of another sampling than the fields say."""
  refused(name, lambda: mechanism(**fields))


SUPPORTED = {
  *itertools.product([Sampling.FULL], Adjacency, ['pld', 'rdp']),
  *itertools.product([ref.POISSON], Adjacency, ['pld']),
  *itertools.product([ref.POISSON], [ADD, ref.ZERO], ['rdp']),
  *itertools.product([ref.TRUNCATED], [ADD], ['pld', 'rdp']),
  (ref.TRUNCATED, ref.ZERO, 'pld'),
  (ref.FIXED, REPLACE, 'rdp'),
  *itertools.product([ref.ALLOCATION], [ADD, ref.ZERO], ['pld']),
}


@pytest.mark.parametrize('sampling', Sampling)
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
def test_only_analyses_that_exist(sampling, adjacency, accountant):
  """Catches a sampling that is accounted without a proof, silent or not."""
  spec = {'sampling': sampling, 'adjacency': adjacency}
  if sampling in (ref.TRUNCATED, ref.FIXED):
    spec |= {'population': 10, 'max_cohort': 9}
  if sampling in (ref.POISSON, ref.TRUNCATED):
    spec['sampling_probability'] = 0.1
  if sampling is ref.ALLOCATION:
    spec['epoch_steps'] = 5
  part = mechanism(noise_multiplier=8.0, **spec)
  if (sampling, adjacency, accountant) in SUPPORTED:
    assert 0 < ref.epsilon(part, 1e-3, accountant) < 5
    return
  silent = mechanism(noise_multiplier=0.0, **spec)
  options = {'delta': 1e-3, 'accountant': accountant}
  for call in (
    lambda: ref.epsilon(silent, 1e-3, accountant),
    lambda: ref.delta_of(part, 1, accountant),
    lambda: accounting.epsilon_curve(part, [1], **options),
    lambda: calibrate_noise_multiplier(epsilon=1, steps=1, **options, **spec),
  ):
    with pytest.raises(UnsupportedAccountingError):
      call()


def test_what_the_accountant_cannot_answer_is_refused():
  """Catches cohorts that overflow at any noise, and a delta below rounding."""
  capped = {'sampling': ref.TRUNCATED, **SIZES}
  sampled = ref.poisson(5.0, 10, 0.1)
  for name, call in (
    ('max_cohort', lambda: ref.calibrated(5, 1e-5, 100, 0.1, **capped)),
    ('delta', lambda: ref.epsilon(sampled, 1e-13)),
    ('accountant', lambda: ref.epsilon(ONE, accountant='gdp')),
    ('accountant', lambda: ref.delta_of(ONE, 1, None)),
    ('mechanism', lambda: accounting.compute_epsilon(1.0, delta=1e-5)),
    ('curve', lambda: accounting.epsilon_curve(1.0, [1], delta=1e-5)),
  ):
    refused(name, call)


def test_what_is_no_composition_is_refused():
  """Catches a composition over neighbours of two kinds, or of nothing."""
  compose, parallel = accounting.compose, accounting.parallel_composition
  for name, call in (
    ('adjacency', lambda: compose([ONE, mechanism(adjacency=REPLACE)])),
    ('unit', lambda: compose([ONE, mechanism(unit='sample')])),
    ('parts', lambda: compose([])),
    ('mechanism', lambda: compose([ONE, 1.0])),
    ('part', lambda: accounting.ComposedMechanism((ONE, 1.0))),
    ('epsilons', lambda: parallel([])),
    *(('epsilon', lambda e=e: parallel([1.0, e])) for e in (NAN, -INF, '1')),
  ):
    refused(name, call)


def test_a_delta_that_publishes_a_unit_is_warned_of():
  part = mechanism(population=1000, noise_multiplier=9.0)
  spec = {'epsilon': 1, 'steps': 1, 'population': 1000}
  for call in (
    lambda: accounting.compute_epsilon(part, delta=1e-3),
    lambda: accounting.epsilon_curve(part, [1], delta=1e-3),
    lambda: calibrate_noise_multiplier(delta=1e-3, **spec),
  ):
    with pytest.warns(UserWarning, match='delta=0.001'):
      call()
  assert ref.epsilon(part, 0.9e-3) > 0


@pytest.mark.parametrize('epsilon', [0.0, NAN, -1.0])
def test_an_answer_that_cannot_be_is_refused(monkeypatch, epsilon):
  """Catches epsilon 0 from a curve whose loss was rounded away."""
  curve = types.SimpleNamespace(epsilon=lambda delta: epsilon)
  monkeypatch.setattr(losses, 'composition', lambda parts: curve)
  with pytest.raises(UnsupportedAccountingError):
    accounting.compute_epsilon(ref.poisson(1.0, 10, 0.1), delta=1e-5)
