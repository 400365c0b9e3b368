"""Comparisons on trained models and on language: equal work, tuning, claims."""

import itertools
import math
import pathlib

from fl_sketch.data import store
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import build, plan as plan_lib, sweep
import numpy as np
from papers.common import comparison, workspace
from papers.common.workspace import Workspace
from papers.language import methods as texts, problems, report as page, tuning
from papers.trained import methods, report, runs, tasks
import pytest

WIDE = {'dataset': 'digits', 'model_options': {'widths': (256, 256)}}
ROWS = sorted({row for task in methods.ROWS for row in methods.rows(task)})


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


@pytest.fixture(scope='module')
def task():
  """An MLP of 85,002 parameters, at no method's edge."""
  wide = tasks.TASKS['digits']._replace(fields=WIDE, batch_size=8, steps=400)
  dimension, factors = comparison.sizes(Workspace(None), WIDE)
  assert dimension == 85_002
  return wide._replace(dimension=dimension, factors=factors)


@pytest.mark.parametrize(('name', 'share'), ROWS, ids=str)
def test_a_method_sends_its_share_of_the_same_samples(name, share, task):
  """Catches more bytes than are claimed or far less, and unequal work."""
  method = methods.METHODS[name]
  label, values = method.choice
  fields = methods.config(task, method, share, **{label: values[0]})
  steps = fields['rounds'] * fields['local_steps']
  seen = steps * fields['cohort'] * fields['batch_size']
  assert steps == task.steps
  assert seen == task.steps * task.workers * task.batch_size
  assert fields['cohort'] == fields['population']
  assert fields['local_steps'] == (task.local_steps if method.local else 1)
  up, down = plan_lib.wire(build(fields), mesh_lib.cohort_mesh())
  every = (fields.get('options') or {}).get('every', 1)
  sent = (up[0] + (every - 1) * up[1]) / every
  allowed = 4 * share * task.dimension
  if name == 'PowerSGD':
    assert sent < 0.1 * allowed
    return
  assert 0.8 * allowed < sent <= 1.001 * allowed
  if 'both ways' in name:
    assert down == up


@pytest.mark.parametrize(('name', 'share'), ROWS, ids=str)
def test_tuning_reads_what_is_held_out_on_seeds_apart(
  name, share, task, tmp_path
):
  """Catches unequal trials, and choices by test data or reported seeds."""
  ws = MadeUp(tmp_path, 'cpu', progress=False)
  found = runs.record(ws, task, name, share)
  stages = {'trials': [], 'near': [], 'finalist': [], 'runs': []}
  for folder, c in ws.configs.items():
    if 'search' not in c:
      stages[folder.rpartition('/')[2].partition('-')[0]].append(c)
  (reported,) = stages.pop('runs')
  assert 'client_holdout' not in reported
  assert reported['sweep']['seed'] == tuple(task.seeds)
  counts = {
    stage: sum(len(sweep.points({'sweep': {'seed': (0,)}, **c})) for c in cs)
    for stage, cs in stages.items()
  }
  near, finalists = 2 * len(runs.NEAR), runs.FINALISTS
  assert counts == {'trials': runs.TRIALS, 'near': near, 'finalist': finalists}
  for c in stages['near']:
    ((rate, values),) = c['sweep'].items()
    assert min(values) < c[rate] < max(values)
  for c in itertools.chain(*stages.values()):
    assert c['client_holdout'] == runs.HELD_OUT
    assert c['seed'] not in task.seeds
  losses = [loss for _, loss in found.trials]
  assert losses == sorted(losses)
  assert found.tuned == found.trials[0][0]  # the made-up best of both lengths


def made_up(task, **finals):
  """Records of methods by name, with these values of the metric."""
  return {
    (name.replace('_', ' '), 1.0): runs.Record(
      {}, [], list(values), [], [], up=1e6, down=1e6, rounds=task.steps
    )
    for name, values in finals.items()
  }


def test_ours_is_compared_with_the_best_dense_method(task):
  """Catches an easy ceiling, and a difference of the wrong sign."""
  seeds = np.linspace(-0.1, 0.1, 5)
  found = made_up(task, AdamW=98 + seeds, Muon=99 + seeds, SAFL=99.9 + seeds)
  found |= made_up(task, preconditioned_momentum=97 + seeds)
  ours = made_up(task, x=98.4 + seeds / 2)['x', 1.0]
  found[methods.OURS, 0.01] = ours._replace(up=1e4, down=1e4)
  mark, within, *_ = report._claims(task, found)
  assert mark.measured == pytest.approx(99)
  assert 'Muon' in within.text
  assert within.measured == pytest.approx(0.6)
  assert (within.relation, within.bound) == ('<=', task.margin)
  loss = task._replace(metric='test_loss', mark=1.0)
  _, within, *_ = report._claims(loss, found)
  assert 'preconditioned momentum' in within.text
  assert within.measured == pytest.approx(100 * (98.4 / 97 - 1), rel=1e-3)


def test_workers_gather_where_that_is_less(task):
  """Catches a rival that is charged for a dense mean that nobody needs."""
  one = runs.Record({}, [], [], [], [], up=10.0, down=1e6, rounds=1)
  others = task.workers - 1
  assert report._bytes(task, ('DeMo', 0.01), one) == (10, 10 * others)
  assert report._bytes(task, ('SAFL', 0.01), one) == (10, 1e6)
  large = one._replace(up=1e6)
  assert report._bytes(task, ('DeMo', 0.01), large) == (1e6, 1e6)


@pytest.fixture
def ws(tmp_path):
  return MadeUp(tmp_path, 'quick', progress=False)


def test_a_cost_is_of_the_tuned_method(task, tmp_path, monkeypatch):
  """Catches the time of a run at an untuned rate, which may end early."""
  ws = MadeUp(tmp_path, 'cpu', progress=False)
  monkeypatch.setattr(Run, 'diverged', True)
  tuned = {'client_lr': 0.02, 'b2': 0.99}
  with pytest.raises(ValueError, match='adamw-1'):
    runs.cost(ws, task, 'AdamW', 1, tuned)
  assert {c['client_lr'] for c in ws.configs.values()} == {0.02}


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
