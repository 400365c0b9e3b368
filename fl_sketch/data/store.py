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

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import itertools
import json
import mmap
import pathlib
import shutil
from typing import Any, NamedTuple
import uuid

from fl_sketch.data import own_arrays
from fl_sketch.data.partitions import Partition
from fl_sketch.data.sources import Arrays, DataError, PathLike, Pixels
from fl_sketch.utils import digests
import numpy as np

_RESERVED = 'offsets', 'held', 'ids', 'mask'  # names of no array
_MOST = 2**31 - 1  # samples: batches are int32 indices


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

  Raises DataError if the folder has no store, or a file another type or size.
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
    raise DataError(f'No store in {path.parent}: {error}.') from error
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
  return DataError(f'{path} was changed: write the store again.')


def digest(x: np.ndarray, *, read: bool = False) -> str:
  """Return the SHA-256 digest of an array's bytes; a store has it on record."""
  if not isinstance(x, np.memmap) or not isinstance(x.base, mmap.mmap):
    return digests.of_array(x)  # not a whole file
  path = pathlib.Path(x.filename or '')
  about = path.with_name('store.json')
  arrays = _about(about)['arrays'] if about.exists() else {}
  if path.stem not in arrays:
    return digests.of_array(x)
  *_, recorded = arrays[path.stem]
  if read and digests.of_array(x) != recorded:
    raise _changed(path)
  return recorded


class Chunk(NamedTuple):
  """Some clients, one after another."""

  sizes: np.ndarray  # int[clients], samples that each trains on, >= 1
  train: Arrays  # leaves [sum of sizes, ...], client by client
  held_sizes: np.ndarray | None = None  # int[clients], of those held out, >= 0
  held_out: Arrays | None = None  # leaves [sum of held_sizes, ...], likewise
  ids: Sequence[str] | None = None  # names of the clients


def write(
  folder: PathLike,
  chunks: Iterable[Chunk | tuple[np.ndarray, Arrays]],
  test: Arrays | None,
  num_classes: int | None,
  tokenizer: str | None = None,
):
  """Write a store atomically, with one chunk of clients in memory at a time.

  All chunks have the same arrays, types and shapes; all have held-out samples
  (or ids), or none has. `test`: the same arrays, of examples of no client;
  None: the clients' held-out samples. `num_classes` is of labels 'y', None if
  they are no classes; for `tokenizer` see `sources.Dataset`.

  Raises ValueError if arrays do not fit together or are not finite, or a client
  has no sample, and OSError if the folder exists or cannot be written.
  """
  folder = pathlib.Path(folder).expanduser()
  if folder.exists():
    raise FileExistsError(f'{folder} exists; name another folder.')
  aside = folder.with_name(f'{folder.name}.{uuid.uuid4().hex[:8]}')
  try:
    aside.mkdir(parents=True)
    about = _fill(aside, chunks, test, num_classes)
    about['tokenizer'] = tokenizer
    content = {'about': about, 'sha256': digests.of_text(json.dumps(about))}
    (aside / 'store.json').write_text(json.dumps(content, indent=2))
    aside.rename(folder)
  finally:
    shutil.rmtree(aside, ignore_errors=True)


class Columns:
  """Arrays whose rows are appended to files, PREFIXname.npy."""

  def __init__(self, closing, folder: pathlib.Path, prefix: str, like: Arrays):
    self.like, self.rows = like, 0
    self.sizes: list[int] = []  # rows of each client
    self.files = {
      name: closing.enter_context((folder / f'{prefix}{name}.npy').open('wb'))
      for name in like
    }
    self._write_headers()

  def _write_headers(self):
    """Write the number of rows; NumPy pads all headers to one length."""
    for name, file in self.files.items():
      header = {
        'descr': np.lib.format.dtype_to_descr(self.like[name].dtype),
        'fortran_order': False,
        'shape': (self.rows, *self.like[name].shape[1:]),
      }
      file.seek(0)
      np.lib.format.write_array_header_1_0(file, header)

  def append(self, arrays: Arrays, sizes, num_classes: int | None, names=None):
    """Append the samples of clients, or of a test set, to the files."""
    samples = int(np.sum(sizes))
    _check(arrays, self.like, samples, num_classes)
    owners = Partition(None, np.append(0, np.cumsum(sizes)), names)
    own_arrays.check_finite(arrays, None if names is None else owners)
    self.sizes.extend(sizes)
    self.rows += samples
    if self.rows > _MOST:
      raise ValueError(f'samples={self.rows} must be <= {_MOST}.')
    for name, file in self.files.items():
      file.write(np.ascontiguousarray(arrays[name]).data)

  def finish(self) -> Arrays:
    """Close the files, and return their arrays, memory-mapped."""
    self._write_headers()
    for file in self.files.values():
      file.close()
    names = self.files.items()
    return {name: np.load(file.name, mmap_mode='r') for name, file in names}


