"""Configs with the papers' own models: sizes, bills, and a round in small."""

from fl_sketch import models, runs
from fl_sketch.rounds import mesh
from fl_sketch.runs import plan
from launch import configs
import numpy as np
from papers.das.studies import features
import pytest

CHEN = configs.load('chen_figures')
# A variant and the numbers that a client sends, in the panels of the paper.
PANELS = {'resnet,safl,4e6': 4e6, 'vit,cd_adam,8e4': 8e4, 'bert,safl,2e4': 2e4}


@pytest.mark.parametrize('model', CHEN.SIZES)
def test_settings_are_those_of_appendix_d(model):
  """Catches another batch, rate or loss, a part of the data, and another b."""
  for b in CHEN.SIZES[model][-1]:
    c = CHEN.get_config(f'{model},safl,{b}')
    other = CHEN.get_config(f'{model},fetchsgd,{b}').sketch
    assert c.sketch.size == other.rows * other.cols == float(b)
    assert (c.batch_size, c.label_smoothing, c.weight_decay) == (128, 0.1, 1e-4)
    assert (c.server_lr, c.final_server_lr, c.cohort) == (0.01, 1e-5, 5)
    assert c.dataset == ('sst2' if model == 'bert' else 'cifar10')
    assert c.train_slice is c.test_slice is None


@pytest.fixture(scope='module')
def data(tmp_path_factory):
  """A few artificial images and sentences, in the places of the real ones."""
  folder, rng = tmp_path_factory.mktemp('data'), np.random.default_rng(0)
  (folder / 'cifar10/3.0.2').mkdir(parents=True)
  (folder / 'cifar10/3.0.2/dataset_info.json').write_text('{}')
  arrays = {'train_y': np.arange(50, dtype=np.int32) % 10}
  arrays['train_x'] = rng.integers(256, size=(50, 32, 32, 3), dtype=np.uint8)
  arrays |= {f'test_{name}': arrays[f'train_{name}'] for name in 'xy'}
  np.savez(folder / 'cifar10-3.0.2.npz', **arrays)
  (folder / 'sst2').mkdir()
  for split in 'train', 'test':
    (folder / f'sst2/{split}.tsv').write_text('a film\t0\na good one\t1\n' * 20)
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv('FL_SKETCH_CACHE', str(folder))
    yield folder


@pytest.mark.parametrize('variant', PANELS)
def test_models_and_bills_are_those_of_the_figures(variant, data):
  """Catches a model of another size, and a table that is not the panel's b."""
  fields = CHEN.get_config(variant).to_dict() | {'rounds': 1}
  exp = runs.build(fields, str(data), draw=False)  # shapes, no parameters
  parameters, *_ = CHEN.SIZES[variant.partition(',')[0]]
  assert models.num_params(exp.params) == parameters
  (sent,), _ = plan.wire(exp, mesh.cohort_mesh())
  assert sent == 4 * PANELS[variant]


@pytest.mark.parametrize(
  'variant', ['resnet,marina', 'vit,safl', 'bert,fetchsgd']
)
def test_a_small_one_takes_a_round(variant, data, tmp_path):
  """Catches a model, loss or method that does not suit the data."""
  fields = CHEN.get_config(f'{variant},quick').to_dict() | {'rounds': 1}
  result = runs.train(runs.build(fields, str(data)), tmp_path, progress=False)
  assert np.isfinite(result.row['test_loss'])


def test_features_of_a_file_take_a_round(tmp_path):
  """Catches a file that is dealt otherwise, and a model of another size."""
  words, classes = 'cifar100,normalise,1.5', 100
  rng = np.random.default_rng(0)
  y = rng.permutation(np.arange(1000, dtype=np.int32)) % classes
  data = {'x': rng.random((1000, 512), np.float32), 'y': y}
  folder = str(tmp_path / 'store')
  assert features.deal(folder, data, data, population=100) == 512
  fields = configs.load('das_features').get_config(words).to_dict()
  fields |= {'dataset_options': {'folder': folder}, 'rounds': 1}
  exp = runs.build(fields | {'population': 100, 'cohort': 20})
  assert models.num_params(exp.params) == 513 * classes
  y, clients = np.asarray(exp.labels), map(exp.partition.client, range(100))
  assert max(len(np.unique(y[rows])) for rows in clients) <= 5
  result = runs.train(exp, tmp_path / 'run', progress=False)
  assert result.row['uplink_bytes'] == 4 * 513 * classes
