"""Sweeps: a point is the run of its config, whatever else runs."""

import json
import math
import shutil

import chex
from fl_sketch import runs
from fl_sketch.data import sources
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import (
  config,
  read_metrics,
  sweep,
  sweep_program,
  sweep_report,
  workdir,
)
from harness import SMALL
import numpy as np
import pytest

from tests.runs import test_sweep_problems
from tests.runs.test_sweep_problems import run
from tests.runs.training.test_private_runs import PRIVATE

LINEAR = SMALL | {'model': 'linear', 'model_options': None}
GRID = LINEAR | {'sweep': {'seed': (0, 1, 2), 'client_lr': (0.1, 0.5)}}
BOWLS = test_sweep_problems.BOWLS | {
  'dataset': 'quadratics', 'rounds': 4, 'rounds_per_dispatch': 2,
  'checkpoint_every': 2, 'client_lr': 0.3,
}  # fmt: skip


def numbers(rows):
  drop = ('seconds', 'values', 'point')
  return [{k: v for k, v in row.items() if k not in drop} for row in rows]


@pytest.fixture(scope='module')
def looped(tmp_path_factory):
  """A grid whose points ran one after another, as they do on a CPU."""
  folder = tmp_path_factory.mktemp('looped')
  return folder, run(folder, GRID)


@pytest.fixture(scope='module')
def diverging(tmp_path_factory):
  """Points of one seed, two of three at once; the second diverges."""
  folder = tmp_path_factory.mktemp('diverging')
  fields = BOWLS | {'sweep': {'server_lr': (1.0, 1e30, 0.5)}}
  return folder, run(folder, fields, points_per_program=2), fields


SKETCHED = BOWLS | {
  'algorithm': 'iterative_sketching',
  'sketch': {'kind': 'gaussian', 'size': 20},
  'cohort': 2,
  'sweep': {'sketch_seed': (0, 7)},
}


