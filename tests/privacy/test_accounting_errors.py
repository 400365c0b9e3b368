"""What accounting refuses: bad numbers, wrong types, analyses there are not."""

import itertools

import accounting_reference
from accounting_reference import ADD, INF, NAN, ONE, REPLACE, SIZES, mechanism
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import (
  Adjacency,
  GaussianMechanism,
  Sampling,
  UnsupportedAccountingError,
)
import pytest


@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
@pytest.mark.parametrize('delta', [0, 1, -1e-5, 1.5, NAN, INF, -INF])
def test_delta_is_a_fraction(delta, accountant):
  spec = {'delta': delta, 'accountant': accountant}
  for call in (
    lambda: accounting.compute_epsilon(ONE, **spec),
    lambda: accounting.epsilon_curve(ONE, [1], **spec),
    lambda: accounting.gaussian_epsilon(1.0, delta),
    lambda: accounting.gaussian_noise_multiplier(1.0, delta),
    lambda: accounting.calibrate_noise_multiplier(epsilon=1, steps=1, **spec),
    lambda: accounting.calibrate_steps(epsilon=1, noise_multiplier=9.0, **spec),
  ):
    with pytest.raises(ValueError, match=f'delta={delta}'):
      call()


@pytest.mark.parametrize('epsilon', [0, -1.0, NAN, INF])
def test_a_target_epsilon_is_positive_and_finite(epsilon):
  spec = {'epsilon': epsilon, 'delta': 1e-5}
  for call in (
    lambda: accounting.gaussian_noise_multiplier(**spec),
    lambda: accounting.calibrate_noise_multiplier(steps=1, **spec),
    lambda: accounting.calibrate_steps(noise_multiplier=9.0, **spec),
  ):
    with pytest.raises(ValueError, match=f'epsilon={epsilon}'):
      call()
  if epsilon != 0:
    with pytest.raises(ValueError, match=f'epsilon={epsilon}'):
      accounting.compute_delta(ONE, epsilon=epsilon)
    with pytest.raises(ValueError, match=f'epsilon={epsilon}'):
      accounting.gaussian_delta(1.0, epsilon)


@pytest.mark.parametrize('value', accounting_reference.FOREIGN)
def test_numbers_of_the_host_only(value):
  for field in ('noise_multiplier', 'sampling_probability', 'steps'):
    with pytest.raises(TypeError, match=f'Expected {field} to be'):
      mechanism(**{field: value})
  for field in ('releases_per_step', 'population', 'max_cohort'):
    if value is not None:
      with pytest.raises(TypeError, match=f'Expected {field} to be'):
        mechanism(**{field: value})
  with pytest.raises(TypeError, match='Expected delta to be'):
    accounting.compute_epsilon(ONE, delta=value)
  with pytest.raises(TypeError, match='Expected epsilon to be'):
    accounting.compute_delta(ONE, epsilon=value)
  with pytest.raises(TypeError, match='got'):
    accounting.compute_epsilon(value, delta=1e-5)
  with pytest.raises(TypeError, match='got'):
    accounting.epsilon_curve(value, [1], delta=1e-5)


def test_enums_are_not_guessed_from_strings():
  with pytest.raises(TypeError, match="sampling='poisson' to be a Sampling"):
    mechanism(sampling='poisson')
  with pytest.raises(TypeError, match="adjacency='replace_one' to be"):
    mechanism(adjacency='replace_one')
  for call in (
    lambda: accounting.compute_epsilon(ONE, delta=1e-5, accountant='gdp'),
    lambda: accounting.compute_delta(ONE, epsilon=1, accountant=None),
    lambda: accounting.to_dp_event(ONE, 'gdp'),
  ):
    with pytest.raises(ValueError, match="one of \\('pld', 'rdp'\\)"):
      call()
  assert Adjacency.REPLACE_SPECIAL is Adjacency.ZERO_OUT


