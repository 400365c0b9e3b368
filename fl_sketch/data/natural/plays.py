"""Reads plays, of which a speaker's name stands in a line of its own."""

from collections.abc import Iterator
import pathlib
import re

from fl_sketch.data.natural.records import TEST, TRAIN, Records, reading
from fl_sketch.data.sources import DataError

_NAME = re.compile(r'[A-Z][^:\n]*:')
_HELD_OUT = 0.1  # of a speaker's letters, the last ones
_LEAST = 1000  # letters of a speaker who is a client


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
