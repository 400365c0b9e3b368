"""The folder of a sweep: whose points are known, and whose model is kept."""

import contextlib
import json
import math

import fl_sketch
from fl_sketch.runs import (
  config,
  noise_secret,
  saved_params,
  sweep as files,
  sweep_program,
  workdir,
)
from fl_sketch.runs.sweep_points import points
import numpy as np
import pytest

from tests.runs import test_sweep_problems
from tests.runs.test_sweep_problems import run

BOWLS = test_sweep_problems.BOWLS | {
  'dataset': 'quadratics', 'client_lr': 0.3,
  'sweep': {'server_lr': (0.5, 1.0)},
}  # fmt: skip


def result_of(loss):
  """The result of a point, by its test loss."""
  row = {'round': 1, 'train_loss': loss, 'test_loss': loss}
  params = {'w': np.full(2, loss, np.float32)}
  return sweep_program.Result([row], False, 0.1, {}, params)


@contextlib.contextmanager
def opened(folder, fields):
  """The files of a sweep, and its points by number."""
  c = config.Config.from_mapping(fields)
  with contextlib.closing(files.Files(folder, c)) as opened_files:
    yield opened_files, opened_files.numbered(points(c))


def numbered(folder, fields):
  """The points of a sweep by number."""
  with opened(folder, fields) as (_, todo):
    return todo


def finish(sweep, todo, losses):
  """Finishes points with these losses by number, without training."""
  for n, loss in losses.items():
    sweep.finish(n, todo[n], {}, result_of(loss))


SWEPT = BOWLS['sweep']
NOISE = {'noise_multiplier': (2.0,), 'delta': (1e-3,), 'clip_norm': (1.0,)}
PRIVATE = {
  'algorithm': 'safl', 'sketch': {'kind': 'gaussian', 'size': 9},
  'sweep': SWEPT | NOISE,
}  # fmt: skip


@pytest.mark.parametrize(('first', 'then', 'numbers'), [
  ({'clients_per_step': 2}, {'clients_per_step': 4, 'log_every': 2}, [0, 1]),
  ({}, {'sweep': SWEPT | {'client_lr': (0.3,)}}, [0, 1]),
  ({'sweep': {'eval_every': (1, 2)}}, {}, [0, 1]),
  # A private point of other rounding does not count as released.
  (PRIVATE | {'clients_per_step': 2}, {'clients_per_step': 4}, [2, 3]),
])  # fmt: skip
def test_points_keep_their_numbers_where_no_result_changes(
  first, then, numbers, tmp_path
):
  """Catches points that run again, or share a number with other results."""
  noise_secret.keep(tmp_path, resumed=False)
  with opened(tmp_path, BOWLS | first) as (sweep, todo):
    finish(sweep, todo, {0: 2.0, 1: 1.0})
  assert [*numbered(tmp_path, BOWLS | first | then)] == numbers


def test_other_rounds_are_other_points(tmp_path):
  """Catches a shorter run that stands for a longer one."""
  with opened(tmp_path, BOWLS) as (sweep, todo):
    finish(sweep, todo, {0: 2.0, 1: 1.0})
  with pytest.raises(workdir.WorkdirError, match='rounds'):
    numbered(tmp_path, BOWLS | {'rounds': 3})
  swept = BOWLS['sweep'] | {'rounds': (2, 3)}
  todo = numbered(tmp_path, BOWLS | {'sweep': swept})
  numbers = {(p.config.server_lr, p.config.rounds): n for n, p in todo.items()}
  assert numbers == {(0.5, 2): 0, (1.0, 2): 1, (0.5, 3): 2, (1.0, 3): 3}


def test_a_begun_point_keeps_its_number(tmp_path):
  """Catches a killed point whose folder refuses the one that takes it."""
  with opened(tmp_path, BOWLS) as (sweep, todo):
    finish(sweep, todo, {0: 2.0, 1: 1.0})
  lines = (tmp_path / 'points.jsonl').read_text().splitlines(keepends=True)
  (tmp_path / 'points.jsonl').write_text(lines[0])
  swept = {'sweep': {'server_lr': (0.25, 1.0, 0.5)}}
  with opened(tmp_path, BOWLS | swept) as (sweep, todo):
    finish(sweep, todo, {2: 3.0, 1: 1.0})
  assert [*todo] == [2, 1, 0]


def with_params(folder):
  return {path.parent.name for path in folder.glob('points/*/params')}


@pytest.mark.parametrize(
  ('module', 'name', 'where'),
  [(files.Files, 'add', {'000', '001'}), (saved_params, 'write', {'000'})],
)
def test_a_kill_loses_no_best_parameters(
  tmp_path, monkeypatch, module, name, where
):
  """Catches a row that stands for a point before its parameters do."""
  with opened(tmp_path, BOWLS) as (sweep, todo):
    finish(sweep, todo, {0: 2.0})
    with monkeypatch.context() as patched:
      patched.setattr(module, name, lambda *_: 1 / 0)
      with pytest.raises(ZeroDivisionError):
        finish(sweep, todo, {1: 1.0})
  assert with_params(tmp_path) == where
  with opened(tmp_path, BOWLS) as (sweep, todo):
    assert [*sweep.rows] == [0]
    finish(sweep, todo, {1: 1.0})
    sweep.report([*sweep.rows.values()])
  assert with_params(tmp_path) == {'001'}
  assert json.loads((tmp_path / 'sweep.json').read_text())['best_point'] == 1


@pytest.mark.nightly
def test_the_parameters_of_the_best_point_are_with_params(tmp_path):
  """Catches parameters of another point, or those of every point."""
  fields = BOWLS | {'sweep': {'server_lr': (0.5, 1e30, 1.0, 0.1)}}
  rows = run(tmp_path, fields, points_per_program=2)
  best = min(rows, key=lambda row: row.get('test_loss', math.inf))['point']
  assert with_params(tmp_path) == {f'{best:03d}'}
  loaded = fl_sketch.load(tmp_path / 'points' / f'{best:03d}')
  want = pytest.approx(rows[best]['test_loss'], rel=1e-5)
  assert loaded.evaluate()['test_loss'] == want
