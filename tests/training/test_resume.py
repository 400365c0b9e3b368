"""Exact resume: of more rounds, after signals, from damaged files."""

import json
import shutil
import signal
import threading
import time

import chex
from fl_sketch import experiment, training
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import checkpoints, loop, preflight, signals, workdir
import pytest
from runs import SAFL, rows, train

pytestmark = pytest.mark.xdist_group('training')  # shares `whole`


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


def test_a_finished_run_only_restores_its_state(whole, copy, monkeypatch):
  """Catches a start that compiles or writes where all rounds are done."""
  files = lambda: (p for p in copy.rglob('*') if p.is_file())
  times = lambda: {p: p.stat().st_mtime_ns for p in files()}
  before, (_, result) = times(), whole
  monkeypatch.delattr(preflight, 'check')
  monkeypatch.delattr(loop._Loop, 'report')
  again = train(copy)
  chex.assert_trees_all_equal(again.state, result.state)
  assert (again.row, again.finished) == (result.row, True)
  assert times() == before


@pytest.mark.nightly
def test_more_rounds_may_be_asked_for_but_not_fewer(whole, copy):
  folder, _ = whole
  again = train(copy, rounds=10)
  assert again.row['round'] == 9
  assert rows(copy)[:8] == rows(folder)
  with pytest.raises(workdir.WorkdirError, match='10 rounds, more than'):
    train(copy, rounds=9)
  assert json.loads((copy / 'config.json').read_text())['rounds'] == 10


@pytest.mark.nightly
def test_a_run_goes_on_with_other_chunks(whole, copy):
  _, result = whole
  shutil.rmtree(copy / 'checkpoints' / '8')
  again = train(copy, clients_per_step=2)
  chex.assert_trees_all_close(again.state, result.state, atol=1e-4)


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
    (no_metrics, ValueError, 'Line .* is damaged: no JSON'),
  ],
)
def test_damaged_files_are_refused(damage, error, message, copy):
  damage(copy)
  with pytest.raises(error, match=message):
    train(copy)


def test_another_config_is_refused(copy):
  message = 'holds a run of another config .server_lr: 0.01 then, 0.02 now'
  with pytest.raises(workdir.WorkdirError, match=message):
    train(copy, server_lr=0.02)


@pytest.mark.nightly
def test_fused_rounds_resume_at_the_same_bits(tmp_path):
  """Catches dispatches that do not end where an evaluation is due."""
  fused = {'rounds_per_dispatch': 3, 'eval_every': 4, 'checkpoint_every': 4}
  result = train(tmp_path / 'whole', **fused)
  shutil.copytree(tmp_path / 'whole', tmp_path / 'cut')
  shutil.rmtree(tmp_path / 'cut' / 'checkpoints' / '8')
  again = train(tmp_path / 'cut', **fused)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')


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
  monkeypatch.setattr(signals, 'stop_all', lambda caught: True)
  stopped = train(tmp_path, log_every=100)
  assert not stopped.finished
  assert stopped.row == {}
