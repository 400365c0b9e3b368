"""More rounds of a run, runs from parameters of others, runs without files."""

import functools
import shutil

import chex
from fl_sketch import runs
from fl_sketch.runs import same_run, saved_params, workdir
from harness import rows
import numpy as np
from own_problem import FIELDS, PRIVATE as SAMPLED, START, begin, build, record
import pytest

# Everybody takes part: the account is quick.
PRIVATE = SAMPLED | {'sampling': 'fixed_size', 'cohort': 3}
SCHEDULE = {'client_schedule': 'cosine'}
SHORT = {'rounds': 1, 'server_lr': 1e-30}  # moves nothing


def train(folder, fields, rounds, **options):
  exp = build(fields | {'rounds': rounds, 'eval_every': 1})
  return runs.train(exp, folder, progress=False, **options)


@functools.cache
def built(**fields):
  return build(fields)


def price(fields, rounds=4):
  return built(**fields | {'rounds': rounds}).guarantee.statement.epsilon


def ask(folder, fields, extend=False, rounds=4):
  """Starts a run of four rounds, but plays none."""
  exp = built(**fields | {'rounds': rounds})
  workdir.Workdir(folder, exp.config, record(exp)).close()
  same_run.check_rounds(folder, exp, extend)


def refusal(*args, **options):
  with pytest.raises(workdir.WorkdirError) as error:
    ask(*args, **options)
  return str(error.value)


@pytest.mark.nightly
def test_more_rounds_are_those_of_a_longer_run(tmp_path, caplog):
  """Catches an extension that starts again, or that is silent on a schedule."""
  found = [train(tmp_path / 'a', FIELDS, n) for n in (2, 4)][-1]
  whole = train(tmp_path / 'b', FIELDS, 4)
  chex.assert_trees_all_equal(found.state, whole.state)
  assert rows(tmp_path / 'a') == rows(tmp_path / 'b')
  assert not caplog.records
  begin(tmp_path / 'c', built(**FIELDS | SCHEDULE))
  ask(tmp_path / 'c', FIELDS | SCHEDULE)
  (message,) = caplog.messages
  assert 'client_schedule' in message


@pytest.mark.nightly
def test_a_private_run_is_extended_on_request(tmp_path, caplog):
  """Catches noise that is used twice, or an account of new rounds alone."""
  run, whole, epsilon = tmp_path / 'run', tmp_path / 'whole', price(PRIVATE)
  train(run, PRIVATE, 2)
  result = train(run, PRIVATE, 4, extend=True)
  assert f'of all rounds is {epsilon:.4g}' in caplog.messages[0]
  assert result.row['epsilon'] == epsilon
  assert [row['round'] for row in rows(run)] == [0, 1, 2, 3]
  # As if it had been planned.
  shutil.copytree(run / 'secret', whole / 'secret')
  chex.assert_trees_all_equal(result.state, train(whole, PRIVATE, 4).state)


def test_a_private_run_has_more_rounds_only_on_request(tmp_path):
  """Catches rounds that nobody asked for, or that are played at two rates."""
  begin(tmp_path, built(**PRIVATE))
  assert f'{price(PRIVATE):.4g}' in refusal(tmp_path, PRIVATE)
  ask(tmp_path, PRIVATE, extend=True)
  assert 'rounds' in refusal(tmp_path, PRIVATE, True, rounds=1)
  fields = PRIVATE | SCHEDULE
  begin(tmp_path / 'scheduled', built(**fields))
  assert 'rounds' in refusal(tmp_path / 'scheduled', fields, extend=True)


def test_noise_of_a_calibrated_run_stays_as_it_is(tmp_path):
  """Catches an extension that calibrates noise anew."""
  fields = PRIVATE | {'noise_multiplier': None, 'epsilon': 3.0}
  short = built(**fields | {'rounds': 2})
  begin(tmp_path, short)
  assert 'rounds' in refusal(tmp_path, fields, extend=True)
  z = short.guarantee.noise_multiplier
  fixed = fields | {'epsilon': None, 'noise_multiplier': z}
  assert 'epsilon' in refusal(tmp_path, fixed, extend=True)


def test_a_run_starts_from_the_parameters_of_another(tmp_path):
  """Catches a start that is drawn, a guarantee that hides it, other shapes."""
  one, two = tmp_path / 'one', tmp_path / 'two'
  given = {'w': np.arange(4, dtype=np.float32)}
  saved_params.write(one / 'best', 2, given)
  exp = saved_params.begun(built(**PRIVATE), two, one / 'best')
  chex.assert_trees_all_equal(exp.params, given)
  assert 'parameters of another run' in exp.guarantee.statement.caveats[-1]
  small = build(FIELDS, start={'w': START['w'], 'b': np.zeros(2)})
  with pytest.raises(workdir.WorkdirError, match='b has shape'):
    saved_params.begun(small, two, one / 'best')


@pytest.mark.nightly
def test_a_run_resumes_from_its_own_copy_of_a_start(tmp_path):
  """Catches a resumed run that needs the other folder."""
  one, two = tmp_path / 'one', tmp_path / 'two'
  first = train(one, FIELDS, 2)
  exp = build(PRIVATE | SHORT | {'noise_multiplier': 0.0})
  for _ in range(2):
    result = runs.train(exp, two, progress=False, init_from=one)
    chex.assert_trees_all_equal(result.state.params, first.state.params)
    shutil.rmtree(one, ignore_errors=True)


def test_a_run_without_a_folder_leaves_no_file(tmp_path, monkeypatch):
  """Catches files in the working directory."""
  monkeypatch.chdir(tmp_path)
  assert runs.train(build(FIELDS), progress=False).finished
  assert not [*tmp_path.iterdir()]


def test_a_folder_that_has_a_run_takes_no_other_start(tmp_path):
  """Catches init/ of parameters from which the run never began."""
  one, two = tmp_path / 'one', tmp_path / 'two'
  saved_params.write(one / 'best', 2, START)
  begin(two, build())
  with pytest.raises(workdir.WorkdirError, match='init_from'):
    saved_params.begun(build(), two, one / 'best')
  assert not (two / 'init').exists()
  with pytest.raises(workdir.WorkdirError, match='no run'):
    saved_params.begun(build(), tmp_path / 'three', tmp_path / 'nothing')
