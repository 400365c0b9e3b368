"""What accounting refuses: bad numbers, wrong types, analyses there are not."""

import itertools

import accounting_reference as ref
from accounting_reference import ADD, INF, NAN, ONE, REPLACE, SIZES, mechanism
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import (
  Adjacency,
  Sampling,
  UnsupportedAccountingError,
)
import pytest
from refusals import refused_calls


def calls(mechanism, delta, accountant='pld', **spec):
  """What takes a delta: of the mechanism, and of a calibration by `spec`."""
  answer = {'delta': delta, 'accountant': accountant}
  spec |= {'epsilon': 1, **answer}
  return (
    lambda: accounting.compute_epsilon(mechanism, **answer),
    lambda: accounting.epsilon_curve(mechanism, [1], **answer),
    lambda: accounting.calibrate_noise_multiplier(steps=1, **spec),
  )


@pytest.mark.parametrize('delta', [0, 1, -1e-5, NAN, INF])
def test_delta_is_a_fraction(delta):
  for call in (
    *calls(ONE, delta),
    lambda: accounting.gaussian_epsilon(1.0, delta),
    lambda: accounting.gaussian_noise_multiplier(1.0, delta),
  ):
    with pytest.raises(ValueError, match=f'delta={delta}'):
      call()


@pytest.mark.parametrize('epsilon', [0, -1.0, NAN, INF])
def test_a_target_epsilon_is_positive_and_finite(epsilon):
  spec = {'epsilon': epsilon, 'delta': 1e-5}
  targets = (
    lambda: accounting.gaussian_noise_multiplier(**spec),
    lambda: accounting.calibrate_noise_multiplier(steps=1, **spec),
  )
  deltas = (
    lambda: ref.delta_of(ONE, epsilon),
    lambda: accounting.gaussian_delta(1.0, epsilon),
  )
  for call in (*targets, *(deltas if epsilon != 0 else ())):
    with pytest.raises(ValueError, match=f'epsilon={epsilon}'):
      call()


@pytest.mark.parametrize('value', ref.FOREIGN)
def test_numbers_of_the_host_only(value):
  numbers = 'noise_multiplier', 'sampling_probability', 'steps'
  optional = () if value is None else SIZES
  for field in (*numbers, 'releases_per_step', *optional):
    with pytest.raises(TypeError, match=f'{field} must be'):
      mechanism(**{field: value})
  for call, message in (
    (lambda: accounting.compute_epsilon(ONE, delta=value), 'delta must be'),
    (lambda: ref.delta_of(ONE, value), 'epsilon must be'),
    (
      lambda: accounting.compute_epsilon(value, delta=1e-5),
      'mechanism .*, got',
    ),
    (lambda: accounting.epsilon_curve(value, [1], delta=1e-5), 'curve .*, got'),
  ):
    with pytest.raises(TypeError, match=message):
      call()


test_enums_are_not_guessed_from_strings = refused_calls(
  (lambda: mechanism(sampling='poisson'), "sampling='poisson' must be"),
  (lambda: mechanism(adjacency='replace_one'),
    "adjacency='replace_one' must be"),
  error=TypeError,
)  # fmt: skip
test_an_accountant_has_a_name = refused_calls(
  (lambda: ref.epsilon(ONE, accountant='gdp'), "one of \\('pld', 'rdp'\\)"),
  (lambda: ref.delta_of(ONE, 1, None), "one of \\('pld', 'rdp'\\)"),
)


SUPPORTED = {
  *itertools.product([Sampling.FULL], Adjacency, ['pld', 'rdp']),
  *itertools.product([ref.POISSON], Adjacency, ['pld']),
  *itertools.product([ref.POISSON], [ADD, ref.ZERO], ['rdp']),
  *itertools.product([ref.TRUNCATED], [ADD], ['pld', 'rdp']),
  (ref.TRUNCATED, ref.ZERO, 'pld'),
  (ref.FIXED, REPLACE, 'rdp'),
  *itertools.product([ref.ALLOCATION], [ADD, ref.ZERO], ['pld']),
}
ADVICE = {
  ref.POISSON: "replace-one needs accountant='pld'",
  ref.TRUNCATED: "accountant='pld'.*choose add-or-remove-one",
  ref.FIXED: "accountant='rdp'.*sample by Poisson",
  ref.ALLOCATION: "accountant='pld'.*sample by Poisson",
}


