"""The training loop: files, devices, messages of faults, exact resume."""

import contextlib
import json
import shutil

import chex
from fl_sketch import rounds, runs
from fl_sketch.rounds import mesh as mesh_lib, traffic
from fl_sketch.runs import (
  client_state,
  config,
  log,
  loop,
  memory,
  player as player_lib,
  program,
  signals,
  workdir,
)
from harness import SAFL, SMALL, rows, train
import jax
import numpy as np
import pytest

pytestmark = pytest.mark.xdist_group('training')  # shares `whole`


def test_a_run_leaves_its_files(whole):
  folder, result = whole
  assert result.finished
  names = {path.name for path in folder.iterdir()}
  assert names >= {
    'config.json', 'problem.json', 'metrics.jsonl', 'summary.json',
    'checkpoints', 'accuracy_vs_rounds.png', 'accuracy_vs_bytes.png',
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


def test_a_start_makes_the_state_of_all_clients_where_it_stays(
  tmp_path, monkeypatch
):
  """Catches [population, ...] rows that are made on one device, then copied."""

  def init(algorithm, params, population):
    assert isinstance(jax.tree.leaves(params)[0], jax.core.Tracer)
    return rounds_init(algorithm, params, population)

  rounds_init = rounds.init
  monkeypatch.setattr(rounds, 'init', init)
  exp = runs.build(SMALL | {'algorithm': 'scaffold'})
  mesh = mesh_lib.cohort_mesh(2)
  run = program.program(exp, mesh)
  player = player_lib.Shards(exp, mesh, tmp_path, run)
  player.close()
  rows = client_state.leaves(player.state)
  assert {len(x) for x in rows} == {exp.config.population}


@pytest.mark.nightly
def test_divergence_names_the_round_and_the_last_good_checkpoint(tmp_path):
  wild = {'algorithm': 'iterative_sketching', 'server_lr': 1e30}
  with pytest.raises(runs.DivergedError, match='checkpoints/1'):
    train(tmp_path / 'one', **wild, checkpoint_every=1)


def test_counts_go_on_from_an_earlier_start():
  """Catches a ledger that forgets them, or padding that fills a cohort."""
  exp = runs.build(SMALL | {'sampling': 'poisson', 'max_cohort': 5})
  cohort = exp.sample(0)._replace(weight=np.ones(5), ids=np.arange(5))
  padded = cohort._replace(weight=np.arange(5) < 4, ids=np.arange(2, 7))
  ledger = log.empty_ledger(exp)
  for number, (part, rejected) in enumerate([(cohort, 2), (padded, 1)]):
    ledger = traffic.Ledger(
      ledger.dense, ledger.heard, **json.loads(json.dumps(ledger.totals()))
    )
    metrics = {'finite': True, 'uplink_bytes': 4, 'downlink_bytes': 4}
    metrics |= {'rejected_clients': rejected}
    row = log.RunLog(exp, ledger).record(number, part, metrics)
    assert 'full_cohorts' not in row  # which readers of metrics do not know
  assert ledger.left_out == {'rejected_clients': [3, 2], 'full_cohorts': [1, 1]}


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


def test_a_finished_run_without_checkpoints_is_not_played_again(copy):
  """Catches a start that empties the metrics of a run that has finished."""
  shutil.rmtree(copy / 'checkpoints')
  before = (copy / 'metrics.jsonl').read_bytes()
  with pytest.raises(workdir.WorkdirError, match='checkpoints'):
    train(copy)
  assert (copy / 'metrics.jsonl').read_bytes() == before
