"""The best evaluation of a run is kept, wherever the run was killed."""

import itertools
import json
import math
import random

import fl_sketch
from fl_sketch.runs import saved_params
import harness
import numpy as np
import pytest

pytestmark = pytest.mark.xdist_group('training')
BEST = {'eval_every': 1, 'checkpoint_every': 3, 'keep_best': 'test_accuracy'}


def play(folder, losses, checkpoints, start):
  """Plays the rounds after a checkpoint, as `runs.loop`, without training.

  Yields None wherever a kill may come, then what keeps the best parameters.
  """
  rows = [{'round': n, 'test_loss': loss} for n, loss in enumerate(losses)]
  lines = [json.dumps(row) + '\n' for row in rows]
  path = folder / 'metrics.jsonl'
  path.write_text(''.join(lines[:start]))
  checkpoints[:] = [done for done in checkpoints if done <= start]
  keeper = saved_params.Best(folder, 'test_loss', checkpoints)
  if best := keeper.summary():
    at = best['best']['rounds_done']
    assert at in saved_params.rounds_in(folder / 'best')
  for done in range(start + 1, len(rows) + 1):
    yield None
    path.write_text(''.join(lines[:done]))
    yield None
    keeper.consider(rows[done - 1], np.float32(done))
    yield None
    if done % 3 == 0:
      checkpoints[:] = [*checkpoints, done][-2:]
      yield None
      keeper.keep_only(checkpoints)
  yield keeper


def fake_write(folder, rounds_done, params):
  (folder / str(rounds_done) / 'arrays').mkdir(parents=True, exist_ok=True)
  (folder / str(rounds_done) / 'arrays' / 'value').write_text(str(params))


def before(losses):
  """The finite losses up to each round."""
  finite = lambda rows: [loss for loss in rows if not math.isnan(loss)]
  return [finite(losses[: n + 1]) for n in range(len(losses))]


def test_no_kill_loses_or_invents_a_best(tmp_path, monkeypatch):
  """Catches a best of rounds that were not kept, or one that is overwritten,
  or deleted though a run may resume from its round."""
  monkeypatch.setattr(saved_params, 'write', fake_write)
  draw, kills = random.Random(0), 0
  values = 1.0, 2.0, 3.0, 4.0, math.nan
  # They fall, so that later rounds are often better than a checkpoint's.
  after = lambda start: [draw.choice(values) - n / 4 for n in range(start, 14)]
  for case in range(60):
    folder = tmp_path / str(case)
    folder.mkdir()
    losses = after(0)
    checkpoints, start, keeper = [], 0, None
    while keeper is None:
      steps = play(folder, losses, checkpoints, start)
      *_, keeper = itertools.islice(steps, draw.randrange(1, 60))
      if keeper is None:
        kills += 1
        start = draw.choice(checkpoints or [0])  # the newest may be damaged
        # With other devices the last bits, and so the best, may differ.
        losses[start:] = after(start)
    finite = before(losses)[-1]
    done = losses.index(min(finite)) + 1
    assert keeper.summary() == {
      'best': {'metric': 'test_loss', 'value': min(finite), 'rounds_done': done}
    }
    best = [losses.index(min(x)) + 1 for x in before(losses) if x]
    kept = {max(n for n in best if n <= c) for c in checkpoints if c >= best[0]}
    kept |= {n for n in best if n > checkpoints[-1]}
    assert saved_params.rounds_in(folder / 'best') == sorted(kept)
    value = folder / 'best' / str(done) / 'arrays' / 'value'
    assert value.read_text() == str(np.float32(done))
  assert kills > 60


@pytest.mark.nightly
def test_the_best_is_that_of_the_metrics(tmp_path):
  """Catches parameters of another round than the value's, and of the last."""
  # The accuracy goes up and down.
  harness.train(tmp_path, **BEST, client_lr=2.0, server_lr=0.3)
  run = fl_sketch.load(tmp_path, best=True)
  values = run.metrics['test_accuracy']
  most = values.argmax()
  assert run.summary['best']['value'] == values[most]
  assert run.round == run.summary['best']['rounds_done'] == most + 1 < 8
  assert run.evaluate()['test_accuracy'] == values[most]
