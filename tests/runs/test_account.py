"""The statement of a run before it is run."""

import json

from fl_sketch import accounting, runs
from fl_sketch.accounting import hypothesis_tests
from fl_sketch.runs import config
import harness
from launch import configs
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


def test_uplinks_of_a_round_count_all():
  fields = {'algorithm': 'fedsketch_heaprix', 'options': {'k': 5}}
  fields |= {'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': 10}}
  both = runs.account(quadratics(**fields))
  assert both.mechanism.releases_per_step == 2
  exact = accounting.gaussian_epsilon(both.noise_multiplier, 1e-6, steps=2 * 20)
  assert both.statement.epsilon == pytest.approx(exact)


def test_the_program_prints_and_leaves_its_files(tmp_path):
  flags = '--config=das_quadratics:quick', f'--workdir={tmp_path}'
  done = harness.command('account', *flags)
  assert done.returncode == 0, done.stderr
  fields = json.loads((tmp_path / 'privacy.json').read_text())
  assert f'{fields["epsilon"]:.4f}' in done.stdout
  assert 'reproducible: not private' == fields['noise']


@pytest.mark.parametrize('trust', ['secure_aggregation', 'local'])
def test_a_server_that_sees_who_takes_part_amplifies_nothing(trust):
  mechanism = runs.account(quadratics(trust=trust, cohort=10)).mechanism
  assert mechanism.sampling is accounting.Sampling.FULL
  assert mechanism.adjacency is not accounting.Adjacency.ADD_OR_REMOVE_ONE
