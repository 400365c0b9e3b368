"""Reads the client data of TensorFlow Federated: HDF5, and SQLite of examples.

HDF5 has /examples/CLIENT/COLUMN, a file for each split; SQLite, often packed by
LZMA, has a row for each example, a tf.train.Example.
"""

from collections.abc import Iterator
import contextlib
import itertools
import lzma
import pathlib
import shutil
import sqlite3
import tempfile

from fl_sketch.data.natural import examples
from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras

_SPLITS = {'train': TRAIN, 'test': TEST, 'held_out': TEST}
_AT_ONCE = 256  # samples of a client in one record


def hdf5(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME_train.h5 and, of each client, NAME_test.h5 beside it.

  Args:
    path: of the file of the training split.

  Raises:
    DataError: a file is not of this layout.
  """
  with extras.needed('natural'):
    import h5py

  stem, _, split = path.stem.rpartition('_')
  if split != 'train':
    raise DataError(f'Expected a file NAME_train.h5, not {path}.')
  held_out = [
    path.with_name(f'{stem}_{name}.h5') for name in ('test', 'held_out')
  ]
  with contextlib.ExitStack() as stack, reading(path, KeyError, RuntimeError):
    files = [(TRAIN, path), *((TEST, x) for x in held_out if x.exists())]
    opened = [(s, stack.enter_context(h5py.File(x, 'r'))) for s, x in files]
    for (_, file), (_, name) in zip(opened, files, strict=True):
      if 'examples' not in file:
        raise DataError(f'Expected /examples in {name}, found {[*file]}.')
    for client in opened[0][1]['examples']:
      for split, file in opened:
        if (group := file['examples'].get(client)) is not None:
          yield from _of_group(client, split, group)


def _of_group(client, split, group) -> Iterator[Records]:
  lengths = {name: len(x) for name, x in group.items()}
  if len({*lengths.values()}) != 1:
    raise DataError(
      f'Expected columns of one length of client {client!r}, got {lengths}.'
    )
  for first in range(0, max(lengths.values()), _AT_ONCE):
    part = slice(first, first + _AT_ONCE)
    yield Records(client, split, {name: x[part] for name, x in group.items()})


def sqlite(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME.sqlite, or NAME.sqlite.lzma, which is unpacked to a folder.

  Of several pairs of splits, as `all_train` and `digits_only_train`, the first
  in alphabetical order is read.

  Raises:
    DataError: the file is not of this layout.
  """
  with _unpacked(path) as plain, reading(path, sqlite3.Error, lzma.LZMAError):
    uri = f'{plain.absolute().as_uri()}?mode=ro'
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as base:
      found = {x for (x,) in base.execute('SELECT name FROM sqlite_master')}
      if not {'examples', 'client_metadata'} <= found:
        raise DataError(
          f"Expected tables 'examples' and 'client_metadata' in {path}, found "
          f'{sorted(found)}.'
        )
      yield from _of_base(base, path)


def _of_base(base, path):
  names = [
    x
    for (x,) in base.execute('SELECT DISTINCT split_name FROM client_metadata')
  ]
  families = sorted(
    {x.removesuffix('train') for x in names if x.endswith('train')}
  )
  if not families:
    raise DataError(f'Expected a split NAME_train in {path}, found {names}.')
  splits = {families[0] + k: v for k, v in _SPLITS.items()}
  clients = base.execute(
    'SELECT client_id, split_name, num_examples FROM client_metadata'
  ).fetchall()
  rows = 'SELECT serialized_example_proto FROM examples '
  rows += 'WHERE split_name = ? AND client_id = ?'
  for client, split, count in clients:
    if split not in splits:
      continue
    protos = (x for (x,) in base.execute(rows, (split, client)))
    total = 0
    while some := list(itertools.islice(protos, _AT_ONCE)):
      total += len(some)
      parsed = [examples.parse(x) for x in some]
      columns = {k: [x[k] for x in parsed] for k in parsed[0]}
      yield Records(client, splits[split], columns)
    if total != count:
      raise DataError(
        f'Expected {count} examples of {client!r} in {path}, not {total}.'
      )


@contextlib.contextmanager
def _unpacked(path):
  if path.suffix != '.lzma':
    yield path
    return
  with tempfile.TemporaryDirectory() as folder:
    plain = pathlib.Path(folder) / path.stem
    with reading(path, lzma.LZMAError), lzma.open(path) as packed:
      with plain.open('wb') as file:
        shutil.copyfileobj(packed, file, 2**24)
    yield plain
