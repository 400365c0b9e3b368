"""Read texts as tokens, from disk and never from a network.

A .tsv file has a sentence and its label in each line, before and after the last
tab, or in the columns sentence and label of a header. Any other file is a text.
Of a folder, train.tsv or train.txt is the training part, and test, dev, valid
or validation the test; of one file, its last lines are the test.
"""

import itertools
import pathlib
from typing import Annotated, NamedTuple

from fl_sketch.data import sources, tokenization
from fl_sketch.data.sources import DataError, PathLike
from fl_sketch.utils import checks, fields
import numpy as np

NAMES = ('sst2', 'text')
LENGTH = 48  # tokens of a sentence; 6 % of those of SST-2 are longer
WINDOW = 80  # tokens of a window of a text
VOCABULARY = 4000
TOKENS = 'words', 'characters'
_TESTS = 'test', 'dev', 'valid', 'validation'
_COLUMNS = 'sentence', 'label'


class Texts(NamedTuple):
  """The lines of a file."""

  lines: list[str]  # sentences, or the lines of a text with their ends
  labels: list[str] | None  # of sentences; None of a text
  header: bool = False  # whether the first line named columns


def load(
  path: PathLike,
  data_dir: PathLike | None = None,
  *,
  tokens: Annotated[str, fields.choice(TOKENS)] = 'words',
  length: fields.Count | None = None,
  vocabulary: fields.Count | None = None,
  tokenizer: PathLike | None = None,
  letters: str | None = None,
  test_share: fields.Fraction = 0.1,
) -> sources.Dataset:
  """Load a text, or sentences and their labels, from disk.

  Sentences are x, int32[n, length], framed by a first and a last token, and
  labels y, int32[n]; texts are x and y of `tokenization.windows`.

  Args:
    path: file, or folder with train and test; see `find`.
    data_dir: folder of datasets, see `sources.load`.
    tokens: 'words', pieces of words; or 'characters'.
    length: tokens of x; default: `LENGTH` of sentences, `WINDOW` of a text.
    vocabulary: size of the WordPiece vocabulary of the training part; default:
      `VOCABULARY`.
    tokenizer: a published model's vocab.txt or tokenizer.json in its place, or
      the safetensors file of a run.
    letters: the alphabet of 'characters'; default: that of the training part.
    test_share: of the lines of a single file.

  Raises DataError for missing or damaged files, and ValueError for odd options.
  """
  checks.choice('tokens', tokens, TOKENS)
  words = {'vocabulary': vocabulary, 'tokenizer': tokenizer}
  foreign = words if tokens == 'characters' else {'letters': letters}
  unused = [name for name, value in foreign.items() if value is not None]
  if unused:
    raise ValueError(f'{unused} have no effect with {tokens=}; remove them.')
  if vocabulary is not None and tokenizer is not None:
    raise ValueError(f'Set {vocabulary=} or {tokenizer=}, not both.')
  path = find(path, data_dir)
  train, test = _parts(path, test_share)
  labels = train.labels
  framed = labels is not None
  if tokens == 'characters':
    letters = letters or ''.join(sorted(set(''.join(train.lines))))
    encoder = tokenization.characters(letters)
  elif tokenizer is None:
    size = vocabulary or VOCABULARY
    encoder = tokenization.word_pieces(train.lines, size)
  else:
    file = pathlib.Path(tokenizer).expanduser()
    encoder = tokenization.published(file, framed)
  if framed:
    if not train.header and labels.count(labels[0]) == 1:
      raise DataError(
        f'Only line 1 of {path} has label {labels[0]!r}; if it is a '
        f'header, name its columns {_COLUMNS}.'
      )
    numbers = _numbers(labels)
    arrays = [_sentences(x, encoder, length, numbers) for x in (train, test)]
    num_classes = len(numbers)
  else:
    arrays = [_windows(x, encoder, length or WINDOW) for x in (train, test)]
    num_classes = encoder.size
  return sources.Dataset(
    path.name, arrays[0], arrays[1], num_classes, tokenizer=encoder.content,
    vocabulary=None if tokenizer is not None else encoder.size,
  )  # fmt: skip


