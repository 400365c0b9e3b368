"""What `launch.account` says: the statement of a run, before it is run."""

import json

from fl_sketch import accounting, runs
from fl_sketch.accounting import hypothesis_tests
from fl_sketch.runs import config, privacy_report
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
  assert guarantee == runs.build(c).guarantee
  exact = accounting.gaussian_epsilon(c.noise_multiplier, 1e-6, steps=20)
  assert guarantee.statement.epsilon == pytest.approx(exact)


def test_the_curve_ends_at_the_statement():
  guarantee = runs.account(quadratics())
  values = guarantee.epsilons(range(1, 21))
  assert values == sorted(values)
  assert values[-1] == guarantee.statement.epsilon


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


@pytest.mark.nightly
def test_the_program_audits_in_one_run():
  """Catches a report that is not printed."""
  flags = '--config=configs/quickstart.py:private,quick', '--audit=one_run'
  done = harness.command('account', *flags)
  assert done.returncode == 0, done.stderr
  assert 'independent guesses: mu >=' in done.stdout


@pytest.mark.parametrize('trust', ['secure_aggregation', 'local'])
def test_a_server_that_sees_who_takes_part_amplifies_nothing(trust):
  mechanism = runs.account(quadratics(trust=trust, cohort=10)).mechanism
  assert mechanism.sampling is accounting.Sampling.FULL
  assert mechanism.adjacency is not accounting.Adjacency.ADD_OR_REMOVE_ONE
