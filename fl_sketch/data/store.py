"""Memory-maps the arrays of all clients, for populations larger than memory.

The samples are stored client by client, so that one short array has their
owners::

  store.json   shapes, dtypes, sizes and digests of the arrays; sums of pixels
  checked.json times of the files when they last agreed with their digests
  offsets.npy  int64[population + 1]; client i holds samples
               offsets[i] to offsets[i + 1] - 1
  x.npy        uint8[samples, ...]
  y.npy        labels, integers[samples]; any other array by its name
  test_x.npy   and so on: the test examples, which belong to no client
"""

from collections.abc import Iterable, Mapping
import contextlib
import errno
import json
import os
import pathlib
import shutil
from typing import Any, NamedTuple
import uuid

from fl_sketch.data import store_digests
from fl_sketch.data.pixels import Pixels
from fl_sketch.data.ragged import Partition
from fl_sketch.data.sources import Arrays, DataError
from fl_sketch.utils import digests
import numpy as np
import tqdm

FORMAT = 2  # 1 had no digests
_MOST = 2**31 - 1  # samples: batches are int32 indices
# What a store.json raises that is not as `write` made it.
_DAMAGE = KeyError, TypeError, AttributeError, ArithmeticError, ValueError


class Store(NamedTuple):
  """The memory-mapped arrays of all clients.

  Attributes:
    train: leaves [samples, ...], memory-mapped, client by client.
    test: the same, of the test examples.
    offsets: int64[population + 1], memory-mapped.
    num_classes: labels are 0 to num_classes - 1.
    scale: mean and std of x / 255 over the samples of all clients.
  """

  train: Arrays
  test: Arrays
  offsets: np.ndarray
  num_classes: int
  scale: dict[str, float]

  @property
  def partition(self) -> Partition:
    """The partition of the store's samples over its clients."""
    return Partition(None, self.offsets)


def write(
  folder: str | os.PathLike,
  chunks: Iterable[tuple[np.ndarray, Arrays]],
  test: Arrays,
  num_classes: int,
  population: int | None = None,
):
  """Writes a store atomically, with one chunk of clients in memory at a time.

  It shows a bar if stderr is a terminal.

  >>> import tempfile
  >>> data = {'x': np.zeros((3, 2), np.uint8), 'y': np.array([1, 0, 1])}
  >>> with tempfile.TemporaryDirectory() as parent:
  ...   write(f'{parent}/two', [(np.array([1, 2]), data)], data, num_classes=2)
  ...   print(open(f'{parent}/two').partition.sizes)
  [1 2]

  Args:
    folder: must not exist.
    chunks: of any number of clients each: their sizes, int[clients], and their
      arrays, leaves [sum of sizes, ...], client by client. 'x' is uint8, 'y'
      holds labels.
    test: the same arrays of the test examples.
    num_classes: number of labels.
    population: clients of all chunks, for the bar; None if it is unknown.

  Raises:
    ValueError: arrays do not fit together, or a client has no sample.
    FileExistsError: the folder exists.
    DataError: there is no permission to write it.
  """
  folder = pathlib.Path(folder).expanduser()
  if folder.exists():
    raise FileExistsError(f'Expected {folder} not to exist.')
  aside = folder.with_name(f'{folder.name}.{uuid.uuid4().hex[:8]}')
  try:
    aside.mkdir(parents=True)
  except (PermissionError, NotADirectoryError) as error:
    raise DataError(f'{folder} cannot be written: {error}.') from error
  bar = tqdm.tqdm(
    desc=folder.name,
    total=population,
    unit='client',
    unit_scale=True,
    disable=None,
    mininterval=0.5,
  )
  try:
    with bar:
      about = _fill(aside, chunks, test, num_classes, bar)
    (aside / 'store.json').write_text(json.dumps(about, indent=2))
    store_digests.note_times(aside, about['sha256'])
    _rename(aside, folder)
  finally:
    shutil.rmtree(aside, ignore_errors=True)


def open(folder: str | os.PathLike) -> Store:
  """Opens a store; memory-maps its arrays and reads only its offsets.

  A file whose time has changed, as that of a copy, is read whole, once.

  Args:
    folder: written by `write`.

  Raises:
    DataError: the folder is missing, not complete, changed since it was
      written, or of another format, or there is no permission to read it.
  """
  folder = pathlib.Path(folder).expanduser()
  about = _about(folder / 'store.json')
  try:
    population, samples = about['population'], about['samples']
    offsets = _mapped(folder / 'offsets.npy', **about['offsets'])
    train, test = (
      {
        name: _mapped(folder / f'{prefix}{name}.npy', **expected)
        for name, expected in about[split].items()
      }
      for split, prefix in (('train', ''), ('test', 'test_'))
    )
    num_classes, scale = about['num_classes'], Pixels(**about['pixels']).scale
    recorded = dict(about['sha256'])
    if num_classes < 1 or not {'x', 'y'} <= train.keys() == test.keys():
      raise ValueError(f'{num_classes=} and arrays {sorted(train)}')
    expected = int(population) + 1
  except _DAMAGE as error:
    raise DataError(f'{folder}/store.json is damaged: {error!r}') from error
  ends, lengths = (offsets[0], offsets[-1]), {len(x) for x in train.values()}
  rising = ends == (0, samples) and bool((np.diff(offsets) > 0).all())
  if not rising or len(offsets) != expected or lengths != {samples}:
    raise DataError(
      f'Expected {folder}/offsets.npy to rise from 0 to {samples=} in '
      f'{population=} steps, none of them empty.'
    )
  arrays = train | {f'test_{name}': x for name, x in test.items()}
  store_digests.check(folder, arrays | {'offsets': offsets}, recorded)
  return Store(train, test, offsets, num_classes, scale)


