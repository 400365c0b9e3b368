"""Comparisons: tuned on one model, run on another, resumed, reported."""

import itertools
import json
import math

from fl_sketch import algorithms, codecs, models, sketches
from fl_sketch.experiment import config
from launch import configs
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


@pytest.fixture(scope='module')
def compared(tmp_path_factory):
  folder = tmp_path_factory.mktemp('compared')
  run = lambda: comparison.run(
    config_of,
    list(RATES),
    ['iid'],
    str(folder),
    models=('small', 'large'),
    seeds=(0, 1),
  )
  return folder, run(), run


@pytest.mark.nightly
def test_the_best_point_runs_over_the_seeds(compared):
  folder, outcomes, _ = compared
  steady = outcomes['iid']['steady']
  assert steady.values in [{'client_lr': rate} for rate in RATES['steady']]
  assert 0 < steady.mean <= 1
  assert steady.error >= 0
  assert not steady.diverged
  # 64 x 8 + 8 + 8 x 10 + 10 numbers, from 4 clients in each of 4 rounds.
  assert steady.uplink == 4 * 610
  assert steady.total == 2 * 4 * 4 * steady.uplink  # up and down
  kept = json.loads((folder / 'comparison.json').read_text())['iid']
  assert kept['steady']['mean'] == steady.mean
  assert (folder / 'comparison.png').stat().st_size > 1000


@pytest.mark.nightly
def test_a_contestant_that_diverges_is_said_to(compared):
  folder, outcomes, _ = compared
  assert math.isnan(outcomes['iid']['diverging'].mean)
  lines = (folder / 'table.md').read_text().splitlines()
  assert 'diverged' in lines[-1]
  assert '`steady`' in lines[-2]


@pytest.mark.nightly
def test_what_is_finished_does_not_run_again(compared):
  folder, outcomes, again = compared
  paths = sorted(folder.rglob('points.jsonl'))
  before = [path.stat().st_mtime_ns for path in paths]
  table = comparison.table(again())
  assert [path.stat().st_mtime_ns for path in paths] == before
  assert table == comparison.table(outcomes)


def test_names_stand_in_the_order_of_their_accuracy():
  """Catches names that are exchanged, and an interval of standard errors."""
  outcome = comparison.Outcome({}, 0.5, 0.1, 8.0, 80, 3, 0, 'safl')
  better = outcome._replace(mean=0.9, family='dense')
  first, second = comparison.panels({'iid': {'b': better, 'a': outcome}})
  assert first.lines[0].y == ['a', 'b']
  ends = {line.label: (line.low[0], line.high[0]) for line in first.lines[1:]}
  assert ends['dense'] == pytest.approx((90 - 43.0, 100), abs=0.1)
  assert [line.x for line in second.lines] == [[80 / 1e6]] * 2


def test_what_is_from_memory_has_a_mark():
  outcome = comparison.Outcome({}, 0.5, 0.1, 8.0, 80, 3, 0, 'safl')
  table = comparison.table({'iid': {'cd_adam': outcome, 'safl': outcome}})
  assert '| `cd_adam` † |' in table
  assert '| `safl` |' in table
  assert table.endswith(f'\n\n{algorithms.NOTE}\n')
  assert '†' not in comparison.table({'iid': {'safl': outcome}})


@pytest.mark.parametrize(
  ('model', 'partition'),
  list(
    itertools.product(mnist_comparison.PARAMETERS, mnist_comparison.PARTITIONS)
  ),
)
def test_every_contestant_is_a_config(model, partition):
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


@pytest.mark.parametrize(('names', 'partitions'), [([], ['iid']), (['x'], [])])
def test_nothing_to_compare_is_refused(names, partitions, tmp_path):
  with pytest.raises(ValueError, match='is empty'):
    comparison.run(
      config_of, names, partitions, str(tmp_path), models=('small', 'large')
    )


def test_unknown_contestants_are_refused():
  for variant in ('nobody,mlp,iid', 'safl,mlp,elsewhere', 'safl,resnet,iid'):
    with pytest.raises(ValueError, match='is not one of'):
      mnist_comparison.get_config(variant)


def test_budgets_are_those_of_the_models():
  for model, parameters in mnist_comparison.PARAMETERS.items():
    module = models.make(model, 10, **WIDTHS.get(model, {}))
    params = shapes(module, (28, 28, 1))
    assert models.num_params(params) == parameters
