"""Convert records of published files to arrays: images, characters, words.

`KINDS` has the task of each data set, by the layouts that it is published in.
"""

from collections.abc import Callable, Mapping, Sequence
import functools
import io
import pathlib
from typing import Any, NamedTuple

from fl_sketch.data import tokenization
from fl_sketch.data.natural import readers
from fl_sketch.data.sources import Arrays
from fl_sketch.data.tokenization import PADDING
from fl_sketch.utils import extras
import numpy as np

_WORDS = 10_000  # of Stack Overflow's vocabulary


class NaturalTask(NamedTuple):
  """The learning task of a data set: inputs, labels, classes."""

  # Columns of some samples by name -> 'x' and 'y', leaves [samples, ...]; a
  # text may be several samples, or none.
  arrays: Callable[[Mapping[str, Any]], Arrays]
  num_classes: int  # labels are 0 to num_classes - 1
  tokenizer: str | None = None  # of texts, see `sources.Dataset`


def column(columns: Mapping[str, Any], *names: str) -> Any:
  """Return the column that has one of these names."""
  for name in names:
    if name in columns:
      return columns[name]
  raise ValueError(f'No column {names} in {sorted(columns)}.')


def images(
  names: Sequence[str] = ('image', 'pixels', 'x', 'img'),
  labels: Sequence[str] = ('label', 'y', 'character', 'labels'),
  *,
  num_classes: int,
  shape: tuple[int, ...] | None = None,
  resize: bool = False,
  invert: bool = False,
) -> NaturalTask:
  """Make the task of images, uint8[n, height, width, channels] and labels."""

  def arrays(columns):
    x = [pixels(x, shape, resize, invert) for x in column(columns, *names)]
    values = column(columns, *labels)
    y = np.asarray(values).reshape(len(values), -1)[:, 0]
    if y.dtype.kind not in 'iu' or not 0 <= y.min() <= y.max() < num_classes:
      raise ValueError(f'Labels must be integers below {num_classes=}.')
    return {'x': np.stack(x), 'y': y.astype(np.int32)}

  return NaturalTask(arrays, num_classes)


def pixels(
  image: Any,
  shape: tuple[int, ...] | None,
  resize: bool = False,
  invert: bool = False,
) -> np.ndarray:
  """Return an image as uint8[height, width, channels].

  Fractions from 0 to 1 are rounded to bytes; a PNG or JPEG is decoded, to the
  channels of `shape`. An image, possibly flat, has `shape`, (height, width) or
  with channels (None: any), else a ValueError or with `resize` that size.
  `invert` makes 1 - x of x.
  """
  if isinstance(image, dict):  # as Hugging Face's datasets keep images
    image = image['bytes']
  if isinstance(image, bytes):
    image = _decoded(image, shape)
  x = np.asarray(image)
  top = 1 if x.dtype.kind == 'f' else 255
  if not (x.size and x.min() >= 0 and x.max() <= top):
    raise ValueError('Pixels must be 0 to 255, or fractions 0 to 1.')
  if invert:
    x = top - x
  x = (np.rint(255 * x) if top == 1 else x).astype(np.uint8)
  if x.ndim == 1 and shape is not None:
    x = x.reshape(*shape[:2], -1)
  x = x[..., None] if x.ndim == 2 else x
  if resize and shape is not None and x.shape[:2] != shape[:2]:
    x = _resized(x, shape[:2])
  if shape is not None and x.shape[: len(shape)] != shape:
    raise ValueError(f'Images have shape {x.shape}, not {shape}.')
  return x


def _decoded(content: bytes, shape) -> np.ndarray:
  with extras.needed('data'):
    from PIL import Image
  with Image.open(io.BytesIO(content)) as image:
    if image.mode[0] in 'IF':
      raise ValueError(f'Pixels have mode {image.mode!r}, not 8 bits.')
    grey = image.mode in ('1', 'L')
    if shape is not None and len(shape) == 3:
      grey = shape[2] == 1
    return np.asarray(image.convert('L' if grey else 'RGB'))