def is_mapped(arrays: Mapping[str, Any]) -> bool:
  """Whether arrays are memory-mapped, and must not be placed on a device.

  >>> is_mapped({'x': np.zeros(3)})
  False
  """
  return any(isinstance(x, np.memmap) for x in arrays.values())


def _fill(folder, chunks, test, num_classes, bar) -> dict[str, Any]:
  """Writes all arrays; returns the content of store.json."""
  _check(test, test, num_classes)
  offsets, pixels = [np.zeros(1, np.int64)], Pixels()
  with contextlib.ExitStack() as stack:
    files = {}
    for name, x in test.items():
      np.save(folder / f'test_{name}.npy', x)
      file = (folder / f'{name}.npy').open('wb')
      files[name] = stack.enter_context(file)
      _head(file, x, 0)
    for sizes, arrays in chunks:
      sizes = np.asarray(sizes).astype(np.int64, casting='same_kind')
      _check(arrays, test, num_classes, sizes)
      offsets.append(offsets[-1][-1] + np.cumsum(sizes))
      if (samples := int(offsets[-1][-1])) > _MOST:
        raise ValueError(f'Expected {samples=} <= {_MOST}.')
      pixels = pixels.plus(arrays['x'])
      for name, file in files.items():
        file.write(np.ascontiguousarray(arrays[name]).data)
      bar.update(len(sizes))
    if len(offsets) == 1:
      raise ValueError('Expected at least one client.')
    for name, file in files.items():
      _head(file, test[name], samples)
  np.save(folder / 'offsets.npy', np.concatenate(offsets))

  def described(name):
    path = folder / f'{name}.npy'
    x, size = np.load(path, mmap_mode='r'), path.stat().st_size
    return {'shape': list(x.shape), 'dtype': x.dtype.str, 'nbytes': size}

  return {
    'format': FORMAT,
    'population': sum(map(len, offsets)) - 1,
    'samples': samples,
    'num_classes': num_classes,
    'pixels': pixels._asdict(),
    'offsets': described('offsets'),
    'train': {name: described(name) for name in test},
    'test': {name: described(f'test_{name}') for name in test},
    'sha256': {
      path.stem: digests.of_array(np.load(path, mmap_mode='r'))
      for path in sorted(folder.glob('*.npy'))
    },
  }


def _head(file, like, rows: int):
  """Writes a .npy header for `rows` rows of the shape and dtype of `like`.

  NumPy pads it to the same length for any number of rows, so that it can be
  overwritten after the last row.
  """
  file.seek(0)
  descr = np.lib.format.dtype_to_descr(like.dtype)
  shape = (rows, *like.shape[1:])
  about = {'descr': descr, 'fortran_order': False, 'shape': shape}
  np.lib.format.write_array_header_1_0(file, about)


def _check(arrays, like, num_classes, sizes=None):
  """Refuses arrays unlike those of the test examples, or of other sizes."""
  kinds, expected = (
    {k: (x.dtype.str, x.shape[1:]) for k, x in xs.items()}
    for xs in (arrays, like)
  )
  if kinds != expected:
    raise ValueError(f'Expected {kinds} == {expected}, those of the test.')
  for name in kinds:
    if name in ('offsets', 'mask') or name.startswith('test_'):
      raise ValueError(f'Expected another name of an array than {name!r}.')
  kind, (dtype, shape) = kinds.get('x', ('',))[0], kinds.get('y', ('', None))
  if kind != '|u1' or dtype[1:2] not in ('i', 'u') or shape != ():
    raise ValueError(f"Expected 'x' of uint8 and 'y' of integers in {kinds}.")
  if sizes is not None and not (len(sizes) and sizes.min() >= 1):
    raise ValueError(f'Expected sizes >= 1 of one client or more, got {sizes}.')
  lengths = {len(x) for x in arrays.values()}
  samples = len(arrays['y']) if sizes is None else int(sizes.sum())
  if lengths != {samples} or not samples:
    raise ValueError(f'Expected arrays of {samples=}, got lengths {lengths}.')
  low, high = arrays['y'].min(), arrays['y'].max()
  if not 0 <= low <= high < num_classes:
    raise ValueError(
      f'Expected 0 <= labels < {num_classes=}, got {low} to {high}.'
    )


def _rename(aside, folder):
  try:
    aside.rename(folder)
  except OSError as error:
    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
      raise
    raise FileExistsError(f'Another process has written {folder}.') from error


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
      f'Expected format={version} == {FORMAT} in {path}: write the store again.'
    )
  return about


def _mapped(path, shape, dtype, nbytes) -> np.ndarray:
  size = path.stat().st_size if path.exists() else 0
  if size != nbytes:
    raise DataError(f'Expected {path} of {size} bytes to have {nbytes}.')
  try:
    x = np.load(path, mmap_mode='r')
  except ValueError as error:
    raise DataError(f'{path} is damaged: {error}') from error
  except OSError as error:
    raise DataError(f'{path} cannot be read: {error}.') from error
  if [*x.shape] != shape or x.dtype.str != dtype:
    raise DataError(
      f'Expected {path} of {x.dtype.str}{[*x.shape]} to be of {dtype}{shape}.'
    )
  return x
