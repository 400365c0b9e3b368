"""Reads texts as tokens, from disk and never from a network.

A .tsv file has a sentence and its label in each line, before and after the last
tab, or in columns that a header names. Any other file is one text, whose tokens
are predicted from the preceding ones. Of a folder, train.tsv or train.txt is
the training part, and test, dev, valid or validation the test; of one file, its
last lines are the test.
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
_SENTENCES = {'train': 6920, 'test': 1821}  # of SST-2, without a header
_TESTS = 'test', 'dev', 'valid', 'validation'
_COLUMNS = 'sentence', 'label'
_LABELS = '0', '1'  # of SST-2: negative, positive


class Texts(NamedTuple):
  """The lines of a file."""

  path: pathlib.Path
  lines: list[str]  # sentences, or the lines of a text with their ends
  labels: list[str] | None  # of sentences; None of a text
  first: int = 1  # number of the first line in the file
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
  columns: tuple[str, str] = _COLUMNS,
  test_share: fields.Fraction = 0.1,
) -> sources.Dataset:
  """Load a text, or sentences and their labels, from disk.

  Sentences are x, int32[n, length], framed by a first and a last token, and
  labels y, int32[n]; texts are x and y of `tokenization.windows`.

  Args:
    path: a .tsv file of sentences and labels, any other file of a text, or a
      folder with train and test; in the working folder or in data_dir.
    data_dir: folder of datasets, see `sources.load`.
    tokens: 'words', pieces of words; or 'characters'.
    length: tokens of x; default: `LENGTH` of sentences, `WINDOW` of a text.
    vocabulary: size of the WordPiece vocabulary that is trained on the training
      part; default: `VOCABULARY`.
    tokenizer: a published model's vocab.txt or tokenizer.json in its place.
    letters: the alphabet of 'characters'; default: that of the training part.
    columns: of sentences and labels, in a header.
    test_share: of the lines of a single file.

  Raises:
    DataError: the files are missing or damaged.
    ValueError: an option is out of range, or does not suit another one.
  """
  checks.choice('tokens', tokens, TOKENS)
  words = {'vocabulary': vocabulary, 'tokenizer': tokenizer}
  foreign = words if tokens == 'characters' else {'letters': letters}
  unused = [name for name, value in foreign.items() if value is not None]
  if unused:
    raise ValueError(f'{unused} have no effect with {tokens=}; remove them.')
  parts = _parts(find(path, data_dir), columns, test_share)
  framed = parts[0].labels is not None
  if tokens == 'characters':
    if letters is None:
      letters = ''.join(sorted({x for line in parts[0].lines for x in line}))
    encoder = tokenization.characters(letters)
  else:
    encoder = _words(parts[0].lines, vocabulary, tokenizer, framed)
  if framed:
    labels = parts[0].labels or []
    if not parts[0].header and labels.count(labels[0]) == 1:
      raise DataError(
        f'Line 1 of {parts[0].path} is the only one of label {labels[0]!r}; if '
        'it is a header, name its columns by columns=...'
      )
    integers = all(label.isdecimal() for label in labels)
    classes = sorted({*labels}, key=int if integers else None)
    train, test = _sentences(parts, encoder, length, classes)
    count = len(classes)
  else:
    length = checks.count('length', length or WINDOW)
    train, test = (_windows(part, encoder, length) for part in parts)
    count = encoder.size
  return sources.Dataset(
    pathlib.Path(path).name, train, test, count, tokenizer=encoder.content,
    vocabulary=None if tokenizer is not None else encoder.size,
  )  # fmt: skip


def sst2(
  data_dir: PathLike | None = None,
  *,
  length: fields.Count | None = None,
  vocabulary: fields.Count | None = None,
  tokenizer: PathLike | None = None,
) -> sources.Dataset:
  """Load the sentences of SST-2 and their labels; download nothing.

  They lie in sst2 or SST-2 of data_dir, or beside it: train.tsv and test.tsv
  without a header; or GLUE's train.tsv and dev.tsv with the header
  sentence<TAB>label. Arguments and errors are those of `load`.
  """
  parts = _parts(_folder_of_sst2(data_dir), _COLUMNS, 0)
  for part, count in zip(parts, _SENTENCES.values(), strict=True):
    if not part.header and len(part.lines) != count:
      raise DataError(
        f'{part.path} has {len(part.lines):,} lines, not {count:,}, and no '
        'header sentence<TAB>label.'
      )
  encoder = _words(parts[0].lines, vocabulary, tokenizer, True)
  train, test = _sentences(parts, encoder, length, _LABELS)
  # Not as many as were found: models keep their size.
  size = None if tokenizer is not None else vocabulary or VOCABULARY
  return sources.Dataset(
    'sst2', train, test, len(_LABELS), vocabulary=size,
    tokenizer=encoder.content,
  )  # fmt: skip


def _words(lines, vocabulary, tokenizer, framed) -> tokenization.Tokenizer:
  if tokenizer is None:
    return tokenization.word_pieces(lines, vocabulary or VOCABULARY)
  if vocabulary is not None:
    raise ValueError(f'Set {vocabulary=} or {tokenizer=}, not both.')
  return tokenization.published(pathlib.Path(tokenizer).expanduser(), framed)


def _sentences(parts, encoder, length, classes) -> list[sources.Arrays]:
  length = length or LENGTH
  checks.at_least('length', length, 3)
  numbers = {label: i for i, label in enumerate(classes)}
  arrays = []
  for part in parts:
    for line, label in enumerate(part.labels, start=part.first):
      if label not in numbers:
        raise DataError(
          f'Line {line} of {part.path} has label {label!r}, not in {classes}.'
        )
    y = np.array([numbers[label] for label in part.labels], np.int32)
    x = tokenization.frame(encoder, part.lines, length)
    arrays.append({'x': x, 'y': y})
  return arrays


def _windows(part, encoder, length) -> sources.Arrays:
  tokens = [x for line in encoder.encode(part.lines) for x in line]
  if len(tokens) < 2:
    raise DataError(f'{part.path} must have two tokens or more.')
  return tokenization.windows(tokens, length)


def find(path: PathLike, data_dir: PathLike | None = None) -> pathlib.Path:
  """Find a text in the working folder, in data_dir, or beside it."""
  path = pathlib.Path(path).expanduser()
  root = sources.folder(data_dir, 'TFDS_DATA_DIR', '~/tensorflow_datasets')
  for place in (path, root / path, root.parent / path):
    if place.exists():
      return place
  raise DataError(f'No text in {path} or {root / path}.')


def _folder_of_sst2(data_dir) -> pathlib.Path:
  root = sources.folder(data_dir, 'TFDS_DATA_DIR', '~/tensorflow_datasets')
  for parent, name in itertools.product((root, root.parent), ('sst2', 'SST-2')):
    if any((parent / name / f'{split}.tsv').is_file() for split in _SENTENCES):
      return parent / name
  raise DataError(
    f'No train.tsv and test.tsv in {root / "sst2"} or {root.parent / "sst2"}; '
    'give --data_dir=DIR or set TFDS_DATA_DIR.'
  )


def _parts(path, columns, test_share) -> tuple[Texts, Texts]:
  if path.is_file():
    whole = _read(path, columns)
    if whole is None:
      raise DataError(f'{path} has no columns {columns}.')
    cut = len(whole.lines) - round(test_share * len(whole.lines))
    if not 0 < cut < len(whole.lines):
      raise DataError(f'{path} needs lines for training and for a test.')
    return _lines(whole, 0, cut), _lines(whole, cut, None)
  for suffix in '.tsv', '.txt':
    files = (path / f'{name}{suffix}' for name in ('train', *_TESTS))
    texts = (_read(file, columns) for file in files if file.is_file())
    parts = [*itertools.islice(filter(None, texts), 2)]
    if len(parts) == 2 and parts[0].path.stem == 'train':
      return parts[0], parts[1]
  raise DataError(
    f'{path} needs train.tsv of sentences and labels, or train.txt, and one of '
    f'{_TESTS} of the same suffix.'
  )


def _lines(whole, start, end) -> Texts:
  labels = None if whole.labels is None else whole.labels[start:end]
  lines, first = whole.lines[start:end], whole.first + start
  return whole._replace(lines=lines, labels=labels, first=first)


def _read(path, columns) -> Texts | None:
  """The lines of a file; None if it has sentences without labels."""
  try:
    with path.open(encoding='utf-8-sig') as file:
      lines = [*file]
  except (OSError, UnicodeDecodeError) as error:
    raise DataError(f'{path} cannot be read: {error}.') from error
  if path.suffix != '.tsv':
    return Texts(path, lines, None)
  rows = [line.rstrip('\n').split('\t') for line in lines]
  names = rows[0] if rows and columns[0] in rows[0] else []
  if names and columns[1] not in names:
    return None
  first, sentences, labels = 2 if names else 1, [], []
  for number, row in enumerate(rows[first - 1 :], start=first):
    if len(row) < 2 or (names and len(row) != len(names)):
      raise DataError(
        f'Line {number} of {path} has no sentence, tab and label; a header has '
        f'the columns {columns}.'
      )
    if names:
      sentence, label = (row[names.index(name)] for name in columns)
    else:  # all before the last tab is the sentence
      sentence, label = '\t'.join(row[:-1]), row[-1]
    sentences.append(sentence)
    labels.append(label)
  return Texts(path, sentences, labels, first, header=bool(names))