@pytest.mark.parametrize('sampling', Sampling)
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
def test_only_analyses_that_exist(sampling, adjacency, accountant):
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
  for call in (
    *calls(part, 1e-3, accountant, **spec),
    lambda: ref.delta_of(part, 1, accountant),
  ):
    with pytest.raises(UnsupportedAccountingError, match=ADVICE[sampling]):
      call()


SILENT = ref.poisson(0.0, 1, 0.5, adjacency=REPLACE)
SAMPLED = ref.poisson(5.0, 10, 0.1)
# Silence is no way around the table; cohorts that overflow at any noise; a
# delta below rounding.
test_what_has_no_analysis_is_refused = refused_calls(
  (lambda: ref.epsilon(SILENT, accountant='rdp'), 'replace-one'),
  (lambda: ref.calibrated(5, 1e-5, 100, 0.1, sampling=ref.TRUNCATED, **SIZES),
    'max_cohort is too'),
  (lambda: ref.epsilon(SAMPLED, 1e-13), "choose accountant='rdp"),
  error=UnsupportedAccountingError,
)  # fmt: skip


compose, parallel = accounting.compose, accounting.parallel_composition
test_what_is_no_composition_is_refused = refused_calls(
  (lambda: compose([ONE, mechanism(adjacency=REPLACE)]), 'must have one adj'),
  (lambda: compose([ONE, mechanism(unit='sample')]), 'must have one unit'),
  (lambda: compose([]), 'len\\(parts\\)=0'),
  (lambda: parallel([]), 'len'),
  (lambda: parallel([NAN]), 'epsilon='),
  (lambda: parallel([1.0, -INF]), 'epsilon='),
)
test_what_cannot_be_composed_is_refused = refused_calls(
  (lambda: compose([ONE, 1.0]), 'got float'),
  (lambda: accounting.ComposedMechanism((ONE, 1.0)), 'is no GaussianMech'),
  (lambda: parallel(['1']), 'epsilon'),
  error=TypeError,
)


def test_a_delta_that_publishes_a_unit_is_warned_of():
  part = mechanism(population=1000, noise_multiplier=9.0)
  for call in calls(part, 1e-3, population=1000):
    with pytest.warns(UserWarning, match='delta=0.001 >= 1 / population=1000'):
      call()
  assert ref.epsilon(part, 0.9e-3) > 0


BUDGET = {'epsilon': 1.0, 'delta': 1e-5}
test_calibration_says_when_nothing_fits = refused_calls(
  (lambda: ref.calibrated(**BUDGET, steps=1, rtol=0), 'rtol=0')
)


class Lossless:
  """A curve that has lost its loss, as a library may."""

  def __init__(self, epsilon, delta):
    self.get_epsilon_for_delta = lambda _: epsilon
    self.get_delta_for_epsilon = lambda _: delta


def test_an_answer_that_cannot_be_is_refused(monkeypatch):
  from fl_sketch.privacy.accounting import losses

  sampled = ref.poisson(1.0, 10, 0.1)
  for epsilon in (0.0, NAN, -1.0):
    lossless = lambda *_, e=epsilon: Lossless(e, NAN)
    monkeypatch.setattr(losses, 'composition', lossless)
    with pytest.raises(UnsupportedAccountingError, match='cannot be'):
      accounting.compute_epsilon(sampled, delta=1e-5)
  with pytest.raises(UnsupportedAccountingError, match='not a number'):
    ref.delta_of(sampled, 1.0)
