"""Reads tables with a column of clients: Parquet and CSV, rows in any order."""

from collections.abc import Iterator
import itertools
import pathlib

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras

SUFFIXES = {'.parquet': 'parquet', '.csv': 'csv', '.tsv': 'csv'}
_ROWS = 4096  # of a batch
_SPLITS = {'train': TRAIN, 'test': TEST, 'validation': TEST, 'valid': TEST}


def rows(
  path: pathlib.Path, client: str, split: str | None = None
) -> Iterator[Records]:
  """Reads a table, or the tables of a folder, in a stream.

  Of a folder the files whose names begin with train, test or valid are of
  these splits.

  Args:
    path: of a file or a folder.
    client: the column of the clients.
    split: the column of the splits, 'train', 'test' or 'validation'; None if
      there is none.

  Raises:
    DataError: a file is no such table.
  """
  with extras.needed('natural'):
    from pyarrow import dataset, lib

  for file, of_file in _files(path):
    with reading(file, lib.ArrowException):
      table = dataset.dataset(file, format=SUFFIXES[file.suffix])
      names = table.schema.names
      for name in filter(None, (client, split)):
        if name not in names:
          raise DataError(f'Expected a column {name!r} in {file}: {names}.')
      for batch in table.to_batches(batch_size=_ROWS):
        columns = {name: batch.column(name).to_pylist() for name in names}
        yield from _runs(columns, client, split, of_file, file)


def _files(path) -> list[tuple[pathlib.Path, str]]:
  files = [path] if path.is_file() else sorted(path.iterdir())
  files = [x for x in files if x.suffix in SUFFIXES]
  if not files:
    raise DataError(f'Expected files {sorted(SUFFIXES)} in {path}.')
  begins = lambda x: next(
    (v for k, v in _SPLITS.items() if x.name.startswith(k)), TRAIN
  )
  found = [(x, begins(x)) for x in files]
  return sorted(found, key=lambda pair: pair[1] == TEST)


def _runs(columns, client, split, of_file, file) -> Iterator[Records]:
  """Records of the runs of rows of one client and one split."""
  owners = columns.pop(client)
  splits = [of_file] * len(owners)
  if split is not None:
    splits = [_SPLITS.get(str(x)) for x in columns.pop(split)]
    if None in splits:
      raise DataError(f'Expected {split} in {[*_SPLITS]} in {file}.')
  at = 0
  for (owner, part), run in itertools.groupby(zip(owners, splits, strict=True)):
    size = len([*run])
    if owner is None:
      raise DataError(f'Expected a client in every row of {file}.')
    some = slice(at, at + size)
    yield Records(str(owner), part, {k: x[some] for k, x in columns.items()})
    at += size
