"""The comparison of compressors: bytes, tuning, budgets."""

from fl_sketch import experiment, planning
from fl_sketch.reporting import figures
from fl_sketch.rounds import mesh as mesh_lib
import numpy as np
from papers.common import results, workspace
from papers.common.workspace import Workspace
from papers.one_percent import methods, report, runs, tasks
import pytest

WIDE = {
  'dataset': 'digits', 'model_options': {'widths': (256, 256)},
  'population': 4, 'cohort': 4, 'rounds': 300, 'local_steps': 1,
  'batch_size': 8,
}  # fmt: skip
RATES = {m.kind: 0.001 for m in methods.METHODS.values()}
PAIRS = [(n, s) for n, m in methods.METHODS.items() for s in m.shares]


@pytest.fixture(scope='module')
def task():
  """An MLP of 85,002 parameters, at no method's edge."""
  ws = MadeUp(None, 'cpu', progress=False)
  return tasks.of_fields(ws, 'wide', WIDE, RATES)


@pytest.mark.parametrize(('name', 'share'), PAIRS, ids=str)
def test_a_method_sends_its_share(name, share, task):
  """Catches a method that sends more than it claims, or much less."""
  fields = task.fields | methods.METHODS[name].fields(task, share)
  exp = experiment.build(fields)
  up, down = planning.wire(exp, mesh_lib.cohort_mesh())
  every = fields.get('options', {}).get('every', 1)
  sent = (up[0] + (every - 1) * up[1]) / every
  allowed = 4 * share * task.dimension
  if name == 'FedKSeed':  # a number for each step
    assert (sent, down[0]) == (4, 4 * 4096)
    return
  if name == 'PowerSGD':  # rank 1 is the least it can send
    assert sent < 0.1 * 4 * task.dimension
    return
  assert 0.85 * allowed < sent <= allowed
  if 'both ways' in name:
    assert down == up


class MadeUp(Workspace):
  """Makes runs up, whose bytes and losses follow from their configs."""

  def sweep(self, name, config):
    self.configs[name] = config
    ((field, values),) = config['sweep'].items()
    up = 40 if 'sketch' not in config else 1 + 3 * ('codec' in config)
    sent = {'total_uplink_bytes': up, 'total_downlink_bytes': 40}
    row = {name: config['rounds'] * number for name, number in sent.items()}
    fixed = config.get('client_lr', 1.0)
    rate = lambda value: fixed if field == 'seed' else value
    return [
      Run(row | {'values': {field: v}, 'rate': rate(v)}, None) for v in values
    ]


class Run(workspace.PointRun):
  """Every metric is least at a rate of its own."""

  diverged = False

  def curve(self, metric='test_accuracy', x='round'):
    return np.ones(1), np.ones(1)

  def final(self, metric='test_accuracy', last=1):
    return 1 + abs(np.log(self.row['rate'] / BEST[metric]))


BEST = {
  'train_loss': 0.003, 'test_accuracy': 0.001,
  'client_loss_pooled': 0.001, 'test_bits': 0.003,
}  # fmt: skip


def test_tuning_reads_losses_of_a_seed_apart(task):
  """Catches a rate that is chosen by test data, or on a reported seed."""
  ws = MadeUp(None, 'cpu')
  entries = runs.equal_rounds(ws, task._replace(shares=(0.01,)))
  assert {entry.rate for entry in entries.values()} == {0.003}
  tuned = [c for n, c in ws.configs.items() if n.endswith('/tune')]
  raced = [c for n, c in ws.configs.items() if n.endswith('/race')]
  assert len(tuned) == len(raced) == len(entries)
  for config in tuned:
    (values,) = config['sweep'].values()
    assert len(values) == 4
  seeds = {seed for config in raced for seed in config['sweep']['seed']}
  assert len(seeds) == 5
  assert {config['seed'] for config in tuned}.isdisjoint(seeds)


def test_what_is_compared_with_dense_has_more_seeds(task):
  """Catches differences of unequal seeds, and a claim that few seeds hide."""
  entries = runs.equal_rounds(MadeUp(None, 'cpu'), task._replace(name='text'))
  counts = {key: len(entry.runs) for key, entry in entries.items()}
  many = {(methods.DENSE, 1.0), *methods.BARS['text']}
  assert counts == {key: 20 if key in many else 5 for key in entries}


def test_equal_bytes_are_equal(task):
  """Catches a budget of rounds, of one direction, or of another method."""
  ws = MadeUp(None, 'cpu')
  task = task._replace(shares=(0.01,))
  entries = runs.equal_rounds(ws, task)
  budget = entries[methods.SAFL, 0.01].total()
  limited = runs.equal_bytes(ws, task, entries)
  assert limited.keys() == entries.keys()
  for entry in limited.values():
    one = entry.total() / entry.rounds
    assert budget - one < entry.total() <= budget
  more = runs.longer(ws, task, entries, methods.OURS_BOTH)
  dense = entries[methods.DENSE, 1.0].total()
  assert more.total() <= runs.LONGER * dense


def test_the_picture_has_every_row_of_its_table():
  """Catches a best method of a task that its panel lacks."""
  made = report.overview(Workspace(results.STORED))
  (table,), (picture,) = made.tables, made.pictures
  kept = results.read(results.STORED, 'One-Percent')
  assert kept['pictures'][0]['panels'] == figures.as_json(picture.panels)
  for column, panel in enumerate(picture.panels, start=3):
    cells = [row[column] for row in table.rows if row[column]]
    assert [line.cell for line in panel.lines] == cells
    assert 'CocktailSGD' in {line.label for line in panel.lines}
    _, second, *_, best = sorted(float(line.y[0]) for line in panel.lines)
    lowest = second - 0.2 * (best - second)  # whatever the worst is
    assert panel.y_limits[0] == pytest.approx(lowest)
