"""The best evaluation of a run is kept, wherever the run was killed."""

import json
import math
import random

import fl_sketch
from fl_sketch import experiment
from fl_sketch.experiment import config
from fl_sketch.reporting import metrics
from fl_sketch.training import best, saved_params
import numpy as np
import pytest
import refusals
import runs

pytestmark = pytest.mark.xdist_group('training')
BEST = {'eval_every': 1, 'checkpoint_every': 3, 'keep_best': 'test_loss'}
RATES = {'client_lr': 2.0, 'server_lr': 0.3}  # the loss goes up and down


class Killed(BaseException):
  """As SIGKILL: nothing of the library catches it."""


class Play:
  """A run of given losses, without its training: rows, bests, checkpoints."""

  def __init__(self, folder, losses, kills):
    self.folder, self.losses, self.kills = folder, losses, kills
    self.rows, self.kept = folder / 'metrics.jsonl', folder / 'kept.json'

  def step(self):
    """Comes between any two things that the loop does."""
    self.kills -= 1
    if not self.kills:
      raise Killed

  def start(self, checkpoint):
    """Plays the rounds after a checkpoint, as `training.loop` does."""
    rows = metrics.read_metrics(self.folder) if self.rows.exists() else []
    kept = json.loads(self.kept.read_text()) if self.kept.exists() else []
    self.rows.write_text(
      ''.join(json.dumps(x) + '\n' for x in rows if x['round'] < checkpoint)
    )
    kept = [done for done in kept if done <= checkpoint]
    keeper = best.Best(self.folder, 'test_loss', kept)
    for number in range(checkpoint, len(self.losses)):
      row = {'round': number, 'test_loss': self.losses[number]}
      self.step()
      with open(self.rows, 'a') as f:
        f.write(json.dumps(row) + '\n')
      self.step()
      keeper.consider(row, np.float32(number + 1))
      self.step()
      if (number + 1) % 3 == 0:
        kept = [*kept, number + 1][-2:]
        self.kept.write_text(json.dumps(kept))
        self.step()
        keeper.keep_only(kept)
    return keeper


def fake_write(folder, rounds_done, params):
  (folder / str(rounds_done) / 'arrays').mkdir(parents=True, exist_ok=True)
  (folder / str(rounds_done) / 'arrays' / 'value').write_text(str(params))


def test_no_kill_loses_or_invents_a_best(tmp_path, monkeypatch):
  """Catches a best of rounds that were not kept, or one that is overwritten."""
  monkeypatch.setattr(saved_params, 'write', fake_write)
  draw, lost = random.Random(0), 0
  for case in range(60):
    folder = tmp_path / str(case)
    folder.mkdir()
    losses = [draw.choice([1.0, 2.0, 3.0, 4.0, math.nan]) for _ in range(14)]
    play = Play(folder, losses, kills=draw.randrange(1, 50))
    checkpoint = 0
    while True:
      try:
        keeper = play.start(checkpoint)
        break
      except Killed:
        there = json.loads(play.kept.read_text()) if play.kept.exists() else []
        checkpoint = draw.choice(there or [0])  # the newest may be damaged
        play.kills = draw.randrange(1, 80)
        # With other devices the last bits, and so the best, may differ.
        losses[checkpoint:] = draw.sample(losses[checkpoint:], 14 - checkpoint)
        lost += 1
    finite = [loss for loss in losses if not math.isnan(loss)]
    done = losses.index(min(finite)) + 1
    assert keeper.summary() == {
      'best': {'metric': 'test_loss', 'value': min(finite), 'rounds_done': done}
    }
    there = saved_params.rounds_in(folder / 'best')
    assert there[-1] == done
    assert len(there) <= 3
    value = folder / 'best' / str(done) / 'arrays' / 'value'
    assert value.read_text() == str(np.float32(done))
  assert lost > 60


@pytest.mark.representatives('test_accuracy')
@pytest.mark.parametrize('metric', ['test_accuracy', 'client_loss_mean'])
def test_the_best_is_that_of_the_metrics(metric, tmp_path):
  """Catches parameters of another round than the value's, and of the last."""
  fields = BEST | RATES | {'keep_best': metric}
  fields['client_holdout'] = 0.2 * metric.startswith('client_')
  runs.train(tmp_path, **fields)
  run = fl_sketch.load(tmp_path, best=True)
  values = run.metrics[metric]
  least = values.argmax() if 'accuracy' in metric else values.argmin()
  assert run.summary['best'] == {
    'metric': metric, 'value': values[least], 'rounds_done': least + 1,
  }  # fmt: skip
  assert run.round == least + 1 < 8
  assert run.evaluate()[metric] == values[least]


HOLDOUT = {'client_holdout': 0.2}
LEAKS = {'epsilon': 1.0, 'delta': 1e-3, 'clip_norm': 1.0, 'standardize': False}
# A run that keeps nothing, and a choice that leaks.
test_a_metric_that_is_not_there_is_refused = refusals.refused(
  lambda fields: experiment.build(runs.SAFL | fields),
  ({'keep_best': 'train_loss'}, 'keep_best'),
  (HOLDOUT | {'keep_best': 'client_loss_q1'}, 'keep_best'),
  (HOLDOUT | LEAKS | {'keep_best': 'client_loss_mean'}, 'keep_best'),
  error=config.ConfigError,
)