def _resized(x, shape) -> np.ndarray:
  with extras.needed('data'):
    from PIL import Image
  grey = x.shape[-1] == 1
  image = Image.fromarray(x[..., 0] if grey else x)
  resized = np.asarray(image.resize(shape[::-1], Image.Resampling.BILINEAR))
  return resized[..., None] if grey else resized


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
  """Return the task of predicting the next character of each text.

  A text, with a first and a last symbol, is cut into sequences of `length`
  inputs, the last one padded; ids are those of `tokenization.characters`.
  """
  tokenizer = tokenization.characters(letters)

  def arrays(columns):
    return _paired(tokenizer, map(_text, column(columns, *names)), length)

  return NaturalTask(arrays, tokenizer.size, tokenizer.content)


def next_character(letters: str = LEAF_LETTERS) -> NaturalTask:
  """Return LEAF's Shakespeare: 80 characters, and the one that follows."""
  ids = {letter: i for i, letter in enumerate(letters)}

  def arrays(columns):
    x = [[ids[letter] for letter in text] for text in column(columns, 'x')]
    y = [ids[letter] for letter in column(columns, 'y')]
    return {'x': np.array(x, np.int16), 'y': np.array(y, np.int32)}

  return NaturalTask(arrays, len(ids))


def next_words(vocabulary: Sequence[str], *, length: int = 20) -> NaturalTask:
  """Return the task of predicting each word of sentences from those before.

  Words are those between spaces; a sentence is cut to `length` of them. Ids are
  those of `tokenization.characters`, as in TensorFlow Federated's.
  """
  tokenizer = tokenization.characters(vocabulary, between=' ')

  def arrays(columns):
    texts = map(_text, column(columns, 'tokens', 'text'))
    words = [text.split(' ')[:length] for text in texts]
    return _paired(tokenizer, words, length, most=length + 1)

  return NaturalTask(arrays, tokenizer.size, tokenizer.content)


def most_frequent_words(
  path: pathlib.Path, *, vocabulary: int = _WORDS, length: int = 20
) -> NaturalTask:
  """Return `next_words` of a file with a word and its count in each line."""
  with readers.reading(path):
    lines = path.read_text(encoding='utf-8').split('\n')
    words = [line.rpartition(' ')[0] for line in lines[:vocabulary]]
    if len(words) < vocabulary or not all(words):
      raise ValueError(f'{vocabulary=} exceeds the lines of a word and a count')
  return next_words(words, length=length)


def own_images(
  *,
  classes: int | None = None,
  inputs: str = 'image',
  label: str = 'label',
  size: int | None = None,
) -> NaturalTask:
  """Return the task of images in columns of a user's own table."""
  if classes is None:
    raise ValueError("kind='table' requires classes or text; set one of them.")
  shape = None if size is None else (size, size)
  return images(
    [inputs], [label], num_classes=classes, shape=shape, resize=True
  )


def _text(value: Any) -> str:
  if isinstance(value, list | np.ndarray):
    (value,) = value
  return value.decode('utf-8', 'replace') if isinstance(value, bytes) else value


def _paired(tokenizer, texts, length, most=None) -> Arrays:
  """Sequences of texts, of at most so many tokens, and those that follow."""
  rows = []
  for codes in tokenizer.encode(texts):
    framed = [tokenizer.first, *codes, tokenizer.last][:most]
    padding = [0] * (-len(framed) % (length + 1))  # each has its own inputs
    rows += framed + padding
  cut = np.array(rows, int).reshape(-1, length + 1)
  x, y = cut[:, :-1], cut[:, 1:]
  dtype = np.int16 if tokenizer.size <= 2**15 else np.int32
  return {'x': x.astype(dtype), 'y': np.where(y, y, PADDING).astype(dtype)}


_letters = functools.partial(images, shape=(28, 28, 1), invert=True)
_femnist = functools.partial(_letters, num_classes=62)
# Kind -> layout, the name of its reader -> task; its arguments are options.
KINDS: dict[str, dict[str, Callable[..., NaturalTask]]] = {
  'femnist': dict.fromkeys(('tff', 'leaf', 'table'), _femnist),
  'femnist_digits': {'tff': functools.partial(_letters, num_classes=10)},
  'cifar100': {
    'tff': functools.partial(images, num_classes=100, shape=(32, 32, 3))
  },
  'shakespeare': {
    'tff': characters, 'leaf': next_character, 'table': next_character,
  },
  'stackoverflow': {'tff': most_frequent_words},
  'plays': {'plays': characters},
  'table': {'table': own_images},
}  # fmt: skip
