"""Restarts of private runs: unchanged to the same bits, otherwise refused."""

import shutil
import signal

import chex
from fl_sketch import experiment, training
from fl_sketch.training import devices, identity, noise_secret, runner, workdir
from fl_sketch.utils import files
import numpy as np
import pytest
import runs
from runs import EVERY_ROUND, kill_at, launch, rows

from tests.training.test_identity import (
  PRIVATE,
  SWAPS,
  begin,
  build,
  write_store,
)
from tests.training.test_private_runs import PRIVATE as DIGITS, SAMPLES

X = np.arange(48, dtype=np.uint8).reshape(12, 4)


class Killed(BaseException):
  """As SIGKILL: nothing of the library catches it."""


def of_store(folder, fields=PRIVATE):
  options = {'dataset_options': {'folder': str(folder)}, 'dataset': 'store'}
  options |= {'model': 'linear', 'model_options': None}
  return experiment.build(fields | options)


def rewritten(monkeypatch, tmp_path):
  """Another store in the same folder, and what differs of it."""
  del monkeypatch
  shutil.rmtree(tmp_path / 'store')
  write_store(tmp_path / 'store', X[::-1])
  return of_store(tmp_path / 'store'), r'\(training data x; test data x'


def upgraded(monkeypatch, tmp_path):
  monkeypatch.setattr(files, '__version__', '9.9.9')
  return of_store(tmp_path / 'store'), r"\(fl_sketch: .* then, '9\.9\.9' now\)"


def other_kernels(monkeypatch, tmp_path):
  monkeypatch.setattr(devices, 'deterministic', lambda platform: False)
  why = r'\(deterministic kernels: True then, False now\)'
  return of_store(tmp_path / 'store'), why


CHANGES = [rewritten, upgraded, other_kernels]
ISSUE = ['an image', 'the loss', 'the partition', *CHANGES]


@pytest.mark.parametrize(
  'change', ISSUE, ids=lambda x: getattr(x, '__name__', x)
)
def test_a_change_is_refused_before_any_noise_is_drawn(
  change, tmp_path, monkeypatch
):
  """Catches a start that reads the secret, or plays a round, and then refuses.

  Its noise would be that of a round which was released with other data.
  """
  folder, in_store = tmp_path / 'run', callable(change)
  if in_store:
    write_store(tmp_path / 'store', X)
  exp = of_store(tmp_path / 'store') if in_store else build(PRIVATE)
  begin(folder, exp)
  problem = identity.of(exp)
  noise_secret.of_run(exp.config, problem, folder, resumed=False)
  if in_store:
    other, why = change(monkeypatch, tmp_path)
  else:
    changes, what = SWAPS[change]
    other, why = build(PRIVATE, **changes), rf'\({what}'
  kept = {p: p.read_bytes() for p in folder.rglob('*') if p.is_file()}
  assert folder / 'secret' / 'entropy' in kept
  monkeypatch.delattr(noise_secret, 'of_run')
  monkeypatch.delattr(runner.Runner, 'play')
  with pytest.raises(workdir.WorkdirError, match=why):
    training.train(other, folder, progress=False)
  assert {p: p.read_bytes() for p in folder.rglob('*') if p.is_file()} == kept


@pytest.mark.nightly
def test_a_run_killed_before_its_first_checkpoint_ends_with_the_same_bits(
  tmp_path,
):
  """Catches other noise or cohorts in the rounds that are played again.

  The uninterrupted run has the file of the secret of the other.
  """
  fields = PRIVATE | {'rounds': 5}
  exp = build(fields)
  cut, whole = tmp_path / 'cut', tmp_path / 'whole'

  def kill(row):
    if row['round'] == 3:
      raise Killed

  with pytest.raises(Killed):
    training.train(exp, cut, progress=False, on_row=kill)
  assert not [p for p in (cut / 'checkpoints').iterdir() if p.name.isdecimal()]
  first = rows(cut)
  shutil.copytree(cut / 'secret', whole / 'secret')
  found, want = (
    training.train(build(fields), folder, progress=False).state
    for folder in (cut, whole)
  )
  chex.assert_trees_all_equal(found, want)
  assert rows(cut) == rows(whole)
  assert rows(cut)[: len(first)] == first
  # With the secret of another folder it would be another run.
  other = training.train(build(fields), tmp_path / 'other', progress=False)
  assert np.abs(other.state.params['w'] - want.params['w']).max() > 1e-3


@pytest.mark.long
def test_sigkill_before_the_first_checkpoint_ends_with_the_same_bits(tmp_path):
  """Catches what a process keeps elsewhere than in the folder."""
  flags = [
    *EVERY_ROUND, '--config.checkpoint_every=99999', '--config.rounds=12',
    '--config.noise_multiplier=2.0', '--config.clip_norm=1.0',
    '--config.delta=1e-3', '--config.sampling=poisson',
    '--config.standardize=False',
  ]  # fmt: skip
  cut, whole = tmp_path / 'cut', tmp_path / 'whole'
  assert kill_at(cut, 4, flags) == -signal.SIGKILL
  before = rows(cut)
  assert 4 <= len(before) < 12
  shutil.copytree(cut / 'secret', whole / 'secret')
  for folder in (cut, whole):
    runs.finish(launch(folder, *flags))
  assert rows(cut) == rows(whole)
  assert rows(cut)[: len(before)] == before
  runs.have_equal_parameters(whole, cut)


def test_cohorts_and_batches_follow_the_secret():
  """Catches a private run that samples from the public seed."""
  roots = [bytes([i]) * 32 for i in range(3)]
  few = {'cohort': 2, 'population': 6, 'delta': 1e-3}
  cohorts, batches = (
    experiment.build(DIGITS | few | more) for more in ({}, SAMPLES)
  )
  draws = {
    tuple(tuple(cohorts.sample(r, root).ids) for r in range(20))
    for root in roots
  }
  assert len(draws) == len(roots)
  drawn = [batches.sample(0, root) for root in roots]
  taken = [x.batches[x.ids == i] for x in drawn for i in range(6)]
  taken = [x.tobytes() for x in taken if x.size]
  assert len({*taken}) == len(taken)
  again = batches.sample(0, roots[0])
  np.testing.assert_array_equal(again.batches, drawn[0].batches)
