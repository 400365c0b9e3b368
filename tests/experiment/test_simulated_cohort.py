"""Runs that simulate the noise of a larger cohort, and what they state."""

import dataclasses

from fl_sketch import experiment
from fl_sketch.experiment import audit, config, privacy_plan, privacy_report
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import statements
import numpy as np
import pytest

from tests.experiment.test_account import quadratics

SMALL = {'population': 1000, 'cohort': 20, 'sampling': 'poisson'}
LARGE = {'population': 50_000, 'cohort': 1000, 'sampling': 'poisson'}
SIMULATED = SMALL | {'simulated_cohort': 1000}
SAMPLINGS = pytest.mark.parametrize(
  'sampling', ['poisson', 'fixed_size', 'random_allocation']
)


@SAMPLINGS
def test_the_statement_is_that_of_the_large_run(sampling):
  """Catches a statement of the small cohort, or of the noise that is added."""
  fields = {'sampling': sampling, 'noise_multiplier': 2.0, 'delta': 1e-6}
  here = experiment.account(quadratics(**SIMULATED | fields))
  there = experiment.account(quadratics(**LARGE | fields))
  assert here.mechanism == there.mechanism
  assert here.statement.epsilon == there.statement.epsilon
  assert here.epsilons([1, 7]) == there.epsilons([1, 7])
  assert here.mechanism.population == 50_000


def test_the_noise_on_the_mean_is_that_of_the_large_cohort():
  """Catches noise that is scaled twice, or not at all."""
  c = quadratics(**SIMULATED, noise_multiplier=2.0)
  guarantee = experiment.account(c)
  stddev = guarantee.noise_multiplier * c.clip_norm / c.cohort
  assert stddev == pytest.approx(2.0 * c.clip_norm / 1000)
  exp = experiment.build(c)
  assert exp.hyper.noise_multiplier == np.float32(2.0 * 20 / 1000)
  sensitivity = exp.make(exp.hyper).sensitivity
  np.testing.assert_allclose(sensitivity, [c.clip_norm])


def test_noise_is_calibrated_for_the_large_run():
  """Catches a calibration for the small population."""
  fields = {'noise_multiplier': None, 'epsilon': 3.0, 'sampling': 'fixed_size'}
  fields |= {'population': 20, 'cohort': 20, 'simulated_cohort': 1000}
  guarantee = experiment.account(quadratics(**fields))
  z = guarantee.mechanism.noise_multiplier
  exact = accounting.gaussian_noise_multiplier(3.0, 1e-6, steps=20)
  assert z == pytest.approx(exact, rel=1e-3)
  assert guarantee.noise_multiplier == pytest.approx(z / 50)
  assert guarantee.statement.epsilon <= 3.0


def test_a_simulation_says_that_it_is_none_of_private():
  """Catches a simulation that reads as a guarantee of its own clients."""
  guarantee = experiment.account(quadratics(**SIMULATED))
  statement = guarantee.statement
  assert statement.noise == 'simulated: not private'
  sentence = statement.sentence()
  assert sentence.startswith('Not private: its cohort is simulated')
  assert 'a cohort of 1000 clients of 50000 by 20 of 1000' in sentence
  text = privacy_report.text(guarantee, {1: 1.0})
  assert 'simulated by noise_scale 0.02' in text
  plain = experiment.account(quadratics(**SMALL)).statement
  assert plain.noise in statements.NOISE[:2]
  assert not any('simulation of a cohort' in x for x in plain.caveats)


def test_a_simulation_is_not_audited():
  """Catches an audit of noise that the statement does not speak of."""
  with pytest.raises(config.ConfigError, match='1000 has less noise than'):
    audit.audit_config(quadratics(**SIMULATED))


TABLE = {
  'algorithm': 'safl', 'server_optimizer': 'adam',
  'sketch': {'kind': 'count_sketch', 'rows': 2, 'cols': 50},
}  # fmt: skip


def signal(**fields):
  c = quadratics(**fields)
  return privacy_report.signal(c, experiment.account(c))


@pytest.mark.nightly
def test_the_account_tells_the_signal_to_noise_ratio():
  """Catches noise on another number of coordinates, or of another cohort."""
  z = {'noise_multiplier': 2.0}
  table = accounting.signal_to_noise(2.0, 1.0, expected_cohort=20, size=100)
  assert f'{table:.4g} at most of a mean over 20 clients, on 100 nu' in signal(
    **SMALL, **z, **TABLE
  )
  assert f'{50 * table:.4g} at most' in signal(**SIMULATED, **z, **TABLE)
  each = accounting.signal_to_noise(2.0, 1.0, expected_cohort=20, size=1)
  dense = signal(**SMALL, **z)
  assert f'{each:.4g} at most' in dense
  assert 'over the root of d' in dense
  assert signal(**SMALL, noise_multiplier=1.0, bound='quantile') == ''


@pytest.mark.parametrize(
  ('trust', 'fields', 'louder'),
  [
    ('local', {}, 20),
    ('secure_aggregation', {'min_honest': 5}, 4),
    ('secure_aggregation', {}, 1),
  ],
)
def test_noise_of_clients_is_louder(trust, fields, louder):
  """Catches a ratio that leaves out the shares of honest clients."""
  shared = SMALL | TABLE | {'sampling': 'fixed_size', 'noise_multiplier': 2.0}
  table = accounting.signal_to_noise(2.0, 1.0, expected_cohort=20, size=100)
  text = signal(**shared, trust=trust, **fields)
  assert f'signal_to_noise {table / louder**0.5:.4g} at most' in text


def test_a_table_that_grows_with_the_model_has_no_size_yet():
  """Catches the size of the stand-in for a model that is not there."""
  sketch = {'kind': 'identity'}
  text = signal(**SMALL, **TABLE | {'sketch': sketch})
  assert 'on one number; of d numbers' in text


def test_the_large_run_differs_in_its_clients_alone():
  """Catches another field that the statement would not share with the run."""
  c = quadratics(**SIMULATED)
  large = privacy_plan.at_scale(c)
  changed = {
    field.name
    for field in dataclasses.fields(c)
    if getattr(c, field.name) != getattr(large, field.name)
  }
  assert changed == {'population', 'cohort', 'simulated_cohort'}
