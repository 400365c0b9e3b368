"""Reads the JSON of LEAF (arXiv:1812.01097): {users, num_samples, user_data}.

Users may be split between files, and those of train/ and test/ may differ.
"""

from collections.abc import Iterator
import json
import pathlib

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError

_FIELDS = {'users', 'user_data'}
# LEAF leaves out this many texts between training and test, so that no letter
# is in both, and still counts them in num_samples of the test.
_GAP = 79


def json_files(path: pathlib.Path) -> Iterator[Records]:
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