def _fill(folder, chunks, test, num_classes) -> dict[str, Any]:
  chunks = (Chunk(*chunk) for chunk in chunks)
  first = next(chunks, None)
  if first is None:
    raise ValueError('A store needs at least one client.')
  like, ids, pixels = first.train if test is None else test, [], Pixels()
  with contextlib.ExitStack() as files:
    train, tests = (Columns(files, folder, x, like) for x in ('', 'test_'))
    if test is not None:
      tests.append(test, [len(next(iter(test.values())))], num_classes)
    for chunk in itertools.chain([first], chunks):
      if (chunk.held_out is None) != (test is not None):
        raise ValueError('Set test, or held_out in every chunk, not both.')
      sizes = _checked_sizes(chunk.sizes, 1)
      clients = len(train.sizes)
      names = chunk.ids or range(clients, clients + len(sizes))
      train.append(chunk.train, sizes, num_classes, names)
      if chunk.held_out is not None:
        held_sizes = _checked_sizes(chunk.held_sizes, 0)
        tests.append(chunk.held_out, held_sizes, num_classes, names)
      ids += chunk.ids or []
      x = chunk.train.get('x')
      if x is not None and x.dtype == np.uint8:
        pixels = pixels.plus(x)
    if not tests.rows:
      raise ValueError('A store needs at least one test example.')
    train.finish()
    tests.finish()
  if ids and len(ids) != len(train.sizes):
    raise ValueError('Set ids in every chunk, or in none.')
  np.save(folder / 'offsets.npy', np.append(0, np.cumsum(train.sizes)))
  if test is None:
    np.save(folder / 'held.npy', np.append(0, np.cumsum(tests.sizes)))
  if ids:
    np.save(folder / 'ids.npy', np.array([x.encode() for x in ids]))
  arrays = {}
  for path in sorted(folder.glob('*.npy')):
    x = np.load(path, mmap_mode='r')
    arrays[path.stem] = [x.dtype.str, [*x.shape], digests.of_array(x)]
  return {
    'train': [*train.like], 'num_classes': num_classes, 'arrays': arrays,
    'pixels': pixels._asdict() if pixels.count else None,
  }  # fmt: skip


def _checked_sizes(sizes, least: int) -> np.ndarray:
  sizes = np.asarray(sizes).astype(np.int64, casting='same_kind')
  if not (len(sizes) and sizes.min() >= least):
    raise ValueError(f'{sizes=} must be >= {least}, and not empty.')
  return sizes


def _check(arrays, like, samples: int, num_classes: int | None):
  got, expected = (
    {name: (x.dtype, x.shape[1:]) for name, x in some.items()}
    for some in (arrays, like)
  )
  if got != expected:
    raise ValueError(f'Arrays {got} must equal {expected}.')
  for name, x in arrays.items():
    if name in _RESERVED or name.startswith('test_') or x.dtype.hasobject:
      raise ValueError(f'Array {name!r} has a reserved name, or objects.')
    if len(x) != samples:
      raise ValueError(f'Array {name!r} has length {len(x)}, not {samples=}.')
  if num_classes is None or not samples:
    return
  y = arrays.get('y')
  if y is None or y.dtype.kind not in 'iu':
    raise ValueError(f"'y' must have integers with {num_classes=}.")
  least = 0 if y.ndim == 1 else -1  # padding of sequences
  if not least <= y.min() <= y.max() < num_classes:
    raise ValueError(f'Labels y must be >= {least} and < {num_classes=}.')
