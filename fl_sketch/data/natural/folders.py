"""Reads CSV files of (user_id, image_id, class) beside folders of JPEGs.

The layout of iNaturalist and Landmarks by user (Hsu et al., arXiv:2003.08082):
federated_train.csv or NAME_train.csv, and test.csv, which has no users.
"""

from collections.abc import Iterator
import csv
import pathlib

from fl_sketch.data.natural.records import PUBLIC, TRAIN, Records, reading
from fl_sketch.data.sources import DataError

_FIELDS = {'user_id', 'image_id', 'class'}
_AT_ONCE = 64  # images in one record


def images(path: pathlib.Path) -> Iterator[Records]:
  """Reads PATH/*train*.csv, and the images that it names, below PATH.

  Raises:
    DataError: there is no such file, or an image is missing.
  """
  tables = sorted(path.glob('*train*.csv'))
  if len(tables) != 1:
    raise DataError(f'Expected one *train*.csv in {path}, found {tables}.')
  found = {
    x.stem: x
    for suffix in ('jpg', 'jpeg', 'JPG', 'png')
    for x in path.rglob(f'*.{suffix}')
  }
  for table in (tables[0], path / 'test.csv'):
    if table.exists():
      split = TRAIN if table == tables[0] else PUBLIC
      yield from _of_table(table, split, found)


def _of_table(table, split, found) -> Iterator[Records]:
  rows: list[tuple[str, bytes, int]] = []
  with reading(table, ValueError, UnicodeDecodeError), table.open() as file:
    reader = csv.DictReader(file)
    names = set(reader.fieldnames or ())
    missing = _FIELDS - names - ({'user_id'} if split == PUBLIC else set())
    if missing:
      raise DataError(f'Expected columns {sorted(missing)} in {table}.')
    for row in reader:
      image = found.get(row['image_id'])
      if image is None:
        raise DataError(f'No image {row["image_id"]!r} of {table}.')
      one = row.get('user_id') or '', image.read_bytes(), int(row['class'])
      if rows and (one[0] != rows[0][0] or len(rows) == _AT_ONCE):
        yield _record(rows, split)
        rows = []
      rows.append(one)
    if rows:
      yield _record(rows, split)


def _record(rows, split) -> Records:
  columns = {'image': [x for _, x, _ in rows], 'label': [y for *_, y in rows]}
  return Records(rows[0][0], split, columns)
