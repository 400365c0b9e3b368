"""Datasets from disk and from a seed."""

import itertools
import sys

import chex
import draws
from fl_sketch import runs
from fl_sketch.data import sources, synthetic
from fl_sketch.runs.config import Config
from fl_sketch.utils import seeding
from harness import DATA as TFDS
import jax
import numpy as np
import pytest
from sklearn import datasets

from tests.data.test_text import PLAY

needs_mnist = pytest.mark.skipif(
  not (TFDS / 'mnist').is_dir(), reason=f'MNIST is not in {TFDS}'
)
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(autouse=True)
def no_home(tmp_path, monkeypatch):
  for variable in ('HOME', 'FL_SKETCH_CACHE', 'TFDS_DATA_DIR'):
    monkeypatch.setenv(variable, str(tmp_path / 'nothing'))


def test_digits_are_split_alike_in_every_class():
  digits = sources.load('digits')
  train, test = digits.train, digits.test
  assert digits.num_classes == 10
  for part, n in ((train, 1437), (test, 360)):
    assert (part['x'].shape, part['y'].shape) == ((n, 8, 8, 1), (n,))
    assert (part['x'].dtype, part['y'].dtype) == (np.uint8, np.int32)
  everything = np.concatenate([train['x'], test['x']])
  assert len(np.unique(everything, axis=0)) == 1797
  counts = [np.bincount(part['y']) for part in (train, test)]
  assert np.all(np.abs(counts[0] - 4 * counts[1]) <= 4)
  x, y = datasets.load_digits(return_X_y=True)
  rows = lambda x, y: {*map(tuple, np.column_stack([x, y]))}
  images = np.rint(everything.reshape(-1, 64) * (16 / 255))
  labels = np.concatenate([train['y'], test['y']])
  assert rows(images, labels) == rows(x, y)  # those of scikit-learn


@pytest.mark.nightly
@needs_mnist
def test_mnist_is_whole(tmp_path, monkeypatch):
  """Catches images of another order than their labels, or of other types."""
  monkeypatch.setenv('FL_SKETCH_CACHE', str(tmp_path))
  part = sources.load('mnist', TFDS).test
  assert part['x'].shape == (10_000, 28, 28, 1)
  assert (part['x'].dtype, part['y'].dtype) == (np.uint8, np.int32)
  assert np.bincount(part['y']).tolist() == MNIST_TEST


def test_images_are_decoded_once_from_the_newest_version(tmp_path, monkeypatch):
  """Catches a start that decodes again, or a version that counts as text."""
  for version in ('3.0.9', '3.0.10', '3.0.x'):
    (folder := tmp_path / 'mnist' / version).mkdir(parents=True)
    (folder / 'dataset_info.json').write_text('{}')
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  monkeypatch.setenv('FL_SKETCH_CACHE', str(tmp_path / 'cache'))
  images = {
    split: {'x': np.full((n, 2, 2, 1), n, np.uint8), 'y': np.arange(n)}
    for split, n in (('train', 3), ('test', 2))
  }
  decode = lambda name, root, folder, split: images[split]
  monkeypatch.setattr(sources, '_decode', decode)
  first = sources.load('mnist')
  monkeypatch.setattr(sources, '_decode', None)
  again = sources.load('mnist', tmp_path)
  for data in first, again:
    chex.assert_trees_all_equal([data.train, data.test], [*images.values()])
  cached = [path.name for path in (tmp_path / 'cache').iterdir()]
  assert cached == ['mnist-3.0.10.npz']  # and no temporary file


def test_a_missing_dataset_is_an_error_before_tfds_is_asked(
  tmp_path, monkeypatch
):
  """Catches a download, or a search of buckets, where nothing is on disk."""
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  (tmp_path / 'cifar10' / '3.0.2').mkdir(parents=True)
  with pytest.raises(sources.DataError, match='cifar10'):
    sources.load('cifar10', tmp_path)


def test_quadratics_have_the_stated_law():
  problem = synthetic.quadratics(seed=0)
  factor, optimum = problem.data['factor'], problem.data['optimum']
  assert factor.shape == (100, 200, 20)
  assert optimum.shape == (100, 200)
  assert factor.dtype == optimum.dtype == problem.w_star.dtype == np.float32
  # Standard errors of a mean and of a standard deviation; z of 6.
  for x, sd in ((factor, 1 / 20), (optimum, 1.0)):
    assert abs(x.mean()) < 6 * sd / np.sqrt(x.size)
    assert abs(x.std() / sd - 1) < 6 / np.sqrt(2 * x.size)