VMAPPED = {
  'sketches': SKETCHED,
  'seeds': LINEAR | {
    'rounds_per_dispatch': 2, 'sweep': {'seed': (0, 1, 2), 'client_lr': (0.5,)},
  },
  'optimizer': BOWLS | {
    'server_optimizer': 'muon(beta=0.8)', 'sweep': {'server_lr': (0.1, 0.5)},
  },
  'noise': PRIVATE | {'rounds': 2, 'sweep': {'client_lr': (0.1, 0.1001)}},
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize('name', VMAPPED)
def test_vmapped_points_are_the_looped_ones(name, tmp_path):
  """Catches a chunk padded with a point that counts, shared hashes or noise."""
  fields = VMAPPED[name]
  rows = run(tmp_path / 'turns', fields, points_per_program=1)
  if name == 'noise':
    secret = tmp_path / 'turns' / 'secret'
    shutil.copytree(secret, tmp_path / 'both' / 'secret')
  both = run(tmp_path / 'both', fields, points_per_program=2)
  assert [row['values'] for row in both] == [row['values'] for row in rows]
  rtol = 1e-4 if name == 'noise' else 1e-5
  chex.assert_trees_all_close(numbers(both), numbers(rows), rtol=rtol, atol=0)
  points = [tmp_path / 'both' / 'points' / f'00{i}' for i in range(2)]
  first, other = (read_metrics(folder)[0]['train_loss'] for folder in points)
  # Sketch seeds vary hashes alone, a server's rate later rounds; 0.1 % noise.
  assert (first == other) == (name in ('sketches', 'optimizer'))
  assert abs(rows[0]['test_loss'] - rows[1]['test_loss']) > 1e-3


def test_a_point_is_the_run_of_its_config(looped, tmp_path):
  folder, rows = looped
  one = sweep.points(GRID)[4]
  assert one.values == {'client_lr': 0.5, 'seed': 1}
  exp = runs.build(LINEAR | {'client_lr': 0.5, 'seed': 1})
  assert exp.config == one.config
  runs.train(exp, tmp_path, progress=False)
  point = folder / 'points' / '004'
  history = read_metrics(point)
  alone = numbers(read_metrics(tmp_path))
  chex.assert_trees_all_close(numbers(history), alone, rtol=1e-5, atol=0)
  a, b = ((f / 'config.json').read_bytes() for f in (point, tmp_path))
  assert a == b
  assert rows[4]['train_loss'] == history[-1]['train_loss']
  best = max(row.get('test_accuracy', 0) for row in history)
  assert rows[4]['best_test_accuracy'] == best


def test_a_diverging_point_is_recorded_and_stops_no_other(diverging):
  folder, rows, _ = diverging
  assert [row['diverged'] for row in rows] == [False, True, False]
  assert [row['round'] for row in rows] == [3, 0, 3]
  assert math.isfinite(rows[1]['train_loss'])
  last = sweep_report.settings(rows)[-1]
  assert last.values == {'server_lr': 1e30}
  assert math.isnan(last.mean)
  summary = json.loads((folder / 'sweep.json').read_text())
  assert summary['diverged'] == 1
  assert summary['best']['mean'] == min(rows[i]['test_loss'] for i in (0, 2))


def test_a_resumed_sweep_is_the_one_that_was_never_stopped(diverging, tmp_path):
  """It was stopped after the first half of a chunk."""
  folder, rows, fields = diverging
  shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
  path = tmp_path / 'points.jsonl'
  lines = path.read_text().splitlines(keepends=True)
  path.write_text(lines[0] + '{"point": 2, "val')
  for name in ('table.md', 'sweep.json'):
    (tmp_path / name).unlink()
  again = run(tmp_path, fields, points_per_program=2)
  assert numbers(again) == numbers(rows)
  files = [p.relative_to(folder) for p in folder.rglob('*') if p.is_file()]
  for name in files:
    if name.name != 'points.jsonl':
      assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_points_of_other_noise_seeds_have_their_own_cohorts(unproven):
  """Catches private points that train on the cohorts of the first one."""
  exps = [runs.build(PRIVATE | {'noise_seed': seed}) for seed in (1, 2)]
  program = sweep_program.SweepProgram(
    exps[0], mesh_lib.cohort_mesh(), [exp.config for exp in exps]
  )
  placed, drawn = program.cohorts(exps, 0, [1, 2])
  first, other = (cohorts[0].ids for cohorts in drawn)
  np.testing.assert_array_equal(placed.ids, [first, other])
  assert (first != other).any()


def test_a_finished_sweep_runs_nothing(looped, monkeypatch):
  monkeypatch.delattr(sweep_program, 'SweepProgram')
  folder, rows = looped
  assert run(folder, GRID) == rows


def test_a_sweep_of_another_problem_is_refused(looped, tmp_path, monkeypatch):
  """Catches points of one sweep that were trained on other data."""
  shutil.copytree(looped[0], tmp_path, dirs_exist_ok=True)
  digits = sources.load('digits')
  x = digits.train['x'].copy()
  x[[0, 1]] = x[[1, 0]]  # whose mean is the same
  other = digits._replace(train=digits.train | {'x': x})
  monkeypatch.setattr(sources, '_digits', lambda: other)
  with pytest.raises(workdir.WorkdirError, match=r'000 .*\(data\)'):
    run(tmp_path, GRID)


def test_no_point_runs_where_one_cannot(tmp_path):
  """Catches hours of points before the first that does not fit the model."""
  sizes = {'sketch': {'size': (20, 10**6)}}
  fields = SKETCHED | {'sweep': sizes}
  with pytest.raises(config.ConfigError, match=r'sketch\.size'):
    run(tmp_path, fields)
  assert not (tmp_path / 'points').exists()


def test_points_that_fit_grow_with_memory(monkeypatch):
  exp = runs.build(BOWLS)
  program = sweep_program.SweepProgram(
    exp, mesh_lib.cohort_mesh(), [exp.config]
  )
  counts = []
  for mib in (1e-6, 10, 20):
    monkeypatch.setattr(sweep_program, 'DEVICE_MEMORY', mib * 2**20)
    counts.append(program.points_that_fit(exp))
  few, some, more = counts
  assert few == 1
  # The data, which all points share, are subtracted once.
  assert 1.9 * some < more < 4 * some
