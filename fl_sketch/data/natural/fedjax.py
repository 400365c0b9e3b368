"""Reads fedjax's SQLite: federated_data(client_id, data, num_examples)."""

from collections.abc import Iterator
import pathlib
from typing import Any
import zlib

from fl_sketch.data.natural import records
from fl_sketch.data.natural.records import TEST, TRAIN, Records
from fl_sketch.data.sources import DataError
from flax import serialization


def sqlite(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME_train.sqlite and, after it, NAME_test.sqlite beside it.

  Of each client `data` has the columns in Flax's msgpack, compressed by zlib.
  """
  stem, _, split = path.stem.rpartition('_')
  if split != 'train':
    raise DataError(f'{path} is not called NAME_train.sqlite.')
  yield from _of_file(path, TRAIN)
  if (test := path.with_name(f'{stem}_test.sqlite')).exists():
    yield from _of_file(test, TEST)


def _of_file(path, split) -> Iterator[Records]:
  damage = zlib.error, SyntaxError  # of NumPy's types
  query = 'SELECT client_id, data, num_examples FROM federated_data'
  with records.sqlite(path, {'federated_data'}, *damage) as base:
    for client, data, count in base.execute(f'{query} ORDER BY rowid'):
      columns: Any = serialization.msgpack_restore(zlib.decompress(data))
      name = client.decode() if isinstance(client, bytes) else str(client)
      lengths = isinstance(columns, dict) and {*map(len, columns.values())}
      if lengths != {count}:
        raise DataError(
          f'{path} must have {count} examples of client {name!r}.'
        )
      yield Records(name, split, columns)
