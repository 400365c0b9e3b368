"""Memory-maps the arrays of all clients, for populations larger than memory.

Samples are stored client by client, so that one short array has their owners::

  store.json   shapes, dtypes, sizes and digests of the arrays; sums of pixels
  checked.json times of the files when they last agreed with their digests
  offsets.npy  int64[population + 1]; client i holds samples
               offsets[i] to offsets[i + 1] - 1
  x.npy        inputs [samples, ...] of any type
  y.npy        labels, integers [samples] or, of sequences, [samples, ...], in
               which -1 is padding; any other array by its name
  test_x.npy   and so on: the test examples
  held.npy     int64[population + 1], offsets into the test examples of those
               that clients hold out, where each of them belongs to a client
  ids.npy      bytes[population], names of the clients, where they have any
"""

from collections.abc import Mapping
import json
import mmap
import pathlib
from typing import Any, NamedTuple
import warnings

from fl_sketch.data import store_writer
from fl_sketch.data.ragged import Partition
from fl_sketch.data.sources import Arrays, DataError, PathLike, Pixels
from fl_sketch.data.store_writer import FORMAT, Chunk, write
from fl_sketch.utils import digests, files
import numpy as np

__all__ = ['Chunk', 'Store', 'digest', 'is_mapped', 'open', 'write']
# What a store.json raises that is not as `write` made it.
_DAMAGE = KeyError, TypeError, AttributeError, ArithmeticError, ValueError


class Store(NamedTuple):
  """The memory-mapped arrays of all clients.

  `held_out` has as `offsets` those of the test examples that clients hold out,
  possibly none; it is None where they belong to no client.
  """

  train: Arrays  # leaves [samples, ...], client by client
  test: Arrays  # the same, of the test examples
  offsets: np.ndarray  # int64[population + 1]
  num_classes: int | None  # labels are 0 to num_classes - 1
  scale: dict[str, float]  # mean and std of x / 255 if x is uint8, or 0 and 1
  held_out: np.ndarray | None = None  # int64[population + 1]
  ids: np.ndarray | None = None  # bytes[population], names in UTF-8
  tokenizer: str | None = None  # of texts, see `sources.Dataset`

  @property
  def partition(self) -> Partition:
    """The partition of the store's samples over its clients."""
    return Partition(None, self.offsets)


def open(folder: PathLike) -> Store:
  """Opens a store of `write`; maps its arrays and reads only its offsets.

  A file whose time has changed, as that of a copy, is read whole, once.

  Raises:
    DataError: the folder is missing, not complete, changed since it was
      written, or of another format, or there is no permission to read it.
  """
  folder = pathlib.Path(folder).expanduser()
  about, arrays = _about(folder / 'store.json'), {}

  def mapped(name, expected):
    arrays[name] = _mapped(folder / f'{name}.npy', **expected)
    return arrays[name]

  try:
    population, samples = about['population'], about['samples']
    offsets = mapped('offsets', about['offsets'])
    train = {k: mapped(k, x) for k, x in about['train'].items()}
    test = {k: mapped(f'test_{k}', x) for k, x in about['test'].items()}
    held, ids = (about[k] and mapped(k, about[k]) for k in ('held', 'ids'))
    num_classes, scale = about['num_classes'], {'mean': 0.0, 'std': 1.0}
    if about['pixels']:
      scale = Pixels(**about['pixels']).scale
    recorded = dict(about['sha256'])
    if not (train and train.keys() == test.keys()):
      raise ValueError(f'arrays {sorted(train)} and {sorted(test)}')
    expected = int(population) + 1
  except _DAMAGE as error:
    raise DataError(f'{folder}/store.json is damaged: {error!r}') from error
  ends, lengths = (offsets[0], offsets[-1]), {len(x) for x in train.values()}
  rising = ends == (0, samples) and bool((np.diff(offsets) > 0).all())
  if not rising or len(offsets) != expected or lengths != {samples}:
    raise DataError(
      f'{folder}/offsets.npy must rise from 0 to {samples=} in '
      f'{population=} steps, none of them empty.'
    )
  _check(folder, arrays, recorded)
  more = held, ids, about.get('tokenizer')
  return Store(train, test, offsets, num_classes, scale, *more)


def is_mapped(arrays: Mapping[str, Any]) -> bool:
  """Whether arrays are memory-mapped, and must not be placed on a device.

  >>> is_mapped({'x': np.zeros(3)})
  False
  """
  return any(isinstance(x, np.memmap) for x in arrays.values())


def _about(path) -> dict[str, Any]:
  try:
    about = json.loads(path.read_text())
    version = about['format']
  except PermissionError as error:
    raise DataError(f'{path} cannot be read: {error}.') from error
  except OSError as error:
    raise DataError(f'No store of clients in {path.parent}.') from error
  except (ValueError, KeyError, TypeError) as error:
    raise DataError(f'{path} is damaged: {error!r}') from error
  if version != FORMAT:
    raise DataError(
      f'{path} has format={version}, not {FORMAT}: write the store again.'
    )
  return about


def _mapped(path, shape, dtype, nbytes) -> np.ndarray:
  size = path.stat().st_size if path.exists() else 0
  if size != nbytes:
    raise DataError(f'{path} has {size} bytes, not {nbytes}.')
  try:
    x = np.load(path, mmap_mode='r')
  except ValueError as error:
    raise DataError(f'{path} is damaged: {error}') from error
  except OSError as error:
    raise DataError(f'{path} cannot be read: {error}.') from error
  if [*x.shape] != shape or x.dtype.str != dtype:
    raise DataError(f'{path} is {x.dtype.str}{[*x.shape]}, not {dtype}{shape}.')
  return x


def digest(x: np.ndarray, *, read: bool = False) -> str:
  """Returns the SHA-256 digest of an array's bytes; a store's has it on record.

  To `read` an array of a store compares it with its record.
  """
  if (recorded := _recorded(x)) is None:
    return digests.of_array(x)
  if read:
    _compare(x, recorded)
  return recorded


def _check(folder: pathlib.Path, arrays: Arrays, recorded: Mapping[str, str]):
  """Compares arrays whose files have other times than those of checked.json.

  Memory-mapped arrays and recorded digests are by the names of files.
  """
  try:
    checked = dict(json.loads((folder / 'checked.json').read_text()))
  except (OSError, ValueError, TypeError):
    checked = {}  # it saves time, nothing else
  if (now := store_writer.times(folder, arrays)) == checked:
    return
  for name, x in arrays.items():
    if now[name] != checked.get(name):
      _compare(x, recorded.get(name))
  try:
    files.replace(folder / 'checked.json', store_writer.times(folder, arrays))
  except files.SaveError as error:
    warnings.warn(f'{error} Each start reads {folder} whole.', stacklevel=3)


def _recorded(x) -> str | None:
  """The digest that an array had when it was written, if it is a store's."""
  if not isinstance(x, np.memmap) or not isinstance(x.base, mmap.mmap):
    return None  # not a whole file
  path = pathlib.Path(x.filename or '')
  about = path.with_name('store.json')
  if not about.exists():
    return None
  return json.loads(about.read_text())['sha256'].get(path.stem)


def _compare(x, recorded):
  if digests.of_array(x) != recorded:
    raise DataError(
      f'{x.filename} was changed after it was written: write the store again.'
    )
