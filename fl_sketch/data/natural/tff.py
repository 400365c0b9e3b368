"""Reads the client data of TensorFlow Federated: HDF5, and SQLite of examples.

HDF5 has /examples/CLIENT/COLUMN, a file for each split; SQLite, often packed by
LZMA, has a row for each example, a tf.train.Example.
"""

from collections.abc import Iterator, Mapping
import contextlib
import itertools
import lzma
import pathlib
import shutil
import tempfile

from fl_sketch.data.natural import examples, records
from fl_sketch.data.natural.records import AT_ONCE, TEST, TRAIN, Records, parts
from fl_sketch.data.sources import DataError

# The first that there is; SQLite has Stack Overflow's as heldout.
_TESTS = 'test', 'held_out', 'heldout'
_TABLES = {'examples', 'client_metadata'}


def hdf5(path: pathlib.Path) -> Iterator[Records]:
  """Reads NAME_train.h5, with NAME_test.h5 or else NAME_held_out.h5 beside it.

  `path` is of training. What a client holds out follows what it trains on.
  """
  stem, _, split = path.stem.rpartition('_')
  if split != 'train':
    raise DataError(f'{path} is not called NAME_train.h5.')
  tests = [path.with_name(f'{stem}_{name}.h5') for name in _TESTS]
  files = [path, *[x for x in tests if x.exists()][:1]]
  with contextlib.ExitStack() as stack:
    found = [(_examples(x, stack), x) for x in files]
    clients = dict.fromkeys(client for group, _ in found for client in group)
    for client in clients:
      for split, (group, file) in zip((TRAIN, TEST), found, strict=False):
        if client in group:
          with records.reading(file):
            yield from parts(client, split, dict(group[client].items()), file)


def _examples(path, stack) -> Mapping:
  file = stack.enter_context(records.hdf5(path))
  if not isinstance(group := file.get('examples'), Mapping):
    raise DataError(f'{path} has {[*file]}, not /examples.')
  return group


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
