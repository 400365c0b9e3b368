"""Reads the client data of TensorFlow Federated: HDF5, and SQLite of examples.

HDF5 has /examples/CLIENT/COLUMN, a file for each split; SQLite, often packed by
LZMA, has a row for each example, a tf.train.Example.
"""

from collections.abc import Iterator
import contextlib
import itertools
import lzma
import operator
import pathlib
import shutil
import sqlite3
import tempfile
from typing import Any

from fl_sketch.data.natural import examples, records
from fl_sketch.data.natural.records import AT_ONCE, TEST, TRAIN, Records, parts
from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras

# The first that there is; SQLite has Stack Overflow's as heldout.
_TESTS = 'test', 'held_out', 'heldout'
_TABLES = {'examples', 'client_metadata'}


def hdf5(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME_train.h5, with NAME_test.h5 or else NAME_held_out.h5 beside it.

  `path` is of the training split. What a client holds out follows what it
  trains on.
  """
  stem, _, split = path.stem.rpartition('_')
  if split != 'train':
    raise DataError(f'{path} is not called NAME_train.h5.')
  tests = [path.with_name(f'{stem}_{name}.h5') for name in _TESTS]
  files = [path, *[x for x in tests if x.exists()][:1]]
  with contextlib.ExitStack() as stack:
    train, *rest = [_examples(x, stack) for x in files]
    (held,) = rest or [{}]
    for client in train:
      yield from _of_client(client, TRAIN, train, files[0])
      if client in held:
        yield from _of_client(client, TEST, held, files[1])
    for client in held:
      if client not in train:
        yield from _of_client(client, TEST, held, files[1])


def _examples(path, stack) -> Any:
  with extras.needed('natural'):
    import h5py

  with records.reading(path):
    file = stack.enter_context(h5py.File(path, 'r'))
    if not isinstance(group := file.get('examples'), h5py.Group):
      raise DataError(f'{path} has {[*file]}, not /examples.')
  return group


def _of_client(client, split, group, path) -> Iterator[Records]:
  with records.reading(path):
    yield from parts(client, split, dict(group[client].items()), path)


def sqlite(path: pathlib.Path, digits: bool = False) -> Iterator[Records]:
  """Reads NAME.sqlite, or NAME.sqlite.lzma.

  The latter is unpacked to a folder for temporary files, which TMPDIR names.
  `digits` reads the splits `digits_only_...` of EMNIST, which others leave out.
  """
  with _unpacked(path) as plain, records.reading(path, sqlite3.Error):
    uri = f'{plain.absolute().as_uri()}?mode=ro'
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as base:
      found = {x for (x,) in base.execute('SELECT name FROM sqlite_master')}
      if not found >= _TABLES:
        raise DataError(
          f'{path} has tables {sorted(found)}, not {sorted(_TABLES)}.'
        )
      yield from _of_base(base, path, digits)


def _of_base(base, path, digits) -> Iterator[Records]:
  counts = {
    (split, client): count
    for split, client, count in base.execute(
      'SELECT split_name, client_id, num_examples FROM client_metadata'
    )
  }
  splits = _splits({split for split, _ in counts}, path, digits)
  # In one pass: the table may have no index.
  rows = base.execute(
    'SELECT split_name, client_id, serialized_example_proto FROM examples'
  )
  for owner, run in itertools.groupby(rows, key=operator.itemgetter(0, 1)):
    split, client = owner
    while split in splits and (some := [*itertools.islice(run, AT_ONCE)]):
      counts[owner] = counts.get(owner, 0) - len(some)
      parsed = [examples.parse(x) for *_, x in some]
      columns = {k: [x[k] for x in parsed] for k in parsed[0]}
      yield Records(client, splits[split], columns)
  for (split, client), missing in counts.items():
    if split in splits and missing:
      raise DataError(
        f'There are {missing} too few examples of {client!r} in {split!r} of '
        f'{path}.'
      )


def _splits(names, path, digits) -> dict[str, str]:
  """The names of the splits that are read."""
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
