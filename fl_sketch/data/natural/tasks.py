"""Makes arrays of what files hold: images, characters, words, tokens."""

from collections.abc import Callable, Sequence
import io
import pathlib
from typing import Any, NamedTuple

from fl_sketch.data import tokenization
from fl_sketch.data.natural.records import Records, column
from fl_sketch.data.sources import Arrays, DataError
from fl_sketch.data.tokenization import PADDING
from fl_sketch.utils import digests, extras
import numpy as np


class NaturalTask(NamedTuple):
  """The learning task of a data set: inputs, labels, classes."""

  # To 'x' and 'y', leaves [samples, ...]: of one of the file several, or none.
  arrays: Callable[[Records], Arrays]
  num_classes: int  # labels are 0 to num_classes - 1
  options: dict[str, Any]  # what it was made with, as JSON has it
  tokenizer: str | None = None  # of texts, see `sources.Dataset`


def images(
  names: Sequence[str] = ('image', 'pixels', 'x', 'img'),
  labels: Sequence[str] = ('label', 'y', 'character', 'labels'),
  *,
  num_classes: int,
  shape: tuple[int, ...] | None = None,
  resize: bool = False,
  invert: bool = False,
) -> NaturalTask:
  """Images as uint8[n, height, width, channels], and their labels.

  Columns may have any of the names. Numbers from 0 to 1 become bytes, rounded
  to the nearest; bytes of a PNG or a JPEG are decoded, to as many channels as
  `shape` names: a grey photo among others has three. The shape is height, width
  and possibly channels of an image, which may be flat; None takes any. `resize`
  takes images of other shapes, else refused; `invert` makes 1 - x of x.
  """

  def arrays(records: Records) -> Arrays:
    found = column(records, *names)
    x = [_pixels(image, shape, resize, invert) for image in found]
    values = column(records, *labels)
    y = np.asarray(values).reshape(len(values), -1)[:, 0]
    if y.dtype.kind not in 'iu' or not 0 <= y.min() <= y.max() < num_classes:
      raise DataError(
        f'Client {records.client!r} has labels outside 0 to {num_classes - 1}.'
      )
    return {'x': np.stack(x), 'y': y.astype(np.int32)}

  options = {'num_classes': num_classes, 'shape': shape}
  options |= {'resize': resize, 'invert': invert}
  return NaturalTask(arrays, num_classes, options)


def _pixels(image, shape, resize, invert) -> np.ndarray:
  if isinstance(image, dict):  # as Hugging Face's datasets keep images
    image = image['bytes']
  if isinstance(image, bytes):
    image = _decoded(image, shape)
  x = np.asarray(image)
  top = 1 if x.dtype.kind == 'f' else 255
  if not (x.size and x.min() >= 0 and x.max() <= top):
    raise DataError('Pixels must be 0 to 255, or fractions 0 to 1.')
  if invert:
    x = top - x
  x = (np.rint(255 * x) if top == 1 else x).astype(np.uint8)
  if x.ndim == 1 and shape is not None:
    x = x.reshape(*shape[:2], -1)
  x = x[..., None] if x.ndim == 2 else x
  if resize and shape is not None and x.shape[:2] != shape[:2]:
    x = _resized(x, shape[:2])
  if shape is not None and x.shape[: len(shape)] != shape:
    raise DataError(f'Images have shape {x.shape}, not {shape}.')
  return x


def _decoded(content: bytes, shape) -> np.ndarray:
  with extras.needed('data'):
    from PIL import Image
  try:
    with Image.open(io.BytesIO(content)) as image:
      if image.mode[0] in 'IF':
        raise DataError(f'Pixels have mode {image.mode!r}, not 8 bits.')
      grey = image.mode in ('1', 'L')
      if shape is not None and len(shape) == 3:
        grey = shape[2] == 1
      return np.asarray(image.convert('L' if grey else 'RGB'))
  except (OSError, Image.DecompressionBombError) as error:
    raise DataError(f'An image is damaged: {error}.') from error


def _resized(x, shape) -> np.ndarray:
  with extras.needed('data'):
    from PIL import Image
  grey = x.shape[-1] == 1
  image = Image.fromarray(x[..., 0] if grey else x)
  resized = np.asarray(image.resize(shape[::-1], Image.Resampling.BILINEAR))
  return resized[..., None] if grey else resized


def several_labels(num_classes: int, shape: tuple[int, int]) -> NaturalTask:
  """Images that have any of several labels: y is uint8[n, num_classes]."""

  def arrays(records: Records) -> Arrays:
    found = column(records, 'images')
    x = [_pixels(image, shape, resize=True, invert=False) for image in found]
    y = np.asarray(column(records, 'labels'), np.uint8)
    return {'x': np.stack(x), 'y': y}

  options = {'num_classes': num_classes, 'shape': shape}
  return NaturalTask(arrays, num_classes, options)


