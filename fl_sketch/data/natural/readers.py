"""Reads the JSON of LEAF, pfl-research's HDF5, plays, images and tables.

LEAF (arXiv:1812.01097) has {users, num_samples, user_data}: users may be split
between files, and those of train/ and test/ may differ. pfl-research has
/SPLIT/USER/COLUMN and /metadata. In a play the name of who speaks stands in a
line of its own. CSV files of (user_id, image_id, class) beside folders of JPEGs
are the layout of iNaturalist and Landmarks by user (Hsu et al.,
arXiv:2003.08082): federated_train.csv or NAME_train.csv, and test.csv, which
has no users. Tables, Parquet or CSV, have a column of clients.
"""

from collections.abc import Callable, Iterator
import csv
import itertools
import json
import pathlib
import re
from typing import Any

from fl_sketch.data.natural import records
from fl_sketch.data.natural.records import PUBLIC, TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError
from fl_sketch.utils import extras
import numpy as np

_FIELDS = {'users', 'user_data'}
# LEAF leaves out this many texts between training and test, so that no letter
# is in both, and still counts them in num_samples of the test.
_GAP = 79
_SPARSE = 'labels_row', 'labels_col'
_NAME = re.compile(r'[A-Z][^:\n]*:')
_HELD_OUT = 0.1  # of a speaker's letters, the last ones
_LEAST = 1000  # letters of a speaker who is a client
_COLUMNS = {'user_id', 'image_id', 'class'}  # of the CSV of images
_IMAGES = 64  # in one record
SUFFIXES = '.parquet', '.csv', '.tsv'
_ROWS = 4096  # of a batch
_TESTS = 'test', 'validation', 'valid', 'val'
_SPLITS = {'train': TRAIN} | dict.fromkeys(_TESTS, TEST)


def leaf(path: pathlib.Path) -> Iterator[Records]:
  """Reads PATH/train/*.json and PATH/test/*.json, in the order of names."""
  for split in TRAIN, TEST:
    for file in sorted((path / split).glob('*.json')):
      with reading(file), file.open(encoding='utf-8') as text:
        yield from _of_file(json.load(text), split, file)


def _of_file(content, split, file) -> Iterator[Records]:
  if not content.keys() >= _FIELDS:
    raise DataError(f'{file} must have {sorted(_FIELDS)}.')
  sizes = {}
  for user, data in content['user_data'].items():
    if not (isinstance(data, dict) and {'x', 'y'} <= data.keys()):
      raise DataError(f"{file} must have 'x' and 'y' of user {user!r}.")
    sizes[user], labels = len(data['x']), len(data['y'])
    if sizes[user] != labels:
      raise DataError(
        f'{file} has {labels} labels of user {user!r}, not {sizes[user]}.'
      )
    if labels:
      yield Records(user, split, data)
  counts = content.get('num_samples', sizes.values())
  for user, count in zip(content['users'], counts, strict=True):
    gap = count - _GAP if split == TEST else count
    if sizes.get(user) not in (count, gap):
      raise DataError(
        f'num_samples={count} of user {user!r} in {file}, which has '
        f'{sizes.get(user)}.'
      )


def pfl(path: pathlib.Path) -> Iterator[Records]:
  """Reads the users of /train, then those of /test or, without one, /val."""
  with records.hdf5(path) as file:
    held = next((x for x in ('test', 'val') if x in file), None)
    if 'train' not in file:
      raise DataError(f'{path} has {[*file]}, not /train.')
    for name, split in (('train', TRAIN), (held, TEST)):
      for user, group in (file[name] if name else {}).items():
        found = dict(group.items())
        dense = [k for k in found if not k.endswith(('_row', '_col'))]
        columns = {k: found[k] for k in dense if found[k].shape}
        columns |= _labels(found, file)
        yield from records.parts(user, split, columns, path)


def metadata(path: pathlib.Path, name: str, parse: Callable[[Any], Any]) -> Any:
  """Reads and parses one entry of the group /metadata of an HDF5 file."""
  with records.hdf5(path) as file:
    return parse(file[f'metadata/{name}'][()])


