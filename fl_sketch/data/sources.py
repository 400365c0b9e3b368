"""Read image datasets as plain arrays, from disk and never from a network."""

import importlib.util
import io
import logging
import os
import pathlib
from typing import Any, NamedTuple

from fl_sketch.data.partitions import Partition
from fl_sketch.utils import UserError, extras, files
import numpy as np

_LOG = logging.getLogger(__name__)

_SPLITS = ('train', 'test')
_EXAMPLES = {
  'mnist': (60_000, 10_000), 'fashion_mnist': (60_000, 10_000),
  'cifar10': (50_000, 10_000), 'cifar100': (50_000, 10_000),
}  # fmt: skip
NAMES = ('digits', *_EXAMPLES)

Arrays = dict[str, np.ndarray]
PathLike = str | os.PathLike


class Dataset(NamedTuple):
  """A dataset in memory; images are 'x', uint8[n, height, width, channels]."""

  name: str  # of messages
  train: Arrays  # leaves [n, ...]
  test: Arrays  # the same, of the test examples
  num_classes: int | None = None  # labels are below it; None: no classes
  partition: Partition | None = None  # where the data set has clients
  # Tokens are below it; None for a published tokenizer, and without tokens.
  vocabulary: int | None = None
  tokenizer: str | None = None  # of texts, the content of a tokenizer.json


class Pixels(NamedTuple):
  """Exact sums over bytes, which add up over parts of a dataset.

  >>> Pixels().plus(np.array([0, 255], np.uint8)).scale
  {'mean': 0.5, 'std': 0.5}
  """

  count: int = 0
  total: int = 0
  squares: int = 0

  def plus(self, pixels: np.ndarray) -> 'Pixels':
    """Add bytes, uint8[...], to the sums."""
    total, squares = self.total, self.squares
    for part in np.array_split(pixels.ravel(), 64):  # squares take memory
      total += int(part.sum(dtype=np.uint64))
      squares += int(np.square(part, dtype=np.uint32).sum(dtype=np.uint64))
    return Pixels(self.count + pixels.size, total, squares)

  @property
  def scale(self) -> dict[str, float]:
    """Mean and standard deviation, or 1 if that is 0, of pixels in [0, 1]."""
    # In integers, since rounding could make the variance negative.
    squares = self.count * self.squares - self.total**2
    variance = squares / (255 * self.count) ** 2
    return {'mean': self.total / self.count / 255, 'std': variance**0.5 or 1.0}


class DataError(UserError, ValueError):
  """A dataset is missing, damaged or not the expected one."""


def load(name: str, data_dir: PathLike | None = None) -> Dataset:
  """Load an image dataset from disk; download nothing.

  'digits' comes with scikit-learn; tensorflow-datasets wrote the others to
  `data_dir` (TFDS_DATA_DIR or ~/tensorflow_datasets). The first load decodes
  them to FL_SKETCH_CACHE or ~/.cache/fl_sketch.

  >>> digits = load('digits')
  >>> digits.train['x'].shape, digits.test['x'].shape
  ((1437, 8, 8, 1), (360, 8, 8, 1))
  """
  if name == 'digits':
    return _digits()
  root = data_folder(data_dir)
  version = _locate(name, root)
  cache = cache_folder() / f'{name}-{version.name}.npz'
  if not cache.exists():
    _LOG.info('Decoding %s from %s, once; takes seconds.', name, version)
    splits = {s: _decode(name, root, version, s) for s in _SPLITS}
    named: Any = {f'{s}_{k}': splits[s][k] for s in splits for k in 'xy'}
    np.savez(content := io.BytesIO(), **named)
    cache.parent.mkdir(parents=True, exist_ok=True)
    files.write(cache, content.getvalue())
  with cache.open('rb') as file, np.load(file) as arrays:  # checks their CRC
    train, test = ({k: arrays[f'{s}_{k}'] for k in 'xy'} for s in _SPLITS)
  return Dataset(name, train, test, 100 if name == 'cifar100' else 10)


def cache_folder() -> pathlib.Path:
  """Return the folder of what is decoded or made once."""
  # An empty variable counts as unset, as in the XDG rules.
  folder = os.environ.get('FL_SKETCH_CACHE') or '~/.cache/fl_sketch'
  return pathlib.Path(folder).expanduser()


def data_folder(data_dir: PathLike | None) -> pathlib.Path:
  """Return `data_dir`, or by default that of tensorflow-datasets."""
  default = os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  return pathlib.Path(data_dir or default).expanduser()


def _digits() -> Dataset:
  # Importing scikit-learn takes longer than all else that a start imports.
  spec = importlib.util.find_spec('sklearn')
  if spec is None or spec.origin is None:
    raise DataError('The digits come with scikit-learn: install it.')
  folder = pathlib.Path(spec.origin).parent
  table = np.loadtxt(folder / 'datasets/data/digits.csv.gz', delimiter=',')
  x, y = table[:, :-1], table[:, -1].astype(np.int32)
  x = np.rint(x.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
  # Every fifth of a shuffle sorted by label: a fifth of each class.
  order = np.random.Generator(np.random.Philox(0)).permutation(len(y))
  order = order[np.argsort(y[order], kind='stable')]
  is_test = np.zeros(len(y), bool)
  is_test[order[::5]] = True
  train, test = ({'x': x[m], 'y': y[m]} for m in (~is_test, is_test))
  return Dataset('digits', train, test, num_classes=10)


def _locate(name: str, root: pathlib.Path) -> pathlib.Path:
  # Or tensorflow-datasets would search buckets on the network.
  versions = [p.parent for p in root.glob(f'{name}/*.*.*/dataset_info.json')]
  number = lambda text: int(text) if text.isdigit() else -1
  versions.sort(key=lambda p: [*map(number, p.name.split('.'))])
  if not versions:
    raise DataError(
      f'No dataset {name!r} in {root / name}. With TensorFlow and a network, '
      f'run `tfds build {name} --data_dir=DIR --file_format=array_record`; '
      'here set --data_dir=DIR.'
    )
  return versions[-1]


def _decode(name: str, root, folder: pathlib.Path, split: str) -> Arrays:
  with extras.needed('data'):
    import tensorflow_datasets as tfds
  shards = folder / f'{name}-{split}.array_record*'
  try:
    source: Any = tfds.data_source(
      f'{name}:{folder.name}', split=split, data_dir=root, download=False
    )
    rows = source.__getitems__(range(len(source)))  # 2-3x faster than a loop
    x = np.stack([row['image'] for row in rows])
    y = np.array([row['label'] for row in rows], np.int32)
  except (ImportError, MemoryError):  # as without pillow: the data are not bad
    raise
  except Exception as error:  # readers and decoders raise errors of all types
    where = f'cannot be read from {shards}: {error}'
    raise DataError(f'Dataset {name!r} {where}') from error
  examples, expected = len(y), _EXAMPLES[name][_SPLITS.index(split)]
  if examples != expected:
    raise DataError(f'{examples=} must be {expected} in {shards}.')
  return {'x': x, 'y': y}
