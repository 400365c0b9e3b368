"""Reads tables with a column of clients: Parquet and CSV, rows in any order."""

from collections.abc import Iterator
import itertools
import pathlib

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras

SUFFIXES = '.parquet', '.csv', '.tsv'
_ROWS = 4096  # of a batch
_TESTS = 'test', 'validation', 'valid', 'val'
_SPLITS = {'train': TRAIN} | dict.fromkeys(_TESTS, TEST)


def rows(
  path: pathlib.Path, client: str, split: str | None = None
) -> Iterator[Records]:
  """Reads a table, or the tables of a folder, in a stream.

  Of a folder the files whose names begin with train, test or val are of these
  splits; either all of them do, or none. `client` and `split` are columns; that
  of splits has 'train', 'test', 'val', 'valid' or 'validation'.
  """
  with extras.needed('natural'):
    import pyarrow as pa
    from pyarrow import csv, dataset
  texts = csv.ConvertOptions(column_types={client: pa.string()})  # as 007
  of = lambda delimiter: dataset.CsvFileFormat(
    csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    convert_options=texts,
  )
  formats = {'.parquet': 'parquet', '.csv': of(','), '.tsv': of('\t')}
  for file, of_file in _files(path):
    with reading(file, pa.ArrowException):
      table = dataset.dataset(file, format=formats[file.suffix])
      names = table.schema.names
      for name in filter(None, (client, split)):
        if name not in names:
          raise DataError(f'{file} has columns {names}, not {name!r}.')
      for batch in table.to_batches(batch_size=_ROWS):
        columns = {name: batch.column(name).to_pylist() for name in names}
        yield from _runs(columns, client, split, of_file, file)


def _files(path) -> list[tuple[pathlib.Path, str]]:
  if path.is_file():
    return [(path, TRAIN)]
  files = [x for x in sorted(path.iterdir()) if x.suffix in SUFFIXES]
  if not files:
    raise DataError(f'{path} has no file {[*SUFFIXES]}.')
  begins = lambda x: [v for k, v in _SPLITS.items() if x.name.startswith(k)]
  splits = [next(iter(begins(x)), None) for x in files]
  if None in splits and {*splits} != {None}:
    raise DataError(
      f'{files[splits.index(None)]} must begin with one of '
      f'{[*_SPLITS]}, as other files of the folder do.'
    )
  found = [(x, s or TRAIN) for x, s in zip(files, splits, strict=True)]
  return sorted(found, key=lambda pair: pair[1] == TEST)


def _runs(columns, client, split, of_file, file) -> Iterator[Records]:
  owners = columns.pop(client)
  splits = [of_file] * len(owners)
  if split is not None:
    named = [str(x) for x in columns.pop(split)]
    if odd := {*named} - _SPLITS.keys():
      raise DataError(
        f'{file} has {split}={min(odd)!r}, not one of {[*_SPLITS]}.'
      )
    splits = [_SPLITS[x] for x in named]
  at = 0
  for (owner, part), run in itertools.groupby(zip(owners, splits, strict=True)):
    size = len([*run])
    if owner is None or owner == '':
      raise DataError(f'{file} has rows without a client.')
    owner = owner.decode() if isinstance(owner, bytes) else str(owner)
    some = slice(at, at + size)
    yield Records(owner, part, {k: x[some] for k, x in columns.items()})
    at += size