SUPPORTED = {
  *itertools.product([Sampling.FULL], Adjacency, ['pld', 'rdp']),
  *itertools.product([Sampling.POISSON], Adjacency, ['pld']),
  (Sampling.POISSON, ADD, 'rdp'),
  (Sampling.POISSON, Adjacency.ZERO_OUT, 'rdp'),
  (Sampling.TRUNCATED_POISSON, ADD, 'pld'),
  (Sampling.TRUNCATED_POISSON, ADD, 'rdp'),
  (Sampling.TRUNCATED_POISSON, Adjacency.ZERO_OUT, 'pld'),
  (Sampling.FIXED_WITHOUT_REPLACEMENT, REPLACE, 'rdp'),
}


@pytest.mark.parametrize('sampling', Sampling)
@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
def test_only_analyses_that_exist(sampling, adjacency, accountant):
  capped = sampling.value.startswith(('truncated', 'fixed'))
  sizes = {'population': 10, 'max_cohort': 9} if capped else {}
  q = 0.1 if sampling.value.endswith('poisson') else 1.0
  given = mechanism(
    noise_multiplier=8.0,
    sampling=sampling,
    sampling_probability=q,
    adjacency=adjacency,
    **sizes,
  )
  answers = {'delta': 1e-3, 'accountant': accountant}
  if (sampling, adjacency, accountant) in SUPPORTED:
    assert 0 < accounting.compute_epsilon(given, **answers) < 5
    return
  advice = {
    Sampling.POISSON: "replace-one needs accountant='pld'",
    Sampling.TRUNCATED_POISSON: "accountant='pld'.*choose add-or-remove-one",
    Sampling.FIXED_WITHOUT_REPLACEMENT: "accountant='rdp'.*sample by Poisson",
  }[sampling]
  for call in (
    lambda: accounting.compute_epsilon(given, **answers),
    lambda: accounting.compute_delta(given, epsilon=1, accountant=accountant),
    lambda: accounting.epsilon_curve(given, [1], **answers),
    lambda: accounting.to_dp_event(given, accountant),
    lambda: accounting.calibrate_steps(
      epsilon=1,
      noise_multiplier=1.0,
      sampling_probability=q,
      sampling=sampling,
      adjacency=adjacency,
      **sizes,
      **answers,
    ),
  ):
    with pytest.raises(UnsupportedAccountingError, match=advice):
      call()


def test_silence_is_no_way_around_the_table():
  silent = GaussianMechanism(0.0, 1, Sampling.POISSON, 0.5, adjacency=REPLACE)
  with pytest.raises(UnsupportedAccountingError, match='replace-one'):
    accounting.compute_epsilon(silent, delta=1e-5, accountant='rdp')


def test_truncation_under_add_or_remove_has_no_event():
  truncated = GaussianMechanism(
    1.0, 1, Sampling.TRUNCATED_POISSON, 0.1, **SIZES
  )
  with pytest.raises(UnsupportedAccountingError, match='No event stands'):
    accounting.to_dp_event(truncated)


def test_calibration_refuses_a_cohort_that_overflows_at_any_noise():
  with pytest.raises(UnsupportedAccountingError, match='max_cohort is too'):
    accounting.calibrate_noise_multiplier(
      epsilon=5,
      delta=1e-5,
      steps=100,
      sampling_probability=0.1,
      sampling=Sampling.TRUNCATED_POISSON,
      **SIZES,
    )


def test_a_delta_below_rounding_is_refused():
  sampled = GaussianMechanism(5.0, 10, Sampling.POISSON, 0.1)
  with pytest.raises(
    UnsupportedAccountingError, match="choose accountant='rdp"
  ):
    accounting.compute_epsilon(sampled, delta=1e-13)
  assert accounting.compute_epsilon(sampled, delta=1e-13, accountant='rdp') > 0


