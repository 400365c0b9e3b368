"""The training loop: exact resume, whole files, messages of faults."""

import errno
import json
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time

import chex
from fl_sketch import experiment, rounds, training
from fl_sketch.data import sources
from fl_sketch.experiment import config
from fl_sketch.reporting import learning_curves
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import (
  checkpoints,
  client_state,
  loop,
  program,
  runner,
  workdir,
)
import jax
import numpy as np
import pytest
from runs import ROOT, SMALL, rows

SAFL = SMALL | {
  'algorithm': 'safl', 'sketch': {'kind': 'block_cyclic', 'size': 50},
  'server_lr': 0.01, 'rounds': 8, 'eval_every': 3, 'checkpoint_every': 2,
}  # fmt: skip


def train(folder, mesh=None, **fields):
  exp = experiment.build(SAFL | fields)
  return training.train(exp, folder, mesh=mesh, progress=False)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that was never stopped."""
  folder = tmp_path_factory.mktemp('whole')
  return folder, train(folder)


@pytest.fixture
def copy(whole, tmp_path):
  """A copy of the files of that run, which tests may damage."""
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  return tmp_path


def test_a_run_leaves_its_files(whole):
  folder, result = whole
  assert result.finished
  names = {path.name for path in folder.iterdir()}
  assert names >= {
    'config.json', 'metrics.jsonl', 'summary.json', 'checkpoints', 'labels.png',
    'accuracy_vs_rounds.png', 'accuracy_vs_bytes.png',
  }  # fmt: skip
  fields = json.loads((folder / 'config.json').read_text())
  assert config.Config.from_mapping(fields).sketch == SAFL['sketch']
  summary = json.loads((folder / 'summary.json').read_text())
  assert summary['versions']['jax'] == jax.__version__
  assert summary['test_accuracy'] == result.row['test_accuracy']
  steps = {p.name for p in (folder / 'checkpoints').iterdir() if p.is_dir()}
  assert steps == {'4', '6', '8'}


def test_metrics_are_one_row_a_round_with_exact_bytes(whole):
  folder, _ = whole
  records = rows(folder)
  assert [row['round'] for row in records] == list(range(8))
  evaluated = [row['round'] for row in records if 'test_accuracy' in row]
  assert evaluated == [2, 5, 7]
  assert {row['uplink_bytes'] for row in records} == {4 * 50}
  assert records[-1]['total_uplink_bytes'] == 8 * 4 * 4 * 50
  # Four of six take part: a client that was absent downloads more later.
  assert records[0]['downlink_bytes'] == 4 * 50
  assert max(row['downlink_bytes'] for row in records) > 4 * 50


@pytest.mark.smoke
@pytest.mark.representatives('lost1')
@pytest.mark.parametrize('lost', [(), (8,), (8, 6)])
def test_a_resumed_run_is_the_run_that_was_never_stopped(whole, lost, copy):
  """Also where it was killed in the middle of a line, by an older version."""
  folder, result = whole
  for step in lost:
    shutil.rmtree(copy / 'checkpoints' / str(step))
  if lost:
    with open(copy / 'metrics.jsonl', 'a') as f:
      f.write('{"round": 8, "train_')
    fields = json.loads((copy / 'config.json').read_text())
    del fields['feed']  # a field that came later
    (copy / 'config.json').write_text(json.dumps(fields))
  again = train(copy)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(copy) == rows(folder)


@pytest.mark.nightly
def test_more_rounds_may_be_asked_for_but_not_fewer(whole, copy):
  folder, _ = whole
  again = train(copy, rounds=10)
  assert again.row['round'] == 9
  assert rows(copy)[:8] == rows(folder)
  with pytest.raises(workdir.WorkdirError, match='Expected rounds=9 >= 10'):
    train(copy, rounds=9)
  assert json.loads((copy / 'config.json').read_text())['rounds'] == 10


def test_a_start_that_is_refused_closes_what_it_opened(copy, monkeypatch):
  """Catches a pool of threads and an orbax manager that nothing closes."""
  closed = []
  for cls in (workdir.Workdir, runner.Runner, checkpoints.Checkpoints):

    def close(self, name=cls.__name__, close=cls.close):
      closed.append(name)
      close(self)

    monkeypatch.setattr(cls, 'close', close)
  with pytest.raises(workdir.WorkdirError, match='Expected rounds=7 >= 8'):
    train(copy, rounds=7)
  assert closed == ['Checkpoints', 'Runner', 'Workdir']


@pytest.mark.nightly
def test_a_run_that_got_far_worse_says_which_rates(tmp_path):
  """Catches a loss of 367,736 that ends with "Done" and nothing else."""
  exp = experiment.build(SMALL | {'client_lr': 1e6})
  with pytest.warns(UserWarning, match=r'client_lr=1e\+06 or server_lr=1\.'):
    training.train(exp, tmp_path, progress=False)


def test_a_figure_that_cannot_be_written_loses_no_summary(
  tmp_path, monkeypatch
):
  def full(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(learning_curves, 'draw_run', full)
  with pytest.warns(UserWarning, match='Figures .* No space left on device'):
    result = train(tmp_path, rounds=1)
  summary = json.loads((tmp_path / 'summary.json').read_text())
  assert summary['train_loss'] == result.row['train_loss']


def test_a_start_makes_the_state_of_all_clients_where_it_stays(
  tmp_path, monkeypatch
):
  """Catches [population, ...] rows that are made on one device, then copied."""
  populations = []

  def init(algorithm, params, population):
    if not isinstance(jax.tree.leaves(params)[0], jax.core.Tracer):
      populations.append(population)
    return rounds_init(algorithm, params, population)

  rounds_init = rounds.init
  monkeypatch.setattr(rounds, 'init', init)
  exp = experiment.build(SMALL | {'algorithm': 'scaffold'})
  mesh = mesh_lib.cohort_mesh(2)
  run = program.program(exp, mesh)
  player = runner.Runner(exp, mesh, tmp_path, run)
  player.close()
  rows = client_state.leaves(player.state)
  assert {len(x) for x in rows} == {exp.config.population}
  assert populations == []


@pytest.mark.nightly
def test_a_run_goes_on_with_other_chunks_unless_it_is_private(whole, copy):
  _, result = whole
  shutil.rmtree(copy / 'checkpoints' / '8')
  again = train(copy, lanes_per_step=2)
  chex.assert_trees_all_close(again.state, result.state, atol=1e-4)
  private = dict(
    clip_norm=1.0, noise_multiplier=1.0, delta=1e-3, standardize=False
  )
  c = config.Config.from_mapping(SAFL | private)
  assert 'lanes_per_step' not in workdir.resumable(c)


@pytest.mark.nightly
def test_rounds_may_not_change_where_the_learning_rate_decays_over_them(
  tmp_path,
):
  train(tmp_path, rounds=2, final_server_lr=1e-5)
  with pytest.raises(workdir.WorkdirError, match='rounds: 2 there, 4 here'):
    train(tmp_path, rounds=4, final_server_lr=1e-5)


USER = """
import sys, time
from fl_sketch.experiment import config
from fl_sketch.training import workdir
run = workdir.Workdir(sys.argv[1], config.Config())
print('locked', flush=True)
time.sleep(600)
"""


def test_a_folder_is_for_one_run_at_a_time(tmp_path):
  """Catches a requeued job that writes beside one that hangs."""
  command = [sys.executable, '-c', USER, tmp_path]
  with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as user:
    try:
      assert user.stdout.readline() == b'locked\n'
      message = f'in use by process {user.pid} on {platform.node()}'
      with pytest.raises(workdir.WorkdirError, match=message):
        train(tmp_path)
    finally:
      user.kill()
  for _ in range(2):  # a run unlocks where it ends
    workdir.Workdir(tmp_path, config.Config()).close()


@pytest.mark.nightly
@pytest.mark.parametrize('option', ['feed', 'mesh'])
def test_neither_where_data_lie_nor_the_mesh_changes_the_model(
  option, whole, tmp_path
):
  options = {'feed': 'host', 'mesh': mesh_lib.cohort_mesh(1)}
  other = train(tmp_path, **{option: options[option]})
  params = [jax.device_get(run.state.params) for run in (other, whole[1])]
  chex.assert_trees_all_close(*params, atol=1e-5)


@pytest.mark.nightly
def test_going_on_with_other_devices_is_said(copy):
  with pytest.warns(UserWarning, match='1 devices where the run had 2'):
    train(copy, mesh_lib.cohort_mesh(1), rounds=9)


def truncate(step):
  """Halves every file of a checkpoint."""
  for path in step.rglob('*'):
    if path.is_file():
      path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_truncated_checkpoint_falls_back_to_the_one_before(whole, copy):
  folder, result = whole
  truncate(copy / 'checkpoints' / '8')
  with pytest.warns(UserWarning, match='cannot be read .*back to round 6'):
    again = train(copy)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(copy) == rows(folder)


def no_checkpoint(folder):
  for step in (4, 6, 8):
    truncate(folder / 'checkpoints' / str(step))


def no_config(folder):
  (folder / 'config.json').write_text('{"seed": ')


def no_metrics(folder):
  path = folder / 'metrics.jsonl'
  lines = path.read_text().splitlines(keepends=True)
  path.write_text(''.join(['{"round": 0, "tr\n', *lines[1:]]))


@pytest.mark.parametrize(
  ('damage', 'error', 'message'),
  [
    (no_checkpoint, checkpoints.CheckpointError, 'can be read'),
    (no_config, workdir.WorkdirError, 'is not a config'),
    (no_metrics, ValueError, 'Expected JSON in line'),
  ],
)
def test_damaged_files_are_refused(damage, error, message, copy):
  damage(copy)
  with pytest.raises(error, match=message):
    train(copy)


def test_another_config_is_refused(copy):
  message = 'holds a run of another config .server_lr: 0.01 there, 0.02 here'
  with pytest.raises(workdir.WorkdirError, match=message):
    train(copy, server_lr=0.02)


@pytest.mark.nightly
def test_fused_rounds_resume_at_the_same_bits(tmp_path):
  fused = {'rounds_per_dispatch': 2, 'eval_every': 4, 'checkpoint_every': 4}
  result = train(tmp_path / 'whole', **fused)
  shutil.copytree(tmp_path / 'whole', tmp_path / 'cut')
  shutil.rmtree(tmp_path / 'cut' / 'checkpoints' / '8')
  again = train(tmp_path / 'cut', **fused)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')


@pytest.mark.nightly
def test_divergence_names_the_round_and_the_last_good_checkpoint(tmp_path):
  wild = {'algorithm': 'iterative_sketching', 'server_lr': 1e30}
  message = r'Round 1: all updates are not finite; there is no checkpoint yet'
  with pytest.raises(training.DivergedError, match=message):
    train(tmp_path / 'none', **wild, checkpoint_every=8)
  message = r'Round 1: .* last good checkpoint is .*/checkpoints/1'
  with pytest.raises(training.DivergedError, match=message):
    train(tmp_path / 'one', **wild, checkpoint_every=1)


@pytest.mark.nightly
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_next_start_goes_on(whole, number, tmp_path):
  folder, _ = whole
  metrics = tmp_path / 'metrics.jsonl'

  def interrupt():
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
      if metrics.exists() and metrics.stat().st_size:
        signal.raise_signal(number)
        return
      time.sleep(0.01)

  exp = experiment.build(
    SAFL | {'rounds': 100_000, 'checkpoint_every': 100_000}
  )
  before = signal.getsignal(number)
  thread = threading.Thread(target=interrupt, daemon=True)
  thread.start()
  stopped = training.train(exp, tmp_path, progress=False)
  thread.join()
  assert not stopped.finished
  assert signal.getsignal(number) is before
  assert not (tmp_path / 'summary.json').exists()
  done = stopped.row['round'] + 1
  assert (tmp_path / 'checkpoints' / str(done)).exists()
  assert rows(tmp_path)[:7] == rows(folder)[: min(done, 7)]
  again = train(tmp_path, rounds=done + 2)
  assert again.finished
  assert again.row['round'] == done + 1


def test_a_signal_before_anything_is_logged(tmp_path, monkeypatch):
  monkeypatch.setattr(loop, '_stopped', lambda caught: True)
  stopped = train(tmp_path, log_every=100)
  assert not stopped.finished
  assert stopped.row == {}


def test_the_library_cannot_be_handed_a_mesh_it_does_not_have():
  with pytest.raises(ValueError, match='shards=8'):
    mesh_lib.cohort_mesh(8)


@pytest.mark.nightly
@pytest.mark.covers('S1-Eq1')
def test_evaluation_covers_the_test_set_once(tmp_path):
  exp = experiment.build(SAFL | {'rounds': 1})
  assert exp.test['mask'].sum() == len(sources.load('digits').test['y'])
  result = training.train(exp, tmp_path, progress=False)
  params = jax.device_get(result.state.params)
  sums = [
    exp.metrics_fn(params, {k: v[i] for k, v in exp.test.items()})
    for i in range(len(exp.test['mask']))
  ]
  right = sum(float(s['accuracy']) for s in sums)
  np.testing.assert_allclose(
    result.row['test_accuracy'], right / exp.test['mask'].sum(), rtol=1e-6
  )