def sst2(
  data_dir: PathLike | None = None,
  *,
  length: fields.Count | None = None,
  vocabulary: fields.Count | None = None,
  tokenizer: PathLike | None = None,
) -> sources.Dataset:
  """Load SST-2 from sst2 or SST-2 of data_dir, or beside it: see `load`."""
  root = sources.data_folder(data_dir)
  parents = itertools.product((root, root.parent), ('sst2', 'SST-2'))
  places = [parent / name for parent, name in parents]
  with_file = [x for x in places if (x / 'train.tsv').is_file()]
  options = {'vocabulary': vocabulary, 'tokenizer': tokenizer}
  data = load([*with_file, *places][0], data_dir, length=length, **options)
  # Not as many as were found: models keep their size.
  size = None if tokenizer is not None else vocabulary or VOCABULARY
  return data._replace(name='sst2', vocabulary=size)


def _numbers(labels) -> dict[str, int]:  # of classes
  classes = {*labels}
  integers = all(label.isdecimal() for label in classes)
  order = sorted(classes, key=int if integers else None)
  return {label: i for i, label in enumerate(order)}


def _sentences(part, encoder, length, numbers) -> sources.Arrays:
  length = length or LENGTH
  checks.at_least('length', length, 3)
  unknown = sorted({*part.labels} - {*numbers})
  if unknown:
    raise DataError(f'The test has labels {unknown}, not in {[*numbers]}.')
  y = np.array([numbers[label] for label in part.labels], np.int32)
  return {'x': tokenization.frame(encoder, part.lines, length), 'y': y}


def _windows(part, encoder, length) -> sources.Arrays:
  tokens = [x for line in encoder.encode(part.lines) for x in line]
  if len(tokens) < 2:
    raise DataError('A text for training or a test must have two tokens.')
  return tokenization.windows(tokens, length)


def find(path: PathLike, data_dir: PathLike | None = None) -> pathlib.Path:
  """Find a text in the working folder, in data_dir, or beside it."""
  path = pathlib.Path(path).expanduser()
  root = sources.data_folder(data_dir)
  for place in (path, root / path, root.parent / path):
    if place.exists():
      return place
  raise DataError(f'No text in {path} or {root / path}; give --data_dir=DIR.')


def _parts(path, test_share) -> tuple[Texts, Texts]:
  if path.is_file():
    whole = _read(path)
    if whole is None:
      raise DataError(f'{path} has sentences without labels.')
    cut = len(whole.lines) - round(test_share * len(whole.lines))
    if not 0 < cut < len(whole.lines):
      raise DataError(f'{path} needs lines for training and for a test.')
    return _lines(whole, slice(cut)), _lines(whole, slice(cut, None))
  for suffix in '.tsv', '.txt':
    files = (path / f'{name}{suffix}' for name in ('train', *_TESTS))
    parts = (_read(file) for file in files if file.is_file())
    # GLUE's test.tsv has no labels: its dev.tsv is the test.
    found = [*itertools.islice(filter(None, parts), 2)]
    if len(found) == 2 and (path / f'train{suffix}').is_file():
      return found[0], found[1]
  raise DataError(
    f'{path} needs train.tsv of sentences and labels, or train.txt, and one of '
    f'{_TESTS} of the same suffix.'
  )


def _lines(whole, part) -> Texts:
  labels = None if whole.labels is None else whole.labels[part]
  return whole._replace(lines=whole.lines[part], labels=labels)


def _read(path) -> Texts | None:
  """Read a file; None if it has sentences without labels."""
  try:
    with path.open(encoding='utf-8-sig') as file:
      lines = [*file]
  except UnicodeDecodeError as error:
    raise DataError(f'{path} cannot be read: {error}.') from error
  if path.suffix != '.tsv':
    return Texts(lines, None)
  lines = [line.rstrip('\n') for line in lines]
  names = lines[0].split('\t') if lines else []
  header = _COLUMNS[0] in names
  if header and _COLUMNS[1] not in names:
    return None
  if header:
    rows = [line.split('\t') for line in lines[1:]]
  else:  # all before the last tab is the sentence
    names, rows = _COLUMNS, [line.rsplit('\t', 1) for line in lines]
  for row in rows:
    if len(row) != len(names):
      raise DataError(f'{path} has a line without the columns {names}: {row}.')
  texts, labels = ([row[names.index(x)] for row in rows] for x in _COLUMNS)
  return Texts(texts, labels, header)