def test_compositions_are_of_one_kind():
  for other in (mechanism(adjacency=REPLACE), mechanism(unit='sample')):
    with pytest.raises(ValueError, match='in all parts, got'):
      accounting.compose([ONE, other])
  with pytest.raises(ValueError, match='len\\(parts\\)=0'):
    accounting.compose([])
  with pytest.raises(TypeError, match='got float'):
    accounting.compose([ONE, 1.0])
  with pytest.raises(TypeError, match='to be a GaussianMechanism'):
    accounting.ComposedMechanism((ONE, 1.0))


@pytest.mark.covers('S0-H2')
def test_parallel_composition_refuses_what_is_no_epsilon():
  for bad in ([NAN], [-1.0], [1.0, -INF]):
    with pytest.raises(ValueError, match='epsilon='):
      accounting.parallel_composition(bad)
  with pytest.raises(ValueError, match='len'):
    accounting.parallel_composition([])
  with pytest.raises(TypeError, match='epsilon'):
    accounting.parallel_composition(['1'])


def test_a_delta_that_publishes_a_unit_is_warned_of():
  known = mechanism(population=1000, noise_multiplier=9.0)
  for call in (
    lambda: accounting.compute_epsilon(known, delta=1e-3),
    lambda: accounting.epsilon_curve(known, [1], delta=1e-3),
    lambda: accounting.calibrate_noise_multiplier(
      epsilon=1, delta=1e-3, steps=1, population=1000
    ),
    lambda: accounting.calibrate_steps(
      epsilon=1, delta=1e-3, noise_multiplier=9.0, population=1000
    ),
  ):
    with pytest.warns(UserWarning, match='delta=0.001 < 1 / population=1000'):
      call()
  assert accounting.compute_epsilon(known, delta=0.9e-3) > 0


def test_calibration_says_when_nothing_fits():
  budget = {'epsilon': 1.0, 'delta': 1e-5}
  with pytest.raises(accounting.CalibrationError, match='one step'):
    accounting.calibrate_steps(**budget, noise_multiplier=1.0)
  with pytest.raises(accounting.CalibrationError, match='one step'):
    accounting.calibrate_steps(**budget, noise_multiplier=0.0)
  with pytest.raises(accounting.CalibrationError, match='fewer than'):
    accounting.calibrate_steps(**budget, noise_multiplier=1e9)
  with pytest.raises(ValueError, match='rtol=0'):
    accounting.calibrate_noise_multiplier(**budget, steps=1, rtol=0)
  with pytest.raises(TypeError, match='cohort'):
    accounting.calibrate_noise_multiplier(**budget, steps=1, cohort=5)


@pytest.mark.long
def test_calibration_says_when_no_noise_fits():
  """Renyi's orders end at 1024, which no epsilon this small survives."""
  with pytest.raises(accounting.CalibrationError, match='to meet the target'):
    accounting.calibrate_noise_multiplier(
      epsilon=1e-4,
      delta=1e-9,
      steps=10,
      sampling_probability=0.5,
      accountant='rdp',
    )


class Lossless:
  """A curve that has lost its loss, as a library may."""

  def __init__(self, epsilon, delta):
    self.get_epsilon_for_delta = lambda _: epsilon
    self.get_delta_for_epsilon = lambda _: delta


def test_an_answer_that_cannot_be_is_refused(monkeypatch):
  from fl_sketch.privacy import profiles

  sampled = GaussianMechanism(1.0, 10, Sampling.POISSON, 0.1)
  for epsilon in (0.0, NAN, -1.0):
    monkeypatch.setattr(
      profiles, '_losses', lambda *_, e=epsilon: Lossless(e, NAN)
    )
    with pytest.raises(UnsupportedAccountingError, match='cannot be'):
      accounting.compute_epsilon(sampled, delta=1e-5)
  with pytest.raises(UnsupportedAccountingError, match='not a number'):
    accounting.compute_delta(sampled, epsilon=1.0)
