"""Datasets from disk and from a seed."""

import shutil
import sys

from fl_sketch.data import sources, synthetic
from fl_sketch.utils import seeding
import numpy as np
import pytest
import runs
from runs import DATA as TFDS
from sklearn import datasets

needs_mnist = pytest.mark.skipif(
  not (TFDS / 'mnist').is_dir(), reason=f'MNIST is not in {TFDS}'
)
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.fixture(autouse=True)
def no_home(tmp_path, monkeypatch):
  for variable in ('HOME', 'FL_SKETCH_CACHE', 'TFDS_DATA_DIR'):
    monkeypatch.setenv(variable, str(tmp_path / 'nothing'))


@pytest.fixture(scope='module')
def mnist_cache(tmp_path_factory):
  """A cache of as many images as MNIST has, all black: decoding is slow."""

  def black(name, root, folder, split):
    n = {'train': 60_000, 'test': 10_000}[split]
    return {'x': np.zeros((n, 28, 28, 1), np.uint8), 'y': np.zeros(n, np.int32)}

  cache = tmp_path_factory.mktemp('cache')
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(sources, '_decode', black)
    sources.load('mnist', TFDS, cache)
  return cache


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
def test_mnist_is_whole_and_its_cache_holds_the_same(tmp_path):
  decoded = sources.load('mnist', TFDS, tmp_path)
  first = sources.load('mnist', TFDS, tmp_path)
  np.testing.assert_array_equal(first.train['x'], decoded.train['x'])
  assert first.train['x'].shape == (60_000, 28, 28, 1)
  assert first.test['x'].shape == (10_000, 28, 28, 1)
  assert first.train['x'].dtype == np.uint8
  assert first.train['y'].dtype == np.int32
  assert np.bincount(first.train['y']).tolist() == MNIST_TRAIN
  assert np.bincount(first.test['y']).tolist() == MNIST_TEST
  (cache,) = tmp_path.iterdir()  # and no temporary file
  assert cache.name.startswith('mnist-3.')


@needs_mnist
def test_a_cached_load_does_not_import_tensorflow_datasets(
  mnist_cache, monkeypatch
):
  """Nor does it take folders that the environment does not name."""
  monkeypatch.setenv('TFDS_DATA_DIR', str(TFDS))
  monkeypatch.setenv('FL_SKETCH_CACHE', str(mnist_cache))
  code = """
import sys
from fl_sketch.data import sources
sources._decode = None
assert sources.load('mnist').train['x'].shape == (60_000, 28, 28, 1)
for name in ('tensorflow_datasets', 'tensorflow', 'matplotlib'):
  assert name not in sys.modules, name
"""
  runs.python('-c', code)


@needs_mnist
def test_a_damaged_record_file_is_named(tmp_path):
  """Catches images that are others, and a bare traceback of a reader."""
  (folder,) = (TFDS / 'mnist').glob('*.*.*')
  copy = tmp_path / 'tfds' / 'mnist' / folder.name
  shutil.copytree(folder, copy)
  (file,) = copy.glob('mnist-test.array_record*')
  content = file.read_bytes()
  half = len(content) // 2
  file.write_bytes(content[:half] + b'no number' + content[half + 9 :])
  with pytest.raises(sources.DataError, match='mnist-test'):
    sources._decode('mnist', tmp_path / 'tfds', copy, 'test')


def test_a_missing_dataset_is_an_error_before_tfds_is_asked(
  tmp_path, monkeypatch
):
  """Catches a download, or a search of buckets, where nothing is on disk."""
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  (tmp_path / 'cifar10' / '3.0.2').mkdir(parents=True)
  with pytest.raises(sources.DataError, match='cifar10'):
    sources.load('cifar10', tmp_path, tmp_path / 'cache')


def test_the_newest_version_counts_as_numbers(tmp_path):
  for version in ('3.0.9', '3.0.10', '3.0.x'):
    folder = tmp_path / 'mnist' / version
    folder.mkdir(parents=True)
    (folder / 'dataset_info.json').write_text('{}')
  assert sources._locate('mnist', tmp_path).name == '3.0.10'


@pytest.mark.covers('S1-Fig1')
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


@pytest.mark.covers('S0-Eq1', 'S1-Eq1')
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
  first, again, other = (
    synthetic.quadratics(s, population=3, dimension=5, rank=2)
    for s in (0, 0, 1)
  )
  for name in first.data:
    np.testing.assert_array_equal(first.data[name], again.data[name])
    assert not np.array_equal(first.data[name], other.data[name])
  # Fewer equations than unknowns: still a minimiser, here with value 0.
  flat = synthetic.quadratics(0, population=1, dimension=9, rank=2)
  assert flat.value(flat.w_star) < 1e-9
  with pytest.raises(ValueError, match='rank'):
    synthetic.quadratics(0, population=3, dimension=5, rank=6)


def test_fold_is_splitmix64():
  # The first outputs of the published generator from state 1234567.
  expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
  assert seeding.fold(1234567, np.arange(3)).tolist() == expected


def test_generator_separates_seeds_tags_and_counters():
  streams = {
    seeding.generator(seed, tag, counter).bytes(16)
    for seed in (0, 1, -1)
    for tag in ('a', 'b')
    for counter in (0, 1)
  }
  assert len(streams) == 12
  assert seeding.generator(-1, 'a').bytes(8) == seeding.generator(
    2**64 - 1, 'a'
  ).bytes(8)
