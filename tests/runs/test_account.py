"""The statement of a run before it is run, and of a simulated cohort."""

import json

from fl_sketch import accounting, runs
from fl_sketch.accounting import hypothesis_tests, statements
from fl_sketch.runs import audit, config, privacy_report
import harness
from launch import configs
import numpy as np
import pytest
from scipy import stats

das_quadratics = configs.load('das_quadratics')


def quadratics(**fields):
  c = das_quadratics.get_config('quick').to_dict() | {'sweep': None}
  return config.Config.from_mapping(c | fields)


def test_a_config_is_accounted_as_its_run_is():
  c = quadratics()
  guarantee = runs.account(c)
  built = runs.build(c).guarantee
  assert guarantee.mechanism == built.mechanism
  # Its loss closes over the data, which only the program of a round shows.
  *said, last = built.statement.caveats
  assert 'closes over' in last
  assert guarantee.statement.caveats == (*said,)
  exact = accounting.gaussian_epsilon(c.noise_multiplier, 1e-6, steps=20)
  assert guarantee.statement.epsilon == pytest.approx(exact)


def test_a_statement_has_mu_and_the_trade_off_of_its_mechanism():
  """Catches those of another mechanism, delta or accountant."""
  c = quadratics()
  everybody = runs.account(c)
  distance = 20**0.5 / c.noise_multiplier
  assert everybody.statement.mu == pytest.approx(distance)
  most = everybody.statement.true_positive_rate
  assert most == pytest.approx(stats.norm.sf(stats.norm.isf(1e-3) - distance))
  poisson = {'sampling': 'poisson', 'cohort': 10}
  sampled = runs.account(quadratics(**poisson)).statement
  down_to = {'delta': sampled.delta, 'accountant': sampled.accountant}
  assert sampled.mu == hypothesis_tests.mu(sampled.mechanism, **down_to)
  assert sampled.mu < distance
  assert (everybody.statement.units, sampled.units) == (100, 100)
  assert 1e-3 < sampled.true_positive_rate < most


def test_a_picture_of_a_trade_off_is_above_guessing_and_ends_at_one():
  """Catches a curve of false negatives, or of other rates than its axis."""
  guarantee = runs.account(quadratics())
  curve, normal, guess = privacy_report.trade_off(guarantee).lines
  np.testing.assert_allclose(curve.y, normal.y, atol=1e-9)
  assert (np.diff(curve.y) >= 0).all()
  assert (curve.y >= np.asarray(guess.y) - 1e-9).all()
  at = np.interp(1e-3, curve.x, curve.y)
  rate = guarantee.statement.true_positive_rate
  assert at == pytest.approx(rate, rel=1e-2)
  assert curve.y[-1] == 1.0


def test_uplinks_of_a_round_count_all():
  fields = {'algorithm': 'fedsketch_heaprix', 'options': {'k': 5}}
  fields |= {'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': 10}}
  both = runs.account(quadratics(**fields))
  assert both.mechanism.releases_per_step == 2
  exact = accounting.gaussian_epsilon(both.noise_multiplier, 1e-6, steps=2 * 20)
  assert both.statement.epsilon == pytest.approx(exact)


@pytest.mark.covers('S1-Thm1')
def test_the_program_prints_and_leaves_its_files(tmp_path):
  flags = '--config=das_quadratics:quick', f'--workdir={tmp_path}'
  done = harness.command('account', *flags)
  assert done.returncode == 0, done.stderr
  fields = json.loads((tmp_path / 'privacy.json').read_text())
  assert f'{fields["epsilon"]:.4f}' in done.stdout
  assert 'reproducible: not private' == fields['noise']
  for name in ('epsilon.png', 'trade_off.png'):
    assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize('trust', ['secure_aggregation', 'local'])
def test_a_server_that_sees_who_takes_part_amplifies_nothing(trust):
  mechanism = runs.account(quadratics(trust=trust, cohort=10)).mechanism
  assert mechanism.sampling is accounting.Sampling.FULL
  assert mechanism.adjacency is not accounting.Adjacency.ADD_OR_REMOVE_ONE


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
