"""Exact resume: of more rounds, after signals, from damaged files."""

import contextlib
import json

import chex
from fl_sketch.training import checkpoints, loop, preflight, signals, workdir
import pytest
from runs import rows, train

pytestmark = pytest.mark.xdist_group('training')  # shares `whole`


def truncate(step):
  """Halves every file of a checkpoint."""
  for path in step.rglob('*'):
    if path.is_file():
      path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.smoke
def test_a_resumed_run_is_the_run_that_was_never_stopped(whole, copy):
  """Also killed in a line, by an older version, with a truncated checkpoint."""
  folder, result = whole
  truncate(copy / 'checkpoints' / '8')
  with open(copy / 'metrics.jsonl', 'a') as f:
    f.write('{"round": 8, "train_')
  fields = json.loads((copy / 'config.json').read_text())
  del fields['feed']  # a field that came later
  (copy / 'config.json').write_text(json.dumps(fields))
  with pytest.warns(UserWarning, match='cannot be read .*back to round 6'):
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


def no_checkpoint(folder):
  for step in (4, 6, 8):
    truncate(folder / 'checkpoints' / str(step))


def no_config(folder):
  (folder / 'config.json').write_text('{"seed": ')


def no_metrics(folder):
  path = folder / 'metrics.jsonl'
  lines = path.read_text().splitlines(keepends=True)
  path.write_text(''.join(['{"round": 0, "tr\n', *lines[1:]]))


@pytest.mark.parametrize(('damage', 'error', 'message'), [
  (no_checkpoint, checkpoints.CheckpointError, 'can be read'),
  (no_config, workdir.WorkdirError, 'is not a config'),
  (no_metrics, ValueError, 'metrics.jsonl:1 is no row of metrics'),
])  # fmt: skip
def test_damaged_files_are_refused(damage, error, message, copy):
  damage(copy)
  with pytest.raises(error, match=message):
    train(copy)


def test_another_config_is_refused(copy):
  message = 'holds a run of another config .server_lr: 0.01 then, 0.02 now'
  with pytest.raises(workdir.WorkdirError, match=message):
    train(copy, server_lr=0.02)


def test_a_signal_before_anything_is_logged(tmp_path, monkeypatch):
  monkeypatch.setattr(preflight, 'check', lambda exp, mesh, run: run)
  monkeypatch.setattr(signals, 'caught', lambda: contextlib.nullcontext([15]))
  stopped = train(tmp_path, log_every=100)
  assert not stopped.finished
  assert stopped.row == {}
