"""Reads the JSON of LEAF (arXiv:1812.01097): {users, num_samples, user_data}.

A file is read whole, of the many that LEAF splits its data into. Users may be
split between files, and those of train/ and test/ may differ.
"""

from collections.abc import Iterator
import json
import pathlib

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError

_FIELDS = {'users', 'user_data'}


def json_files(path: pathlib.Path) -> Iterator[Records]:
  """Reads PATH/train/*.json and PATH/test/*.json, in the order of their names.

  Raises:
    DataError: a file is not of this layout.
  """
  files = [
    (s, x) for s in (TRAIN, TEST) for x in sorted((path / s).glob('*.json'))
  ]
  if not any(split == TRAIN for split, _ in files):
    raise DataError(f'Expected *.json in {path}/train.')
  for split, file in files:
    with reading(file, ValueError):
      content = json.loads(file.read_text())
    if not (isinstance(content, dict) and content.keys() >= _FIELDS):
      raise DataError(f'Expected {sorted(_FIELDS)} in {file}.')
    yield from _of_file(content, split, file)


def _of_file(content, split, file):
  counts = content.get('num_samples', [None] * len(content['users']))
  for user, count in zip(content['users'], counts, strict=True):
    data = content['user_data'].get(user)
    if data is None or not {'x', 'y'} <= data.keys():
      raise DataError(f"Expected 'x' and 'y' of user {user!r} in {file}.")
    sizes = {len(data['x']), len(data['y'])}
    if sizes != {count if count is not None else len(data['x'])}:
      raise DataError(
        f'Expected {count} samples of user {user!r} in {file}, got {sizes}.'
      )
    yield Records(user, split, data)
