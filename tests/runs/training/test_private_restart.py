"""Restarts of private runs: unchanged to the same bits, otherwise refused."""

import shutil

import chex
from fl_sketch import runs
from fl_sketch.runs import noise_secret, player, same_run, workdir
from harness import rows
import numpy as np
from own_problem import PRIVATE, begin, build, store_of
import pytest

from tests.runs.training.test_private_runs import PRIVATE as DIGITS, SAMPLES

X = np.arange(48, dtype=np.uint8).reshape(12, 4)


def test_a_change_is_refused_before_any_noise_is_drawn(tmp_path, monkeypatch):
  """Catches a start that reads the secret, or plays, and then refuses."""
  folder = tmp_path / 'run'
  exp = store_of(tmp_path / 'store', X, PRIVATE)
  begin(folder, exp)
  problem = same_run.problem_of(exp)
  noise_secret.of_run(exp.config, problem, folder, resumed=False)
  shutil.rmtree(tmp_path / 'store')
  other = store_of(tmp_path / 'store', X[::-1], PRIVATE)
  content = lambda: {
    p: p.read_bytes() for p in folder.rglob('*') if p.is_file()
  }
  before = content()
  assert folder / 'secret' / 'entropy' in before
  monkeypatch.delattr(noise_secret, 'of_run')
  monkeypatch.delattr(player.Shards, 'play')
  with pytest.raises(workdir.WorkdirError, match=r'\(data'):
    runs.train(other, folder, progress=False)
  assert content() == before


@pytest.mark.nightly
def test_a_run_killed_before_its_first_checkpoint_ends_with_the_same_bits(
  tmp_path,
):
  """Catches other noise or cohorts in the rounds that are played again."""
  fields = PRIVATE | {'rounds': 5}
  exp = build(fields)
  cut, whole = tmp_path / 'cut', tmp_path / 'whole'

  def kill(row):
    if row['round'] == 3:
      raise SystemExit  # which nothing of the library catches

  with pytest.raises(SystemExit):
    runs.train(exp, cut, progress=False, on_row=kill)
  assert not [p for p in (cut / 'checkpoints').iterdir() if p.name.isdecimal()]
  first = rows(cut)
  shutil.copytree(cut / 'secret', whole / 'secret')
  found, want = (
    runs.train(build(fields), folder, progress=False).state
    for folder in (cut, whole)
  )
  chex.assert_trees_all_equal(found, want)
  assert rows(cut) == rows(whole)
  assert rows(cut)[: len(first)] == first
  # With the secret of another folder it would be another run.
  other = runs.train(build(fields), tmp_path / 'other', progress=False)
  assert np.abs(other.state.params['w'] - want.params['w']).max() > 1e-3


def test_cohorts_and_batches_follow_the_secret():
  """Catches a private run that samples from the public seed."""
  roots = [bytes([i]) * 32 for i in range(3)]
  few = {'cohort': 2, 'population': 6, 'delta': 1e-3}
  exp = runs.build(DIGITS | few | SAMPLES)
  draws = {
    tuple(exp.sample(r, s).ids.tobytes() for r in range(20)) for s in roots
  }
  assert len(draws) == len(roots)
  drawn = [exp.sample(0, root) for root in (*roots, roots[0])]
  assert len({x.tobytes() for one in drawn for x in one.batches}) == 2 * 3
  np.testing.assert_array_equal(drawn[3].batches, drawn[0].batches)
