"""Configs: every one builds and plays; bad input is named."""

import pathlib
import re

import cases
from fl_sketch import algorithms, models, runs
from fl_sketch.runs import config
from harness import DATA, SMALL
from launch import configs
import natural_files
import numpy as np
import pytest

CONFIGS = [name for name in configs.names() if not name.endswith('_attack')]
# LeNet-5 compiles for seconds; one of its configs is enough for the fast tier.
SLOW = ('mnist_fedavg', 'mnist_fedsketch')


def config_of(name, variant):
  return configs.load(name).get_config(variant).to_dict()


# A comparison sweeps its rates, of which the first one alone diverges.
@pytest.mark.nightly
@pytest.mark.filterwarnings('ignore:The training loss ended:UserWarning')
@cases.by_name(CONFIGS, SLOW)
def test_every_config_plays_its_quick_variant(name, tmp_path):
  fields = config_of(name, 'quick')
  if fields['dataset'] == 'store':
    fields = on_tiny_store(fields, tmp_path)
  elif fields['dataset'] not in ('digits', 'quadratics') and not DATA.exists():
    pytest.skip(f'needs {fields["dataset"]} in {DATA}')
  exp = runs.build(fields, str(DATA))
  result = runs.train(exp, tmp_path / 'run', progress=False)
  assert result.finished
  assert result.row['round'] == fields['rounds'] - 1
  assert np.isfinite(result.row['test_loss'])


def on_tiny_store(fields, folder):
  """The fields, with a store of four clients, from files as are published."""
  kind = pathlib.Path(fields['dataset_options']['folder']).name
  kind = 'photos' if kind in ('inaturalist', 'landmarks') else kind
  size = {'size': 16} if kind in ('flair', 'photos') else {}
  natural_files.make_store(kind, folder, range(4), **size)
  options = {'folder': str(folder / 'store')}
  changes = {'population': 4, 'test_slice': None, 'dataset_options': options}
  return fields | changes


@pytest.mark.nightly
@pytest.mark.parametrize(('name', 'variant'), [
  ('femnist', 'onebit'), ('shakespeare', 'plays'), ('stackoverflow', 'fedavg'),
  ('natural', 'reddit,onebit'), ('natural', 'inaturalist'),
])  # fmt: skip
def test_configs_of_natural_clients_take_a_round(name, variant, tmp_path):
  """Catches a model, loss, size or table that does not suit a kind of data."""
  fields = on_tiny_store(config_of(name, f'{variant},quick'), tmp_path)
  exp = runs.build(fields | {'rounds': 1})
  if size := fields['sketch']['size']:
    assert size == models.num_params(exp.params) * 32 // 100
  result = runs.train(exp, tmp_path / 'run', progress=False)
  assert np.isfinite(result.row['test_loss'])


@pytest.mark.parametrize('name', CONFIGS)
def test_every_config_is_checked_and_documents_its_command(name):
  config.Config.from_mapping(config_of(name, ''))
  module = configs.load(name)
  assert re.search(rf'fl-sketch (train|sweep) {name}\b', module.__doc__)
  with pytest.raises(ValueError, match='slow'):
    module.get_config('slow')


@pytest.mark.usefixtures('own_parts')
def test_an_own_algorithm_may_read_any_hyperparameter():
  """Catches a message that clip_norm has no effect, of one that reads it."""
  mine = lambda task, hp: algorithms.entry('fedsgd').factory(task, hp)
  algorithms.register(mine, name='mine', work='gradient')
  c = config.Config(algorithm='mine', clip_norm=2.0, lr_decay=0.9)
  assert float(runs.hyper_of(c).clip_norm) == 2.0


@pytest.mark.parametrize(('fields', 'name'), [
  ({'cohort': 51}, 'cohort'), ({'local_work': 'gram'}, 'local_work'),
  ({'b1': 0.5}, 'b1'), ({'client_clip': 1.0, 'algorithm': 'fedkseed'},
    'client_clip'),
  ({'sampling': 'random_allocation', 'cohort': 20}, 'cohort'),
  ({'algorithm': 'safl', 'sketch': 'srht(size=1000000)'}, 'size'),
  ({'population': 10**4, 'cohort': 2}, 'population'),
  ({'algorithm': 'fedsketchgate', 'sketch': 'count_sketch(rows=3, cols=20)',
    'weights': 'samples'}, 'weights'),
])  # fmt: skip
def test_common_mistakes_are_named(fields, name):
  """Catches an option without effect, and sizes that end in a traceback."""
  with pytest.raises(config.ConfigError, match=rf'\b{name}\b'):
    runs.build(SMALL | fields)


def test_weights_by_samples():
  fields = {'partition': 'size_skew', 'weights': 'samples', 'cohort': 6}
  exp = runs.build(SMALL | fields)
  cohort = exp.sample(0)
  sizes = exp.partition.sizes[cohort.ids]
  np.testing.assert_allclose(cohort.weight, sizes / sizes.mean(), rtol=1e-6)
