"""What `launch.account` says: the statement of a run, before it is run."""

import json

from configs import das_quadratics
from fl_sketch import experiment
from fl_sketch.experiment import audit, config, one_run_audit, privacy_report
from fl_sketch.privacy import accounting
import pytest
import runs


def quadratics(**fields):
  c = das_quadratics.get_config('quick').to_dict() | {'sweep': None}
  return config.Config.from_mapping(c | fields)


def test_a_config_is_accounted_as_its_run_is():
  c = quadratics()
  guarantee = experiment.account(c)
  assert guarantee == experiment.build(c).guarantee
  exact = accounting.gaussian_epsilon(c.noise_multiplier, 1e-6, steps=20)
  assert guarantee.statement.epsilon == pytest.approx(exact)


def test_the_curve_ends_at_the_statement():
  guarantee = experiment.account(quadratics())
  curve = privacy_report.curve(guarantee, 20)
  assert list(curve) == list(range(1, 21))
  values = list(curve.values())
  assert values == sorted(values)
  assert values[-1] == guarantee.statement.epsilon
  text = privacy_report.text(guarantee, curve)
  assert guarantee.statement.sentence() in text
  assert f'{values[-1]:.4f}' in text.splitlines()[-1]


def test_uplinks_of_a_round_count_all():
  fields = {'algorithm': 'fedsketch_heaprix', 'options': {'k': 5}}
  fields |= {'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': 10}}
  both = experiment.account(quadratics(**fields))
  one = experiment.account(
    quadratics(**fields | {'options': {'k': 5, 'exact': False}})
  )
  assert both.mechanism.releases_per_step == 2
  assert one.mechanism.releases_per_step == 1
  exact = accounting.gaussian_epsilon(both.noise_multiplier, 1e-6, steps=2 * 20)
  assert both.statement.epsilon == pytest.approx(exact)
  assert one.statement.epsilon < both.statement.epsilon


def test_a_config_without_privacy_is_refused():
  with pytest.raises(ValueError, match='Expected epsilon or noise_multiplier'):
    experiment.account(config.Config())


@pytest.mark.covers('S1-Thm1')
def test_the_program_prints_and_leaves_its_files(tmp_path):
  flags = '--config=configs/das_quadratics.py:quick', f'--workdir={tmp_path}'
  done = runs.command('account', *flags)
  assert done.returncode == 0, done.stderr
  fields = json.loads((tmp_path / 'privacy.json').read_text())
  assert f'{fields["epsilon"]:.4f}' in done.stdout
  assert 'reproducible: not private' == fields['noise']
  assert (tmp_path / 'epsilon.png').stat().st_size > 1000


@pytest.mark.parametrize(
  ('flag', 'said'),
  [
    ('--audit', 'by many runs'),
    ('--audit=canaries', 'by many runs'),
    ('--audit=one_run', 'by one run of 700'),
    ('--noaudit', ''),
    ('--audit=twice', 'value should be one of <canaries|one_run>'),
  ],
)
def test_the_kind_of_an_audit_is_a_flag_that_may_stand_alone(
  flag, said, monkeypatch
):
  """Catches --audit without a value that is refused, or another audit."""

  def refuse(*_, **options):
    runs_of = f'one run of {options["canaries"]}' if one else 'many runs'
    raise config.ConfigError(f'by {runs_of}')

  one = 'one_run' in flag
  monkeypatch.setattr(audit, 'audit_config', refuse)
  monkeypatch.setattr(one_run_audit, 'prepare', refuse)
  name = '--config=configs/das_quadratics.py:quick'
  done = runs.command('account', name, flag, '--canaries=700')
  assert done.returncode == (1 if said else 0)
  assert said in done.stderr


@pytest.mark.nightly
def test_the_program_audits_in_one_run_and_draws_it(tmp_path):
  """Catches a report that is not printed, or a picture that is not there."""
  flags = '--config=configs/quickstart.py:private,quick', '--audit=one_run'
  done = runs.command('account', *flags, f'--workdir={tmp_path}')
  assert done.returncode == 0, done.stderr
  assert '1000 canary clients beside 700' in done.stdout
  assert 'Noise of half the size is caught with probability' in done.stdout
  assert 'shown by independent guesses: mu >=' in done.stdout
  assert '20/20' in done.stderr  # a bar of the rounds
  assert (tmp_path / 'one_run.png').stat().st_size > 5_000


@pytest.mark.parametrize('trust', ['secure_aggregation', 'local'])
def test_a_server_that_sees_who_takes_part_amplifies_nothing(trust):
  mechanism = experiment.account(quadratics(trust=trust, cohort=10)).mechanism
  assert mechanism.sampling is accounting.Sampling.FULL
  assert mechanism.adjacency is not accounting.Adjacency.ADD_OR_REMOVE_ONE
  with pytest.raises(ValueError, match='shows that it is there'):
    quadratics(trust=trust, adjacency='add_or_remove_one')
