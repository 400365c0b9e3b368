"""Reads the client data of TensorFlow Federated, and what fedjax makes of it.

HDF5 has /examples/CLIENT/COLUMN, a file for each split; SQLite, often packed by
LZMA, has a row for each example, a tf.train.Example. That of fedjax has a row
for each client: federated_data(client_id, data, num_examples).
"""

from collections.abc import Iterator, Mapping
import contextlib
import itertools
import lzma
import pathlib
import shutil
import tempfile
from typing import Any
import zlib

from fl_sketch.data.natural import records
from fl_sketch.data.natural.records import AT_ONCE, ODD, TEST, TRAIN, Records
from fl_sketch.data.sources import DataError
from flax import serialization
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
import numpy as np

# The first that there is; SQLite has Stack Overflow's as heldout.
_TESTS = 'test', 'held_out', 'heldout'
_TABLES = {'examples', 'client_metadata'}
Value = np.ndarray | list[bytes]
# The fields of each message, numbered from 1, as in
# tensorflow/core/example/feature.proto; all repeated: a missing one is empty.
_MESSAGES = {
  'Bytes': {'value': 'TYPE_BYTES'}, 'Floats': {'value': 'TYPE_FLOAT'},
  'Integers': {'value': 'TYPE_INT64'},
  'Feature': {'bytes': 'Bytes', 'floats': 'Floats', 'integers': 'Integers'},
  'Entry': {'name': 'TYPE_BYTES', 'feature': 'Feature'},
  'Features': {'entries': 'Entry'}, 'Example': {'features': 'Features'},
}  # fmt: skip


def hdf5(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME_train.h5, with NAME_test.h5 or else NAME_held_out.h5 beside it.

  `path` is of training. What a client holds out follows what it trains on.
  """
  stem = path.stem.removesuffix('_train')
  tests = [path.with_name(f'{stem}_{name}.h5') for name in _TESTS]
  files = [path, *[x for x in tests if x.exists()][:1]]
  with contextlib.ExitStack() as stack:
    found = []
    for x in files:
      file = stack.enter_context(records.hdf5(x))
      if not isinstance(group := file.get('examples'), Mapping):
        raise DataError(f'{x} has {[*file]}, not /examples.')
      found.append((group, x))
    clients = dict.fromkeys(client for group, _ in found for client in group)
    for client in clients:
      for split, (group, file) in zip((TRAIN, TEST), found, strict=False):
        if client in group:
          with records.reading(file):
            columns = dict(group[client].items())
            yield from records.parts(client, split, columns, file)


def sqlite(path: pathlib.Path, digits: bool = False) -> Iterator[Records]:
  """Reads NAME.sqlite, or NAME.sqlite.lzma.

  The latter is unpacked to a folder for temporary files, which TMPDIR names.
  `digits` reads the splits `digits_only_...` of EMNIST, which others leave out.
  """
  with (
    _unpacked(path) as plain,
    records.sqlite(path, _TABLES, unpacked=plain) as base,
  ):
    yield from _of_base(base, path, digits)


def _of_base(base, path, digits) -> Iterator[Records]:
  query = 'SELECT split_name, client_id, num_examples FROM client_metadata'
  counts = {tuple(owner): count for *owner, count in base.execute(query)}
  splits = _splits({split for split, _ in counts}, path, digits)
  # In one pass: the table may have no index.
  query = 'SELECT split_name, client_id, serialized_example_proto FROM examples'
  for owner, run in itertools.groupby(base.execute(query), lambda x: x[:2]):
    split, client = owner
    while split in splits and (some := [*itertools.islice(run, AT_ONCE)]):
      counts[owner] = counts.get(owner, 0) - len(some)
      parsed = [parse(x) for *_, x in some]
      columns = {k: [x[k] for x in parsed] for k in parsed[0]}
      yield Records(client, splits[split], columns)
  for (split, client), missing in counts.items():
    if split in splits and missing:
      raise DataError(
        f'There are {missing} too few examples of {client!r} in {split!r} of '
        f'{path}.'
      )


def _splits(names, path, digits) -> dict[str, str]:
  mine = sorted(x for x in names if x.startswith('digits') == digits)
  train = next((x for x in mine if x.endswith('train')), None)
  if train is None:
    raise DataError(
      f'There is no {"digits_only_" * digits}train in {path}, which has '
      f'{sorted(names)}.'
    )
  family = train.removesuffix('train')
  held = [family + x for x in _TESTS if family + x in names][:1]
  return {train: TRAIN} | dict.fromkeys(held, TEST)


@contextlib.contextmanager
def _unpacked(path):
  if path.suffix != '.lzma':
    yield path
    return
  with tempfile.TemporaryDirectory() as folder:
    plain = pathlib.Path(folder) / path.stem
    with records.reading(path, lzma.LZMAError), lzma.open(path) as packed:
      with plain.open('wb') as file:
        shutil.copyfileobj(packed, file, 2**24)
    yield plain


def parse(content: bytes) -> dict[str, Value]:
  """Returns the features of a serialised tf.train.Example by name.

  >>> parse(bytes.fromhex('0a0d0a0b0a017912061a040a02ac02'))
  {'y': array([300])}

  Raises:
    ValueError: it is none.
  """
  try:
    (features,) = _EXAMPLE.FromString(content).features
    return {x.name[-1].decode(): _value(x.feature) for x in features.entries}
  except (DecodeError, *ODD) as error:
    raise ValueError(f'An example is damaged: {error!r}.') from error


def _value(feature) -> Value:
  for x in feature[-1:]:
    if x.bytes:
      return [*x.bytes[-1].value]
    if x.floats:
      return np.array(x.floats[-1].value, np.float32)
    if x.integers:
      return np.array(x.integers[-1].value, np.int64)
  return np.array([], np.int64)


def _example() -> Any:
  file = descriptor_pb2.FileDescriptorProto(name='example.proto')
  for message, fields in _MESSAGES.items():
    added = file.message_type.add(name=message)
    for number, (name, kind) in enumerate(fields.items(), start=1):
      of = {'type' if kind.startswith('TYPE_') else 'type_name': kind}
      added.field.add(name=name, number=number, label='LABEL_REPEATED', **of)
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(pool.FindMessageTypeByName('Example'))


_EXAMPLE = _example()


def fedjax(path: pathlib.Path) -> Iterator[Records]:
  """Reads fedjax's NAME_train.sqlite and, after it, NAME_test.sqlite beside it.

  Of each client `data` has the columns in Flax's msgpack, compressed by zlib.
  """
  test = path.with_name(f'{path.stem.removesuffix("_train")}_test.sqlite')
  damage = zlib.error, SyntaxError  # of NumPy's types
  query = 'SELECT client_id, data, num_examples FROM federated_data'
  for file, split in ((path, TRAIN), (test, TEST))[: 1 + test.exists()]:
    with records.sqlite(file, {'federated_data'}, *damage) as base:
      for client, data, count in base.execute(f'{query} ORDER BY rowid'):
        columns: Any = serialization.msgpack_restore(zlib.decompress(data))
        name = client.decode() if isinstance(client, bytes) else str(client)
        lengths = isinstance(columns, dict) and {*map(len, columns.values())}
        if lengths != {count}:
          text = f'must have {count} examples of client {name!r}'
          raise DataError(f'{file} {text}.')
        yield Records(name, split, columns)
