"""Writes a store of clients, whose files `store` describes."""

from collections.abc import Iterable, Sequence
import contextlib
import errno
import json
import pathlib
import shutil
from typing import Any, NamedTuple
import uuid

from fl_sketch.data import own_arrays
from fl_sketch.data.ragged import Partition
from fl_sketch.data.sources import Arrays, DataError, PathLike, Pixels
from fl_sketch.utils import digests, files
import numpy as np
import tqdm

FORMAT = 3  # 2 had images alone, 1 no digests
_TAKEN = 'offsets', 'held', 'ids', 'mask'  # names of no array
_MOST = 2**31 - 1  # samples: batches are int32 indices


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
  population: int | None = None,
  tokenizer: str | None = None,
):
  """Writes a store atomically, with one chunk of clients in memory at a time.

  It shows a bar if stderr is a terminal.

  >>> import tempfile
  >>> from fl_sketch.data import store
  >>> data = {'x': np.zeros((3, 2), np.uint8), 'y': np.array([1, 0, 1])}
  >>> with tempfile.TemporaryDirectory() as parent:
  ...   write(f'{parent}/two', [(np.array([1, 2]), data)], data, num_classes=2)
  ...   print(store.open(f'{parent}/two').partition.sizes)
  [1 2]

  Args:
    folder: must not exist.
    chunks: of any number of clients each; all have the same arrays, types and
      shapes, and either all or none have held-out samples, and ids.
    test: the same arrays of test examples that belong to no client; None takes
      the held-out samples of all clients.
    num_classes: number of labels 'y'; None if they are no classes.
    population: clients of all chunks, for the bar; None if it is unknown.
    tokenizer: of texts, see `sources.Dataset`.

  Raises:
    ValueError: arrays do not fit together or are not finite, or a client has no
      sample.
    FileExistsError: the folder exists.
    DataError: there is no permission to write it.
  """
  folder = pathlib.Path(folder).expanduser()
  if folder.exists():
    raise FileExistsError(f'{folder} exists; name another folder.')
  aside = folder.with_name(f'{folder.name}.{uuid.uuid4().hex[:8]}')
  try:
    aside.mkdir(parents=True)
  except (PermissionError, NotADirectoryError) as error:
    raise DataError(f'{folder} cannot be written: {error}.') from error
  try:
    with tqdm.tqdm(
      desc=folder.name, total=population, unit='client', unit_scale=True,
      disable=None, mininterval=0.5,
    ) as bar:  # fmt: skip
      about = _fill(aside, chunks, test, num_classes, bar)
    about['tokenizer'] = tokenizer
    (aside / 'store.json').write_text(json.dumps(about, indent=2))
    files.replace(aside / 'checked.json', times(aside, about['sha256']))
    rename(aside, folder)
  finally:
    shutil.rmtree(aside, ignore_errors=True)


class _Columns:
  """Arrays of which rows are appended to files, PREFIXname.npy."""

  def __init__(self, folder: pathlib.Path, prefix: str, like: Arrays):
    self.like, self.rows, self._files = like, 0, {}
    for name, x in like.items():
      self._files[name] = (folder / f'{prefix}{name}.npy').open('wb')
      _head(self._files[name], x, 0)

  def append(self, arrays: Arrays, sizes, num_classes, names=None):
    """Adds rows, those of `sizes` clients with these names, or of a test."""
    _check(arrays, self.like, int(sizes.sum()), num_classes)
    owners = Partition(None, np.append(0, np.cumsum(sizes)), names)
    own_arrays.check_finite(arrays, None if names is None else owners)
    self.rows += int(sizes.sum())
    if self.rows > _MOST:
      raise ValueError(f'samples={self.rows} must be <= {_MOST}.')
    for name, file in self._files.items():
      file.write(np.ascontiguousarray(arrays[name]).data)

  def close(self):
    for name, file in self._files.items():
      _head(file, self.like[name], self.rows)
      file.close()