def tokens(num_classes: int) -> NaturalTask:
  """Sequences that are tokens already, and those that follow; 0 is padding."""

  def arrays(records: Records) -> Arrays:
    names, who = ('inputs', 'targets'), f'Client {records.client!r}'
    x, y = (np.asarray(column(records, name)) for name in names)
    for rows in (x, y):
      if rows.ndim != 2 or rows.dtype.kind not in 'iu' or x.shape != y.shape:
        raise DataError(f'{who} must have {names} int[n, length].')
      if not 0 <= rows.min() <= rows.max() < num_classes:
        raise DataError(f'{who} has tokens beyond {num_classes - 1}.')
    return _padded(x, y, num_classes)

  return NaturalTask(arrays, num_classes, {'num_classes': num_classes})


# TensorFlow Federated's of Shakespeare, and LEAF's.
TFF_LETTERS = (
  'dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#\'/37;?bfjnrvzBFJNRVZ"&*.26:\n'
  'aeimquyAEIMQUY]!%)-159\r'
)
LEAF_LETTERS = (
  '\n !"&\'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]'
  'abcdefghijklmnopqrstuvwxyz}'
)


def characters(
  names: Sequence[str] = ('snippets', 'text', 'x'),
  *,
  letters: str = TFF_LETTERS,
  length: int = 80,
) -> NaturalTask:
  """Texts as sequences of characters, each of which is told from those before.

  A text begins and ends with a symbol of its own, and is cut into sequences of
  `length` inputs; the last one is padded. 0 is padding, then come the letters,
  one for all others, the beginning and the end, as in TensorFlow Federated. The
  column of the texts may have any of the names.
  """
  tokenizer = tokenization.characters(letters)

  def arrays(records: Records) -> Arrays:
    return _paired(tokenizer, map(_text, column(records, *names)), length)

  options = {'letters': letters, 'length': length}
  return NaturalTask(arrays, tokenizer.size, options, tokenizer.content)


def next_character(letters: str = LEAF_LETTERS) -> NaturalTask:
  """LEAF's Shakespeare: 80 characters, and the one that follows."""
  ids = {letter: i for i, letter in enumerate(letters)}

  def codes(texts, records):
    try:
      return np.array([[ids[c] for c in text] for text in texts], np.int16)
    except (KeyError, ValueError) as error:
      raise DataError(
        f'Texts of client {records.client!r} must have one length and letters '
        f'of LEAF: {error!r}.'
      ) from error

  def arrays(records: Records) -> Arrays:
    x, y = (codes(column(records, name), records) for name in 'xy')
    if y.shape[1] != 1:
      raise DataError(
        f'Client {records.client!r} has a label of several letters.'
      )
    return {'x': x, 'y': y[:, 0].astype(np.int32)}

  return NaturalTask(arrays, len(ids), {'letters': letters})


def next_words(vocabulary: Sequence[str], *, length: int = 20) -> NaturalTask:
  """Sentences as words, each of which is told from those before.

  Words are those between spaces. A sentence is cut to `length` of them. 0 is
  padding, then come the words, one for all others, the beginning and the end,
  as in TensorFlow Federated's Stack Overflow. The vocabulary begins with the
  most frequent word; the column is called 'tokens' or 'text'.
  """
  tokenizer = tokenization.characters(vocabulary, between=' ')

  def arrays(records: Records) -> Arrays:
    texts = map(_text, column(records, 'tokens', 'text'))
    words = [text.split(' ')[:length] for text in texts]
    return _paired(tokenizer, words, length, most=length + 1)

  options = {'words': digests.of_text('\n'.join(vocabulary)), 'length': length}
  return NaturalTask(arrays, tokenizer.size, options, tokenizer.content)


def word_counts(path: pathlib.Path, count: int) -> list[str]:
  """Reads the most frequent words of a file, of a word and its count a line."""
  words = []
  with path.open(encoding='utf-8') as file:
    for line in file:
      word, _, number = line.rstrip('\n').rpartition(' ')
      if not (word and number.isdigit()):
        raise DataError(f'{path} needs a word and a count, not {line!r}.')
      words.append(word)
      if len(words) == count:
        return words
  raise DataError(f'{path} has {len(words)} words, not {count}.')


def _text(value: Any) -> str:
  if isinstance(value, list | np.ndarray):
    (value,) = value
  if isinstance(value, bytes):
    return value.decode('utf-8', 'replace')
  if not isinstance(value, str):
    raise TypeError(f'{value!r} is no text.')
  return value


def _paired(tokenizer, texts, length, most=None) -> Arrays:
  """Sequences of texts, of at most so many tokens, and those that follow."""
  rows = []
  for codes in tokenizer.encode(texts):
    framed = [tokenizer.first, *codes, tokenizer.last][:most]
    padding = [0] * (-len(framed) % (length + 1))  # each has its own inputs
    rows += framed + padding
  cut = np.array(rows, int).reshape(-1, length + 1)
  return _padded(cut[:, :-1], cut[:, 1:], tokenizer.size)


def _padded(x, y, size) -> Arrays:
  """Inputs, and the tokens that follow them, in the least bytes."""
  kind = np.int16 if size <= 2**15 else np.int32
  return {'x': x.astype(kind), 'y': np.where(y, y, PADDING).astype(kind)}
