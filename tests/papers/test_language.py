"""Comparisons on language: equal work, tuning, claims."""

import math
import pathlib

from fl_sketch.data import store
from fl_sketch.runs import sweep
import numpy as np
from papers.common import workspace
from papers.common.workspace import Workspace
from papers.language import methods as texts, problems, report as page, tuning
import pytest


class MadeUp(Workspace):
  """Makes runs up, whose bytes and losses follow from their configs."""

  def sweep(self, name, config):
    self.configs[name] = config
    swept = config.get('sweep') or {'seed': (config.get('seed', 0),)}
    up = 40 if config.get('sketch') is None else 4
    row = {'total_uplink_bytes': config['rounds'] * up}
    row['total_downlink_bytes'] = config['rounds'] * 40
    return [
      Run(row | {'values': p.values, 'c': p.config}, None)
      for p in sweep.points({**config, 'sweep': swept})
    ]


class Run(workspace.PointRun):
  """A run whose metrics are best at a rate of their own."""

  diverged = False

  def curve(self, metric='test_accuracy', x='round'):
    return np.arange(1, 3), np.array([2.0, 1.0]) * self.final(metric)

  def final(self, metric='test_accuracy', last=1):
    c = self.row['c']
    rate = c.client_lr if c.server_lr == 1 else c.server_lr
    return 1 + abs(math.log(rate / BEST[metric]))


BEST = {
  'train_loss': 0.003, 'test_accuracy': 0.001, 'client_loss_pooled': 0.001,
  'test_bits': 0.003, 'test_loss': 0.003,
}  # fmt: skip


@pytest.fixture
def ws(tmp_path):
  return MadeUp(tmp_path, 'quick', progress=False)


def test_halves_share_nothing_and_one_client_has_everything(ws):
  """Catches a model that was trained on what it is adapted to."""
  parts = {p: problems.plays(ws, p) for p in ('all', 'first', 'second', 'one')}
  path = lambda fields: pathlib.Path(fields['dataset_options']['folder'])
  found = {part: store.open(path(fields)) for part, fields in parts.items()}
  assert parts['all']['population'] == 16
  assert parts['first']['population'] == parts['second']['population'] == 8
  assert not {*found['first'].ids} & {*found['second'].ids}
  assert {*found['first'].ids} | {*found['second'].ids} == {*found['all'].ids}
  assert parts['one']['population'] == 1
  for name in ('train', 'test'):
    one, whole = (getattr(found[p], name)['x'] for p in ('one', 'all'))
    np.testing.assert_array_equal(one, whole)


def test_rates_are_tuned_by_what_clients_hold_out_and_claims_are_of_losses(ws):
  """Catches a rate chosen by the test or a reported seed, and bytes down."""
  made = page.scratch(ws)
  assert made.seeds[texts.DENSE]['rate'] == 0.001
  tuned = [c for n, c in ws.configs.items() if n.endswith('/tune')]
  raced = [c for n, c in ws.configs.items() if n.endswith('/race')]
  assert len(tuned) == len(raced) == len(made.seeds) > 2
  for config in tuned:
    assert config['client_holdout'] == 0.1
    assert config['seed'] not in range(10)
  for config in raced:
    assert 'client_holdout' not in config
    assert config['sweep'] == {'seed': (0, 1)}
  near, fewer, *_ = made.claims
  assert (near.measured, near.bound) == (0.0, 1.0)
  assert (fewer.measured, fewer.bound) == (10.0, 100)
  assert texts.TABLES in near.text
  assert texts.DILOCO in near.text


def test_all_methods_see_the_same_characters(ws):
  """Catches a method with more steps, samples or rounds than the others."""
  task = problems.scratch(ws)
  for name, method in texts.METHODS.items():
    fields = tuning.config(task, method, 6, 0.1)
    seen = fields['rounds'] * fields['local_steps'] * fields['batch_size']
    assert seen == 6 * 4 * 2, name
    assert fields['cohort'] == 8