def _fill(folder, chunks, test, num_classes, bar) -> dict[str, Any]:
  """Writes all arrays; returns the content of store.json."""
  all_sizes, all_held, ids, population = [], [], [], 0
  train, tests, pixels = None, None, Pixels()
  with contextlib.ExitStack() as stack:
    for chunk in chunks:
      chunk = chunk if isinstance(chunk, Chunk) else Chunk(chunk[0], chunk[1])
      sizes = _sizes(chunk.sizes, 1)
      if train is None or tests is None:
        like = chunk.train if test is None else test
        both = (_Columns(folder, x, like) for x in ('', 'test_'))
        train, tests = map(stack.enter_context, map(contextlib.closing, both))
        if test is not None:
          rows = np.array([len(next(iter(test.values())))])
          tests.append(test, rows, num_classes)
      names = chunk.ids or range(population, population + len(sizes))
      train.append(chunk.train, sizes, num_classes, names)
      all_sizes.append(sizes)
      population += len(sizes)
      if (chunk.held_out is None) != (test is not None):
        raise ValueError(
          'Add a test or samples that clients hold out, not both.'
        )
      if chunk.held_out is not None:
        held_sizes = _sizes(chunk.held_sizes, 0)
        tests.append(chunk.held_out, held_sizes, num_classes, names)
        all_held.append(held_sizes)
      ids += chunk.ids or []
      if (x := chunk.train.get('x')) is not None and x.dtype == np.uint8:
        pixels = pixels.plus(x)
      bar.update(len(sizes))
  if train is None or tests is None or not tests.rows:
    raise ValueError('A store needs at least one client and one test example.')
  if ids and len(ids) != population:
    raise ValueError(f'There are {len(ids)} ids of {population} clients.')
  ends = lambda sizes: np.append(0, np.cumsum(np.concatenate(sizes)))
  np.save(folder / 'offsets.npy', ends(all_sizes))
  if test is None:
    np.save(folder / 'held.npy', ends(all_held))
  if ids:
    np.save(folder / 'ids.npy', np.array([x.encode() for x in ids]))
  return _about_files(folder, population, train, num_classes, pixels)


def _about_files(folder, population, train, num_classes, pixels):
  def described(name):
    path = folder / f'{name}.npy'
    if not path.exists():
      return None
    x, size = np.load(path, mmap_mode='r'), path.stat().st_size
    return {'shape': list(x.shape), 'dtype': x.dtype.str, 'nbytes': size}

  return {
    'format': FORMAT, 'population': population, 'samples': train.rows,
    'num_classes': num_classes,
    'pixels': pixels._asdict() if pixels.count else None,
    **{name: described(name) for name in ('offsets', 'held', 'ids')},
    'train': {name: described(name) for name in train.like},
    'test': {name: described(f'test_{name}') for name in train.like},
    'sha256': {
      path.stem: digests.of_array(np.load(path, mmap_mode='r'))
      for path in sorted(folder.glob('*.npy'))
    },
  }  # fmt: skip


def _head(file, like, rows: int):
  """Writes a .npy header for `rows` rows of the shape and dtype of `like`."""
  file.seek(0)  # NumPy pads all headers to one length
  descr = np.lib.format.dtype_to_descr(like.dtype)
  shape = (rows, *like.shape[1:])
  about = {'descr': descr, 'fortran_order': False, 'shape': shape}
  np.lib.format.write_array_header_1_0(file, about)


def _sizes(sizes, least: int) -> np.ndarray:
  """Sizes of clients as int64; refuses fewer samples than `least`."""
  sizes = np.asarray(sizes).astype(np.int64, casting='same_kind')
  if not (len(sizes) and sizes.min() >= least):
    raise ValueError(f'Sizes {sizes} must be >= {least}, and not empty.')
  return sizes


def _check(arrays, like, samples: int, num_classes: int | None):
  """Refuses arrays unlike the first ones, or of other sizes, and odd labels."""
  of = lambda xs: {k: (x.dtype.str, x.shape[1:]) for k, x in xs.items()}
  kinds, expected = of(arrays), of(like)
  if kinds != expected or not kinds:
    raise ValueError(f'Arrays {kinds} must be those of the test, {expected}.')
  for name, (dtype, _) in kinds.items():
    if name in _TAKEN or name.startswith('test_'):
      raise ValueError(f'An array cannot be called {name!r}.')
    if np.dtype(dtype).hasobject:
      raise ValueError(f'{name!r} must have numbers, not objects.')
  lengths = {k: len(x) for k, x in arrays.items()}
  if {*lengths.values()} != {samples}:
    raise ValueError(f'Arrays of {samples=} have lengths {lengths}.')
  if num_classes is None or not samples:
    return
  y = arrays.get('y')
  if y is None or y.dtype.kind not in 'iu':
    raise ValueError(f"'y' must have integers with {num_classes=}.")
  least = 0 if y.ndim == 1 else -1  # padding of sequences
  if not least <= y.min() <= y.max() < num_classes:
    raise ValueError(
      f'Labels must be >= {least} and < {num_classes=}, not {y.min()} to '
      f'{y.max()}.'
    )


def rename(aside: pathlib.Path, folder: pathlib.Path):
  """Gives a folder its last name; refuses that of a folder that is there."""
  try:
    aside.rename(folder)
  except OSError as error:
    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
      raise
    raise FileExistsError(f'Another process has written {folder}.') from error


def times(folder: pathlib.Path, names: Iterable[str]) -> dict[str, int]:
  """Times of the last change of the arrays' files: content of checked.json."""
  return {name: (folder / f'{name}.npy').stat().st_mtime_ns for name in names}
