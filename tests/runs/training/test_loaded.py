"""A run is read from its folder: all of it, lazily, and without a trace."""

import shutil

import chex
import fl_sketch
from fl_sketch import models, runs
from fl_sketch.data import sources
from fl_sketch.runs import (
  checkpoints,
  config,
  custom,
  loaded,
  saved_params,
  workdir,
)
from fl_sketch.utils import files
import harness
import jax
import numpy as np
import own_problem
import pytest

pytestmark = pytest.mark.xdist_group('training')  # shares `whole`


def files_of(folder):
  """Every file and folder: its size and the time of its last change."""
  paths = [folder, *folder.rglob('*')]
  stats = {path: path.stat() for path in paths}
  return {path: (s.st_size, s.st_mtime_ns) for path, s in stats.items()}


@pytest.mark.nightly
def test_a_run_is_loaded_as_it_was_trained(whole):
  """Catches parameters of another round, and an evaluation that differs."""
  folder, result = whole
  run = fl_sketch.load(folder)
  assert run.round == 8
  chex.assert_trees_all_equal(run.params, jax.device_get(result.state.params))
  wanted = runs.build(harness.SAFL).config
  assert files.as_json(run.config) == files.as_json(wanted)
  assert run.summary['test_loss'] == result.row['test_loss']
  assert result.metrics.tobytes() == run.metrics.tobytes()
  logged = {k: v for k, v in result.row.items() if k.startswith('test_')}
  assert run.evaluate() == logged
  test = sources.load('digits').test
  assert run.evaluate(test) == pytest.approx(logged)
  outputs = run.apply(test['x'])
  assert outputs.dtype == np.float32
  right = outputs.argmax(1) == test['y']
  np.testing.assert_allclose(right.mean(), logged['test_accuracy'], rtol=1e-6)
  # One more than a batch of the evaluation: the rest is padded, and cut.
  x = np.concatenate([test['x'], test['x'][:141]])
  wanted = np.concatenate([outputs, outputs[:141]])
  np.testing.assert_allclose(run.apply(x), wanted, rtol=1e-5)
  assert run.metrics['round'].tolist() == [*range(8)]


def test_reading_a_run_leaves_no_trace_and_reads_no_data(copy, monkeypatch):
  """Catches a lock, a folder that is tidied, and seconds spent on data."""
  monkeypatch.setattr(loaded, 'build', None)
  (copy / 'checkpoints' / '9.orbax-checkpoint-tmp-1').mkdir()
  locked = workdir.lock(copy)  # as by the run itself
  before = files_of(copy)
  run = fl_sketch.load(copy)
  assert run.round == 8
  assert models.num_params(run.params) == 610
  assert len(run.metrics) == 8
  assert run.summary['round'] == 7
  assert files_of(copy) == before
  locked.close()


def test_a_run_that_goes_on_may_delete_what_is_read(copy, monkeypatch):
  """Catches an error of a reader that is slower than the run."""
  read = saved_params.read

  def overtaken(folder, rounds_done, like=None):
    if rounds_done == 8 and (folder / '8').exists():
      (folder / '8').rename(folder / '10')
      raise FileNotFoundError(folder / '8')
    return read(folder, rounds_done, like)

  monkeypatch.setattr(saved_params, 'read', overtaken)
  assert fl_sketch.load(copy).round == 10


def test_parameters_are_those_of_the_round_that_is_asked_for(whole):
  """Catches another checkpoint in place of that of the round."""
  early, late = (fl_sketch.load(whole[0], round=r).params for r in (4, 6))
  parts = jax.tree.map(np.array_equal, early, late)
  assert not any(jax.tree.leaves(parts))


def test_what_is_not_there_is_said(copy, tmp_path_factory):
  """Catches a traceback, or another run's parameters, for what is missing."""
  with pytest.raises(checkpoints.CheckpointError, match='round=5'):
    fl_sketch.load(copy, round=5)
  with pytest.raises(checkpoints.CheckpointError, match='keep_best'):
    fl_sketch.load(copy, best=True)
  shutil.rmtree(copy / 'checkpoints')
  for name in ('metrics.jsonl', 'summary.json'):
    (copy / name).unlink()
  run = fl_sketch.load(copy)
  assert (len(run.metrics), run.summary) == (0, {})
  with pytest.raises(checkpoints.CheckpointError):
    _ = run.params
  (copy / 'config.json').unlink()
  with pytest.raises(workdir.WorkdirError):
    fl_sketch.load(copy)


@pytest.mark.nightly
def test_a_run_of_ones_own_is_loaded_with_its_problem(tmp_path):
  """Catches a tuple that becomes a list, and a model of another problem."""
  clients = own_problem.CLIENTS
  # A plain function, whose parameters are a tuple.
  model = (np.zeros(4),), lambda w, batch: {'loss': batch['x'] @ w[0] + 1.0}
  own = custom.problem(model, clients, clients[0])
  c = config.Config(**own_problem.FIELDS)
  exp = runs.assemble(c, own, own.partition)
  result = runs.train(exp, tmp_path, progress=False)
  want = {'test_loss': result.row['test_loss']}
  run = fl_sketch.load(tmp_path, problem=own)
  assert isinstance(run.params, tuple)
  chex.assert_trees_all_equal(run.params, jax.device_get(result.state.params))
  assert run.evaluate() == want
  with pytest.raises(ValueError, match='function'):
    run.apply(np.zeros((1, 4)))
  alone = fl_sketch.load(tmp_path)
  assert isinstance(alone.params, list)
  with pytest.raises(workdir.WorkdirError, match='problem=problem'):
    alone.evaluate()
  made = fl_sketch.load(tmp_path, problem=lambda c: own)
  assert made.evaluate() == want
  test = {k: x[:, ::-1] for k, x in own.test.items()}
  other = fl_sketch.load(tmp_path, problem=own._replace(test=test))
  with pytest.raises(workdir.WorkdirError, match='data'):
    other.evaluate()


def test_metrics_hold_every_number_of_every_row():
  """Catches a count that is rounded, and a missing value that becomes 0."""
  rows = [
    {'bytes': 2**60 + 1, 'epsilon': 'inf', 'huge': 2**70},
    {'bytes': 2**60 + 2, 'test_loss': None, 'huge': 1},
  ]
  array = runs.as_array(rows)
  assert array['bytes'].tolist() == [row['bytes'] for row in rows]
  assert array['huge'].tolist() == [2.0**70, 1]
  np.testing.assert_array_equal(array['epsilon'], [np.inf, np.nan])
  np.testing.assert_array_equal(array['test_loss'], [np.nan, np.nan])
  assert runs.as_array([]).tolist() == []
