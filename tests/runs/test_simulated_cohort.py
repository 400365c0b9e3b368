"""Runs that simulate the noise of a larger cohort, and what they state."""

from fl_sketch import accounting, runs
from fl_sketch.accounting import statements
from fl_sketch.runs import audit, config
import numpy as np
import pytest

from tests.runs.test_account import quadratics

SMALL = {'population': 1000, 'cohort': 20}
LARGE = {'population': 50_000, 'cohort': 1000}
SIMULATED = SMALL | {'simulated_cohort': 1000}


@pytest.mark.representatives('fixed_size')
@pytest.mark.parametrize('sampling', ['fixed_size', 'random_allocation'])
def test_the_statement_is_that_of_the_large_run(sampling):
  """Catches a statement of the small cohort, or of the noise that is added."""
  fields = {'sampling': sampling, 'noise_multiplier': 2.0, 'delta': 1e-6}
  here = runs.account(quadratics(**SIMULATED | fields))
  there = runs.account(quadratics(**LARGE | fields))
  assert here.mechanism == there.mechanism
  assert here.statement.epsilon == there.statement.epsilon
  assert here.epsilons([1, 7]) == there.epsilons([1, 7])
  assert here.mechanism.population == 50_000


@pytest.mark.nightly
def test_the_noise_on_the_mean_is_that_of_the_large_cohort():
  """Catches noise that is scaled twice, or not at all."""
  c = quadratics(**SIMULATED, noise_multiplier=2.0)
  guarantee = runs.account(c)
  stddev = guarantee.noise_multiplier * c.clip_norm / c.cohort
  assert stddev == pytest.approx(2.0 * c.clip_norm / 1000)
  exp = runs.build(c)
  assert exp.hyper.noise_multiplier == np.float32(2.0 * 20 / 1000)
  sensitivity = exp.make(exp.hyper).sensitivity
  np.testing.assert_allclose(sensitivity, [c.clip_norm])


def test_noise_is_calibrated_for_the_large_run():
  """Catches a calibration for the small population."""
  fields = {'noise_multiplier': None, 'epsilon': 3.0, 'sampling': 'fixed_size'}
  fields |= {'population': 20, 'cohort': 20, 'simulated_cohort': 1000}
  guarantee = runs.account(quadratics(**fields))
  z = guarantee.mechanism.noise_multiplier
  exact = accounting.gaussian_noise_multiplier(3.0, 1e-6, steps=20)
  assert z == pytest.approx(exact, rel=1e-3)
  assert guarantee.noise_multiplier == pytest.approx(z / 50)
  assert guarantee.statement.epsilon <= 3.0


def test_a_simulation_says_that_it_is_none_of_private():
  """Catches a simulation that reads as a guarantee of its own clients."""
  guarantee = runs.account(quadratics(**SIMULATED))
  statement = guarantee.statement
  assert statement.noise == 'simulated: not private'
  assert statement.units == 50000
  assert statement.sentence().startswith('Not private')
  plain = runs.account(quadratics(**SMALL)).statement
  assert plain.noise in statements.NOISE[:2]
  assert {*plain.caveats} < {*statement.caveats}


def test_a_simulation_is_not_audited():
  """Catches an audit of noise that the statement does not speak of."""
  with pytest.raises(config.ConfigError, match='simulated_cohort'):
    audit.audit_config(quadratics(**SIMULATED))
