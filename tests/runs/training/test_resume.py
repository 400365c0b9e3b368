"""Exact resume: of more rounds, and after signals."""

import contextlib
import shutil

import chex
from fl_sketch import runs
from fl_sketch.runs import loop, memory, signals, workdir
from harness import SAFL, rows, train
import pytest

pytestmark = pytest.mark.xdist_group('training')  # shares `whole`


@pytest.mark.smoke
def test_a_resumed_run_is_the_run_that_was_never_stopped(whole, copy):
  """Also killed in a line of metrics; each new row is handed on once."""
  folder, result = whole
  new_rows = []

  def on_row(row):
    assert len(rows(copy)) == row['round'] + 1  # it is written already
    new_rows.append({k: v for k, v in row.items() if k != 'seconds'})
    row.clear()

  shutil.rmtree(copy / 'checkpoints' / '8')
  with open(copy / 'metrics.jsonl', 'a') as f:
    f.write('{"round": 8, "train_')
  exp = runs.build(SAFL)
  again = runs.train(exp, copy, progress=False, on_row=on_row)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(copy) == rows(folder)
  assert new_rows == rows(folder)[6:]


def test_a_finished_run_only_restores_its_state(whole, copy, monkeypatch):
  """Catches a start that compiles or writes where all rounds are done."""
  files = lambda: (p for p in copy.rglob('*') if p.is_file())
  times = lambda: {p: p.stat().st_mtime_ns for p in files()}
  before, (_, result) = times(), whole
  monkeypatch.delattr(memory, 'fitted')
  monkeypatch.delattr(loop._Run, 'report')
  again = train(copy)
  chex.assert_trees_all_equal(again.state, result.state)
  assert (again.row, again.finished) == (result.row, True)
  assert times() == before


def test_a_signal_before_anything_is_logged(tmp_path, monkeypatch):
  monkeypatch.setattr(memory, 'fitted', lambda exp, mesh, run: run)
  monkeypatch.setattr(signals, 'caught', lambda: contextlib.nullcontext([15]))
  stopped = train(tmp_path, log_every=100)
  assert not stopped.finished
  assert stopped.row == {}


def test_fewer_rounds_than_are_done_are_refused(copy, monkeypatch):
  """Catches a shorter run whose result is that of a longer one."""
  monkeypatch.setattr(memory, 'fitted', lambda exp, mesh, run: run)
  with pytest.raises(workdir.WorkdirError, match='rounds'):
    train(copy, rounds=7)
