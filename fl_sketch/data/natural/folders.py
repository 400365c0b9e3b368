"""Reads CSV files of (user_id, image_id, class) beside folders of JPEGs.

The layout of iNaturalist and Landmarks by user (Hsu et al., arXiv:2003.08082):
federated_train.csv or NAME_train.csv, and test.csv, which has no users.
"""

from collections.abc import Iterator
import csv
import itertools
import pathlib

from fl_sketch.data.natural.records import PUBLIC, TRAIN, Records, reading
from fl_sketch.data.sources import DataError

_FIELDS = {'user_id', 'image_id', 'class'}
_AT_ONCE = 64  # images in one record


def images(path: pathlib.Path) -> Iterator[Records]:
  """Reads samples from PATH/*train*.csv and the image files that it names."""
  train = _table(path)
  found: dict[str, list[pathlib.Path]] = {}
  for suffix in 'jpg', 'jpeg', 'JPG', 'png':
    for x in path.rglob(f'*.{suffix}'):
      found.setdefault(x.stem, []).append(x)
  test = path / 'test.csv'
  yield from _of_table(train, _FIELDS, TRAIN, found)
  if test.exists():
    yield from _of_table(test, _FIELDS - {'user_id'}, PUBLIC, found)


def has_images(path: pathlib.Path) -> bool:
  """Whether there is a file of the training part that names images."""
  for table in path.glob('*train*.csv'):
    with reading(table), table.open(encoding='utf-8') as file:
      if 'image_id' in file.readline():
        return True
  return False


def count_classes(path: pathlib.Path) -> int:
  """Returns the number of classes of the training part."""
  rows = _rows(_table(path), _FIELDS)
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
      if not (row['class'] or '').isdecimal():
        raise DataError(
          f'Line {reader.line_num} of {table} has no class but '
          f'{row["class"]!r}.'
        )
      if not all(row[field] for field in fields):
        raise DataError(
          f'Line {reader.line_num} of {table} must have {sorted(fields)}.'
        )
      yield row


def _of_table(table, fields, split, found) -> Iterator[Records]:
  def content(name) -> bytes:
    if len(files := found.get(name, [])) != 1:
      places = [*map(str, files)]
      raise DataError(f'{table} needs one image {name!r}, found {places}.')
    with reading(files[0]):
      return files[0].read_bytes()

  user = lambda row: row.get('user_id') or ''
  for client, rows in itertools.groupby(_rows(table, fields), user):
    while some := [*itertools.islice(rows, _AT_ONCE)]:
      images = [content(row['image_id']) for row in some]
      labels = [int(row['class']) for row in some]
      yield Records(client, split, {'image': images, 'label': labels})
