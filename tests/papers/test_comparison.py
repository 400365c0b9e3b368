"""Comparisons: tuned on one model, run on another, resumed, reported."""

import dataclasses
import math

from fl_sketch import codecs, models, sketches
from fl_sketch.experiment import config
from fl_sketch.sweeps import report
from launch import configs
import numpy as np
from papers.common.comparison import Entry
from papers.common.workspace import PointRun, Workspace
from papers.comparison import algorithms as comparison
import pytest
from runs import SMALL

from tests.models.test_models import shapes

mnist_comparison = configs.load('mnist_comparison')

WIDTHS = {'mlp': {'widths': (64,)}}
RATES = {'steady': (0.1, 0.5), 'diverging': (1e30,)}


def config_of(name, model, partition):
  """A method on a linear model or on one of 8 hidden numbers."""
  del partition
  fields = {'model': 'linear', 'model_options': None}
  fields = fields if model == 'small' else {'model': 'mlp'}
  return SMALL | fields | {'sweep': {'client_lr': RATES[name]}}


def compare(folder):
  ws = Workspace(folder, progress=False)
  models = 'small', 'large'
  return comparison.outcomes(ws, config_of, [*RATES], ['iid'], models, (0, 1))


@pytest.fixture(scope='module')
def compared(tmp_path_factory):
  folder = tmp_path_factory.mktemp('compared')
  return folder, compare(folder)


def test_the_best_point_runs_over_the_seeds(compared):
  steady = compared[1]['iid']['steady']
  assert steady.entry.rates in [{'client_lr': rate} for rate in RATES['steady']]
  assert steady.accuracy.mean == pytest.approx(steady.entry.final().mean())
  assert 0 < steady.accuracy.mean <= 1
  assert steady.accuracy.error >= 0
  assert not steady.accuracy.diverged
  # 64 x 8 + 8 + 8 x 10 + 10 numbers, from 4 clients in each of 4 rounds.
  assert steady.uplink == 4 * 610
  assert steady.total == 2 * 4 * 4 * steady.uplink  # up and down


def test_a_method_that_diverges_is_said_to(compared):
  assert math.isnan(compared[1]['iid']['diverging'].accuracy.mean)
  (table,) = comparison.report(compared[1]).tables
  steady, diverging = table.rows
  assert steady[0] == '`steady`'
  assert 'diverged' in diverging


@dataclasses.dataclass(frozen=True)
class MadeUp(PointRun):
  """A run of one round."""

  def curve(self, metric='test_accuracy', x='round'):
    value = {'test_accuracy': 0.5, 'uplink_bytes': 8.0}[metric]
    return np.ones(1), np.array([value])


def made_up(mean):
  totals = {'total_uplink_bytes': 40, 'total_downlink_bytes': 40}
  run = MadeUp(totals | {'diverged': False, 'values': {}}, None)
  accuracy = report.Setting({}, mean, 0.1, 3, 0)
  return comparison.Outcome(Entry([run], {}), accuracy)


def test_names_stand_in_the_order_of_their_accuracy():
  """Catches names that are exchanged, and an interval of standard errors."""
  found = {'iid': {'b': made_up(0.9), 'a': made_up(0.5)}}
  first, second = comparison.panels(found)
  assert [line.y for line in first.lines] == [['a'], ['b']]
  ends = {line.family: (line.low[0], line.high[0]) for line in first.lines}
  assert ends['b'] == pytest.approx((90 - 43.0, 100), abs=0.1)
  assert [line.x for line in second.lines] == [[80 / 1e6]] * 2


@pytest.mark.parametrize('partition', mnist_comparison.PARTITIONS)
@pytest.mark.parametrize('model', mnist_comparison.PARAMETERS)
def test_every_method_is_a_config(model, partition):
  floats = mnist_comparison.PARAMETERS[model] // 32
  for name in mnist_comparison.methods(floats):
    c = mnist_comparison.get_config(f'{name},{model},{partition}').to_dict()
    checked = config.Config.from_mapping(c)
    points = checked.sweep or {}
    assert math.prod(len(v) for v in points.values()) <= 6
    if checked.sketch:
      sketches.make(**checked.sketch)
    if checked.codec:
      codecs.make(**checked.codec)


def test_nothing_to_compare_and_unknown_methods_are_refused(tmp_path):
  for names in ([], ['iid']), (['x'], []):
    with pytest.raises(ValueError, match='is empty'):
      comparison.outcomes(Workspace(tmp_path), config_of, *names, ('a', 'b'))
  for variant in ('nobody,mlp,iid', 'safl,mlp,elsewhere', 'safl,resnet,iid'):
    with pytest.raises(ValueError, match='is not one of'):
      mnist_comparison.get_config(variant)


def test_budgets_are_those_of_the_models():
  for model, parameters in mnist_comparison.PARAMETERS.items():
    module = models.make(model, 10, **WIDTHS.get(model, {}))
    params = shapes(module, (28, 28, 1))
    assert models.num_params(params) == parameters