def test_quadratics_w_star_is_the_minimiser():
  problem = synthetic.quadratics(seed=1, population=7, dimension=12, rank=3)
  factor, optimum = problem.data['factor'], problem.data['optimum']
  q = np.einsum('ndr,ner->nde', factor, factor)
  gap = problem.w_star - optimum
  np.testing.assert_allclose(
    problem.value(problem.w_star),
    np.mean([g @ m @ g / 2 for g, m in zip(gap, q, strict=True)]),
    rtol=1e-5,
  )
  slope = np.einsum('nde,ne->nd', q, gap)
  assert np.linalg.norm(slope.mean(0)) < 1e-5 * np.linalg.norm(slope)
  assert np.linalg.norm(problem.w_star - optimum.mean(0)) > 0.1
  # The mean loss is quadratic: away from w_star it grows by the mean of Q.
  step = problem.start(0, scale=0.2) - problem.w_star
  grown = problem.value(problem.w_star + step) - problem.value(problem.w_star)
  np.testing.assert_allclose(grown, step @ q.mean(0) @ step / 2, rtol=1e-3)
  assert np.all((step > -1e-6) & (step < 0.2 + 1e-6))


def test_quadratics_depend_on_the_seed_only():
  """Catches draws of a generator that others use; and a value that is not 0."""
  make = lambda seed: synthetic.quadratics(seed, 1, dimension=9, rank=2)
  first, again, other = make(0), make(0), make(1)
  chex.assert_trees_all_equal(first, again)
  for name, x in first.data.items():
    assert not np.array_equal(x, other.data[name])
  # Fewer equations than unknowns: still a minimiser, here with value 0.
  assert first.value(first.w_star) < 1e-9


def test_fold_is_splitmix64_and_a_generator_separates_its_arguments():
  """Catches another hash, and arguments that share a stream of draws."""
  # The first outputs of the published generator from state 1234567.
  expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
  assert seeding.fold(1234567, np.arange(3)).tolist() == expected
  draw = lambda *args: seeding.generator(*args).bytes(16)
  every = itertools.product((0, 1, -1), 'ab', (0, 1))
  assert len({draw(*args) for args in every}) == 12
  assert draw(-1, 'a') == draw(2**64 - 1, 'a')


SMALL = {'population': 4, 'cohort': 4, 'batch_size': 4, 'model': 'mlp'}


@pytest.mark.nightly
def test_a_text_is_trained_by_its_tokens(tmp_path, monkeypatch):
  """Catches labels that no loss takes, and a vocabulary of another size."""
  draws.by_numpy(monkeypatch)
  (tmp_path / 'play.txt').write_text(PLAY * 9)
  options = {'path': 'play.txt', 'tokens': 'characters', 'length': 12}
  fields = SMALL | {'dataset': 'text', 'dataset_options': options}
  fields |= {'model': 'gru', 'loss': 'tokens'}
  exp = runs.build(fields, str(tmp_path))
  zero = jax.tree.map(np.zeros_like, exp.params)
  letters = len({*PLAY}) + 4
  batch = {k: x[-1:] for k, x in exp.data.items()}  # which is padded
  assert (batch['y'] < 0).any()
  assert exp.loss_fn(zero, batch) == pytest.approx(np.log(letters))
  assert exp.metrics_fn(zero, batch)['count'] == (batch['y'] >= 0).sum()
  for other in {'loss': 'cross_entropy'}, {'partition': 'dirichlet'}:
    with pytest.raises(ValueError, match=r'outputs|labels'):
      runs.build(fields | other, str(tmp_path))


def test_slices_are_taken_before_anything_is_shared(monkeypatch):
  draws.by_numpy(monkeypatch)
  c = Config(**SMALL, train_slice='100:180', test_slice=':50')
  exp = runs.build(c)
  whole = sources.load('digits')
  np.testing.assert_array_equal(exp.data['x'], whole.train['x'][100:180])
  assert exp.test['mask'].sum() == 50
  assert exp.partition.sizes.sum() == 80
  with pytest.raises(ValueError, match='train_slice'):
    runs.build(Config(**SMALL, train_slice='1400:1500'))


def test_a_token_past_the_end_of_the_model_is_refused(folder):
  c = SMALL | {
    'dataset': 'sst2', 'dataset_options': {'length': 10, 'vocabulary': 120},
    'model': 'bert_nano', 'model_options': {'vocab_size': 20},
  }  # fmt: skip
  with pytest.raises(ValueError, match='vocab_size'):
    runs.build(c, str(folder))