def _labels(columns, file) -> dict[str, np.ndarray]:
  """The labels of FLAIR, places of ones in uint8[samples, labels]."""
  if not {*_SPARSE} <= columns.keys():
    return {}
  mapping = json.loads(file['metadata/label_mapping'][()])
  ones = np.zeros((len(columns['image_ids']), len(mapping)), np.uint8)
  rows, labels = (columns[x][()] for x in _SPARSE)
  if rows.shape != labels.shape or (rows < 0).any() or (labels < 0).any():
    raise ValueError(f'places {rows} and {labels} of labels')
  ones[rows, labels] = 1
  return {'labels': ones}


def speeches(path: pathlib.Path) -> Iterator[Records]:
  """Reads the speeches of each speaker, in the order of the play.

  The clients are those who speak at least 1,000 letters; the last speeches of
  each, a tenth of the letters, are the test: like LEAF's Shakespeare, offline.
  """
  file = path / 'input.txt' if path.is_dir() else path
  with reading(file):
    text = file.read_text(encoding='utf-8')
  spoken: dict[str, list[str]] = {}
  for block in text.split('\n\n'):
    name, _, speech = block.strip('\n').partition('\n')
    if _NAME.fullmatch(name) and speech:
      spoken.setdefault(name[:-1], []).append(speech)
  clients = {k: v for k, v in spoken.items() if sum(map(len, v)) >= _LEAST}
  if not clients:
    raise DataError(f'{file} has no speaker with {_LEAST} letters or more.')
  for name, speeches in clients.items():
    room = (1 - _HELD_OUT) * sum(map(len, speeches))
    ends = [sum(map(len, speeches[: i + 1])) for i in range(len(speeches))]
    kept = max(1, sum(end <= room for end in ends))
    yield Records(name, TRAIN, {'text': speeches[:kept]})
    if speeches[kept:]:
      yield Records(name, TEST, {'text': speeches[kept:]})


def images(path: pathlib.Path) -> Iterator[Records]:
  """Reads samples from PATH/*train*.csv and the image files that it names."""
  train, test = _table(path), path / 'test.csv'
  found: dict[str, list[pathlib.Path]] = {}
  for suffix in 'jpg', 'jpeg', 'JPG', 'png':
    for x in path.rglob(f'*.{suffix}'):
      found.setdefault(x.stem, []).append(x)
  user = lambda row: row.get('user_id') or ''
  public = _COLUMNS - {'user_id'}
  for table, split, fields in (train, TRAIN, _COLUMNS), (test, PUBLIC, public):
    rows = _rows(table, fields) if table.exists() else ()
    for client, run in itertools.groupby(rows, user):
      while some := [*itertools.islice(run, _IMAGES)]:
        images = [_content(row['image_id'], found, table) for row in some]
        labels = [int(row['class']) for row in some]
        yield Records(client, split, {'image': images, 'label': labels})


def has_images(path: pathlib.Path) -> bool:
  """Whether there is a file of the training part that names images."""
  for table in path.glob('*train*.csv'):
    with reading(table), table.open(encoding='utf-8') as file:
      if 'image_id' in file.readline():
        return True
  return False


def count_classes(path: pathlib.Path) -> int:
  """Returns the number of classes of the training part."""
  rows = _rows(_table(path), _COLUMNS)
  return 1 + max((int(row['class']) for row in rows), default=0)


def _table(path) -> pathlib.Path:
  tables = sorted(path.glob('*train*.csv'))
  if len(tables) != 1:
    raise DataError(f'{path} must have one *train*.csv, not {tables}.')
  return tables[0]


def _rows(table, fields) -> Iterator[dict[str, str]]:
  with reading(table, csv.Error), table.open(encoding='utf-8', newline='') as f:
    reader = csv.DictReader(f)
    if missing := fields - {*(reader.fieldnames or ())}:
      raise DataError(f'{table} has no columns {sorted(missing)}.')
    for row in reader:
      where = f'Line {reader.line_num} of {table}'
      if not (row['class'] or '').isdecimal():
        raise DataError(f'{where} has no class but {row["class"]!r}.')
      if not all(row[field] for field in fields):
        raise DataError(f'{where} must have {sorted(fields)}.')
      yield row


def _content(name, found, table) -> bytes:
  if len(files := found.get(name, [])) != 1:
    places = [*map(str, files)]
    raise DataError(f'{table} needs one image {name!r}, found {places}.')
  with reading(files[0]):
    return files[0].read_bytes()


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
