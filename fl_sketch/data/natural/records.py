"""Records that file readers yield: samples of clients, in file order."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import pathlib
import sqlite3
from typing import Any, NamedTuple

from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras

# What a client trains on and what it holds out; a test that is nobody's.
TRAIN, TEST, PUBLIC = 'train', 'test', 'public'


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
