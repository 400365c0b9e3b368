"""Reads the JSON of LEAF (arXiv:1812.01097): {users, num_samples, user_data}.

A file may be large: it is read in a stream, user by user. Users may be split
between files, and those of train/ and test/ may differ.
"""

from collections.abc import Iterator
import json
import pathlib
from typing import Any, TextIO

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError

_FIELDS = {'users', 'user_data'}
_BLOCK = 2**20  # letters
# LEAF leaves out this many texts between training and test, so that no letter
# is in both, and still counts them in num_samples of the test.
_GAP = 79
_DECODER = json.JSONDecoder()


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
    with reading(file), file.open(encoding='utf-8') as text:
      yield from _of_file(_Values(text), split, file)


def _of_file(values, split, file) -> Iterator[Records]:
  found: dict[str, Any] = {}
  for field in values.members():
    if field != 'user_data':
      found[field] = values.read()
      continue
    found[field] = {}
    for user in values.members():
      data = values.read()
      if not (isinstance(data, dict) and {'x', 'y'} <= data.keys()):
        raise DataError(f"Expected 'x' and 'y' of user {user!r} in {file}.")
      found[field][user] = sizes = [len(data['x']), len(data['y'])]
      if sizes[0] != sizes[1]:
        raise DataError(
          f'Expected {sizes[0]} labels of user {user!r} in {file}: {sizes[1]}.'
        )
      if sizes[0]:
        yield Records(user, split, data)
  if not found.keys() >= _FIELDS:
    raise DataError(f'Expected {sorted(_FIELDS)} in {file}.')
  sizes = {user: size for user, (size, _) in found['user_data'].items()}
  counts = found.get('num_samples', sizes.values())
  for user, count in zip(found['users'], counts, strict=True):
    gap = count - _GAP if split == TEST else count
    if sizes.get(user) not in (count, gap):
      raise DataError(
        f'Expected {count} samples of user {user!r} in {file}, got '
        f'{sizes.get(user)}.'
      )


class _Values:
  """The values of a JSON file, one after another."""

  def __init__(self, file: TextIO):
    self._file, self._text, self._at = file, '', 0

  def members(self) -> Iterator[str]:
    """The names of an object; the value of each is to be read before the next.

    Raises:
      ValueError: there is no object, or it is damaged.
    """
    self._expect('{')
    while self._next() != '}':
      name = self.read()
      self._expect(':')
      yield name
      if self._next() != '}':
        self._expect(',')
    self._expect('}')

  def read(self) -> Any:
    """The next value."""
    self._next()
    while True:
      try:
        value, end = _DECODER.raw_decode(self._text, self._at)
      except ValueError:
        if not self._more():
          raise
        continue
      if end == len(self._text) and self._more():  # it may go on
        continue
      self._at = end
      return value

  def _expect(self, letter):
    if (found := self._next()) != letter:
      raise ValueError(f'Expected {letter!r}, found {found!r}.')
    self._at += 1

  def _next(self) -> str:
    """The next letter that is no space; goes there."""
    while True:
      while self._at < len(self._text):
        if not (letter := self._text[self._at]).isspace():
          return letter
        self._at += 1
      if not self._more():
        raise ValueError('The file ends too early.')

  def _more(self) -> bool:
    """Reads as much again as is to be decoded; false at the end."""
    rest = self._text[self._at :]
    block = self._file.read(max(_BLOCK, len(rest)))
    self._text, self._at = rest + block, 0
    return bool(block)
