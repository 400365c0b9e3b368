"""Memory-map the arrays of all clients, for populations larger than memory.

Samples are stored client by client, so that one short array has their owners::

  store.json   names, dtypes, shapes and digests of the arrays; sums of pixels
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

from fl_sketch.data.ragged import Partition
from fl_sketch.data.sources import Arrays, DataError, PathLike, Pixels
from fl_sketch.data.store_writer import Chunk, write
from fl_sketch.utils import digests
import numpy as np

__all__ = ['Chunk', 'Store', 'digest', 'is_mapped', 'open', 'write']


class Store(NamedTuple):
  """The memory-mapped arrays of all clients."""

  train: Arrays  # leaves [samples, ...], client by client
  test: Arrays  # the same, of the test examples
  offsets: np.ndarray  # int64[population + 1]
  num_classes: int | None  # labels are 0 to num_classes - 1
  scale: dict[str, float]  # mean and std of x / 255 if x is uint8, or 0 and 1
  # int64[population + 1], offsets into the test examples that clients hold out;
  # None if the test examples belong to no client.
  held_out: np.ndarray | None = None
  ids: np.ndarray | None = None  # bytes[population], names in UTF-8
  tokenizer: str | None = None  # of texts, see `sources.Dataset`

  @property
  def partition(self) -> Partition:
    """The partition of the store's samples over its clients."""
    return Partition(None, self.offsets)


def open(folder: PathLike) -> Store:
  """Open a store of `write`: map its arrays, and read none of them.

  Raises DataError if the folder has no store, or a file has another type or
  size than was written. `digest` compares what the files contain.
  """
  folder = pathlib.Path(folder).expanduser()
  about = _about(folder / 'store.json')
  arrays = {}
  for name, (dtype, shape, _) in about['arrays'].items():
    arrays[name] = _mapped(folder / f'{name}.npy', dtype, shape)
  scale = {'mean': 0.0, 'std': 1.0}
  if about['pixels']:
    scale = Pixels(**about['pixels']).scale
  return Store(
    {name: arrays[name] for name in about['train']},
    {name: arrays[f'test_{name}'] for name in about['train']},
    arrays['offsets'], about['num_classes'], scale, arrays.get('held'),
    arrays.get('ids'), about['tokenizer'],
  )  # fmt: skip


def is_mapped(arrays: Mapping[str, Any]) -> bool:
  """Return whether arrays are memory-mapped; devices must not hold them."""
  return any(isinstance(x, np.memmap) for x in arrays.values())


def _about(path) -> dict[str, Any]:
  try:
    content = json.loads(path.read_text())
    if content['sha256'] == digests.of_text(json.dumps(content['about'])):
      return content['about']
  except OSError as error:
    raise DataError(
      f'No store of clients in {path.parent}: {error}.'
    ) from error
  except (ValueError, KeyError, TypeError):
    pass
  raise DataError(f'{path} is damaged: write the store again.')


def _mapped(path, dtype, shape) -> np.ndarray:
  try:
    x = np.load(path, mmap_mode='r')
  except Exception as error:  # NumPy raises errors of all types
    raise DataError(f'{path} cannot be read: {error!r}.') from error
  if x.dtype.str != dtype or [*x.shape] != shape:
    raise _changed(path)
  return x


def _changed(path) -> DataError:
  return DataError(
    f'{path} was changed after it was written: write the store again.'
  )


def digest(x: np.ndarray, *, read: bool = False) -> str:
  """Return the SHA-256 digest of an array's bytes; a store has it on record."""
  recorded = _recorded(x)
  if recorded is None:
    return digests.of_array(x)
  if read and digests.of_array(x) != recorded:
    raise _changed(getattr(x, 'filename', None))
  return recorded


def _recorded(x) -> str | None:
  """The digest that an array had when it was written, if it is a store's."""
  if not isinstance(x, np.memmap) or not isinstance(x.base, mmap.mmap):
    return None  # not a whole file
  path = pathlib.Path(x.filename or '')
  about = path.with_name('store.json')
  if not about.exists():
    return None
  return _about(about)['arrays'].get(path.stem, [None])[-1]
