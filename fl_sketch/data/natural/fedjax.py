"""Reads fedjax's SQLite: federated_data(client_id, data, num_examples)."""

from collections.abc import Iterator
import contextlib
import pathlib
import sqlite3
from typing import Any
import zlib

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError
from flax import serialization

_TABLE = 'federated_data'


def sqlite(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME_train.sqlite and, after it, NAME_test.sqlite beside it.

  Of each client `data` is compressed by zlib and has the columns in msgpack, as
  Flax writes it.
  """
  stem, _, split = path.stem.rpartition('_')
  if split != 'train':
    raise DataError(f'{path} is not called NAME_train.sqlite.')
  yield from _of_file(path, TRAIN)
  if (test := path.with_name(f'{stem}_test.sqlite')).exists():
    yield from _of_file(test, TEST)


def _of_file(path, split) -> Iterator[Records]:
  damage = sqlite3.Error, zlib.error, SyntaxError  # of NumPy's types
  uri = f'{path.absolute().as_uri()}?mode=ro'
  with (
    reading(path, *damage),
    contextlib.closing(sqlite3.connect(uri, uri=True)) as base,
  ):
    found = {x for (x,) in base.execute('SELECT name FROM sqlite_master')}
    if _TABLE not in found:
      raise DataError(f'{path} has tables {sorted(found)}, not {_TABLE!r}.')
    rows = base.execute(
      f'SELECT client_id, data, num_examples FROM {_TABLE} ORDER BY rowid'
    )
    for client, data, count in rows:
      columns: Any = serialization.msgpack_restore(zlib.decompress(data))
      name = client.decode() if isinstance(client, bytes) else str(client)
      lengths = isinstance(columns, dict) and {*map(len, columns.values())}
      if lengths != {count}:
        raise DataError(
          f'{path} must have {count} examples of client {name!r}.'
        )
      yield Records(name, split, columns)
