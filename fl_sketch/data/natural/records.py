"""Records that file readers yield, in file order; a spool that orders them.

What was spooled when a program was stopped is there at its next start, which
goes on behind it: state.json says how far the files are whole.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
from typing import Any, NamedTuple

from fl_sketch.data.sources import Arrays, DataError
from fl_sketch.data.store import Chunk
from fl_sketch.utils import extras, files
import numpy as np

# What a client trains on and what it holds out; a test that is nobody's.
TRAIN, TEST, PUBLIC = 'train', 'test', 'public'
_NAMES = 'clients.jsonl'
_CLIENTS = 256  # of a chunk of the store, at most
_ROWS = 2**15  # of a chunk, about
_BLOCK = 2**22  # owners at once
_OWNER = '<i4'
# How the names in the folder begin.
_OURS = 'state.json', _NAMES, 'store', *(f'{s}.' for s in (TRAIN, TEST, PUBLIC))


class Records(NamedTuple):
  """Samples of one client, of one split."""

  client: str  # its name in the file
  split: str  # `TRAIN`, `TEST` or `PUBLIC`
  columns: Mapping[str, Any]  # the samples by name, all of one length


# path -> records, of which a client may have several. Those of this package
# raise a `DataError` that names the file where it is not of their layout.
Reader = Callable[[pathlib.Path], Iterator[Records]]
AT_ONCE = 256  # samples in one record of a reader
# What a file raises that has other things than its layout names.
ODD = AttributeError, LookupError, RuntimeError, TypeError, ValueError


@contextlib.contextmanager
def reading(path: pathlib.Path, *damage: type[Exception]) -> Iterator[None]:
  """Raises a DataError that names the file where reading it fails.

  It stands in place of an OSError, of `ODD` and of `damage`, exceptions of a
  library that mean that the file is not what it should be.
  """
  try:
    yield
  except DataError:
    raise
  except (OSError, EOFError, *ODD, *damage) as error:
    raise DataError(f'{path} cannot be read: {error!r}.') from error


@contextlib.contextmanager
def hdf5(path: pathlib.Path) -> Iterator[Any]:
  """Opens an HDF5 file to be read."""
  with extras.needed('natural'):
    import h5py
  with reading(path), h5py.File(path, 'r') as file:
    yield file


@contextlib.contextmanager
def sqlite(
  path: pathlib.Path,
  tables: set[str],
  *damage: type[Exception],
  unpacked: pathlib.Path | None = None,
) -> Iterator[sqlite3.Connection]:
  """Opens an SQLite file with these tables, possibly unpacked elsewhere."""
  uri = f'{(unpacked or path).absolute().as_uri()}?mode=ro'
  with (
    reading(path, sqlite3.Error, *damage),
    contextlib.closing(sqlite3.connect(uri, uri=True)) as base,
  ):
    found = {x for (x,) in base.execute('SELECT name FROM sqlite_master')}
    if not found >= tables:
      raise DataError(
        f'{path} has tables {sorted(found)}, not {sorted(tables)}.'
      )
    yield base


def parts(
  client: str, split: str, columns: Mapping[str, Any], path: pathlib.Path
) -> Iterator[Records]:
  """Splits columns into records of at most `AT_ONCE` samples."""
  lengths = {name: len(x) for name, x in columns.items()}
  if len({*lengths.values()}) != 1:
    raise DataError(
      f'Columns of client {client!r} in {path} have several lengths: {lengths}.'
    )
  for first in range(0, max(lengths.values()), AT_ONCE):
    some = slice(first, first + AT_ONCE)
    yield Records(client, split, {k: x[some] for k, x in columns.items()})


def column(record: Records, *names: str) -> Any:
  """The column of a record that has one of these names.

  >>> column(Records('anna', TRAIN, {'label': [1]}), 'y', 'label')
  [1]
  """
  for name in names:
    if name in record.columns:
      return record.columns[name]
  raise DataError(
    f'There is no column {" or ".join(map(repr, names))} of client '
    f'{record.client!r}, found {sorted(record.columns)}.'
  )


class Spool:
  """Files of samples that come in any order, and of the clients that own them.

  A folder of the same `source`, JSON that says what is spooled and from where,
  is gone on with; another is made anew, or refused if it has other files.
  """

  def __init__(self, folder: pathlib.Path, source: Any):
    self.folder, self._source = folder, json.loads(json.dumps(source))
    self.records = 0
    self._kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    self._rows = {TRAIN: 0, TEST: 0, PUBLIC: 0}
    self._codes: dict[str, int] = {}
    if not self._resumed():
      if folder.exists():
        if any(not x.name.startswith(_OURS) for x in folder.iterdir()):
          raise FileExistsError(f'{folder} has other files; name a new folder.')
        shutil.rmtree(folder)
      folder.mkdir(parents=True)
    self._files: dict[pathlib.Path, Any] = {}

  def add(self, client: str, split: str, arrays: Arrays):
    """Adds samples of a client, leaves [samples, ...]."""
    kinds = {k: (x.dtype.str, x.shape[1:]) for k, x in arrays.items()}
    if self._kinds and kinds != self._kinds:
      raise ValueError(
        f'Samples of client {client!r} must be like those of other clients, '
        f'{self._kinds}, not {kinds}.'
      )
    self._kinds = kinds
    self.records += 1
    (size,) = {len(x) for x in arrays.values()}
    if split != PUBLIC:
      if (code := self._codes.get(client)) is None:
        code = self._codes[client] = len(self._codes)
        line = f'{json.dumps(client)}\n'
        self._file(self.folder / _NAMES).write(line.encode())
      arrays = {'owner': np.full(size, code, _OWNER), **arrays}
    for name, x in arrays.items():
      self._file(self._path(split, name)).write(np.ascontiguousarray(x).data)
    self._rows[split] += size

  def save(self):
    """Makes what was added sure to be there after a crash."""
    for file in self._files.values():
      file.flush()
      os.fsync(file.fileno())
    names = self.folder / _NAMES
    state = {
      'source': self._source, 'records': self.records, 'rows': self._rows,
      'kinds': self._kinds,
      'names': names.stat().st_size if names.exists() else 0,
    }  # fmt: skip
    files.replace(self.folder / 'state.json', json.dumps(state))

  def close(self):
    """Closes the files to which samples are added."""
    for file in self._files.values():
      file.close()
    self._files.clear()

  def chunks(self, trained: np.ndarray, held_out: bool) -> Iterator[Chunk]:
    """Yields chunks of clients' samples, and of held-out ones if asked for."""
    names, train = [*self._codes], _Sorted(self, TRAIN)
    held = _Sorted(self, TEST) if held_out else None
    at = 0
    while at < len(trained):
      total = np.cumsum(train.sizes[trained[at : at + _CLIENTS]])
      some = trained[at : at + max(1, int(np.searchsorted(total, _ROWS)))]
      rest = {}
      if held is not None:
        rest = {'held_sizes': held.sizes[some], 'held_out': held.take(some)}
      ids = [names[i] for i in some]
      yield Chunk(train.sizes[some], train.take(some), ids=ids, **rest)
      at += len(some)

  def arrays(self, split: str) -> Arrays | None:
    """The samples of a split as they came, mapped; None without any."""
    if not self._rows[split]:
      return None
    kinds = self._kinds.items()
    return {name: self._mapped(split, name, *kind) for name, kind in kinds}

  def owner(self, split: str) -> np.ndarray:
    """The code of the client of each sample, int32[samples], mapped."""
    if not self._rows[split]:
      return np.empty(0, _OWNER)
    return self._mapped(split, 'owner', _OWNER, ())

  def sizes(self, split: str) -> np.ndarray:
    """The number of samples of each client, int64[clients]."""
    total, owner = np.zeros(len(self._codes), np.int64), self.owner(split)
    for first in range(0, len(owner), _BLOCK):
      total += np.bincount(owner[first : first + _BLOCK], minlength=len(total))
    return total

  def _mapped(self, split, name, dtype, shape) -> np.ndarray:
    shape = (self._rows[split], *shape)
    return np.memmap(self._path(split, name), dtype, 'r', shape=shape)

  def _file(self, path):
    if path not in self._files:
      self._files[path] = path.open('ab')
    return self._files[path]

  def _path(self, split, name) -> pathlib.Path:
    return self.folder / f'{split}.{name}.bin'

  def _resumed(self) -> bool:
    """Reads the state, and cuts what was written after it."""
    path = self.folder / 'state.json'
    if not path.exists():
      return False
    state = json.loads(path.read_text())
    if state['source'] != self._source:
      return False
    self.records, self._rows = state['records'], state['rows']
    self._kinds = {k: (t, tuple(s)) for k, (t, s) in state['kinds'].items()}
    if state['names']:
      os.truncate(self.folder / _NAMES, state['names'])
      lines = (self.folder / _NAMES).read_text().splitlines()
      self._codes = {json.loads(line): i for i, line in enumerate(lines)}
    for split, rows in self._rows.items():
      kinds = {'owner': (_OWNER, ()), **self._kinds}
      for name, (dtype, shape) in kinds.items():
        size = rows * int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
        if (file := self._path(split, name)).exists():
          os.truncate(file, size)
    return True


class _Sorted:
  """Reads the samples of a split from a spool, client after client."""

  def __init__(self, spool: Spool, split: str):
    owner, self.sizes = spool.owner(split), spool.sizes(split)
    self._ends = np.cumsum(self.sizes)
    # Most files have one client after another: nothing is to be sorted.
    blocks = (owner[i : i + _BLOCK + 1] for i in range(0, len(owner), _BLOCK))
    self._order = None
    if any((block[1:] < block[:-1]).any() for block in blocks):
      self._order = np.argsort(owner, kind='stable')
    self._arrays = spool.arrays(split) or {}

  def take(self, clients: np.ndarray) -> Arrays:
    """The samples of these clients, leaves [sum of sizes, ...]."""
    ends, sizes = self._ends[clients], self.sizes[clients]
    places = np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(sizes.sum())
    if self._order is not None:
      places = self._order[places]
    return {name: np.asarray(x[places]) for name, x in self._arrays.items()}
