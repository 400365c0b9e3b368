"""Number texts: by letters, or by word pieces of the tokenizers library."""

from collections.abc import Callable, Iterable, Sequence
import json
import pathlib
from typing import Any, NamedTuple

from fl_sketch.data.sources import Arrays, DataError
from fl_sketch.utils import checks, extras
import numpy as np

PADDING = -1  # a label that does not count
_SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]']


class Tokenizer(NamedTuple):
  """A tokenizer: maps texts to lists of token ids."""

  encode: Callable[[Sequence[str]], list[list[int]]]  # without first and last
  size: int  # numbers are below it; that of padding is 0
  first: int | None = None  # put before a text; None where there is none
  last: int | None = None  # likewise behind it
  content: str = ''  # of a tokenizer.json of Hugging Face, with equal ids


def characters(letters: Iterable[str], between: str = '') -> Tokenizer:
  """Number letters, or words, as TensorFlow Federated does.

  0 is padding, letter i, counted from 0, has the id i + 1; then come one id for
  all others, the beginning and the end. `between` stands between two units.

  >>> tokenizer = characters('ab')
  >>> tokenizer.encode(['ba?']), tokenizer.first, tokenizer.last, tokenizer.size
  ([[2, 1, 3]], 4, 5, 6)
  """
  ids = {letter: i + 1 for i, letter in enumerate(dict.fromkeys(letters))}
  other = checks.count('letters', len(ids)) + 1
  encode = lambda texts: [[ids.get(x, other) for x in text] for text in texts]
  special = dict(zip(_SPECIAL, (0, other, other + 1, other + 2), strict=True))
  flags = 'single_word', 'lstrip', 'rstrip', 'normalized'
  pattern = {'String': between} if between else {'Regex': r'[\s\S]'}
  content = json.dumps({
    'version': '1.0',
    'added_tokens': [
      {'id': i, 'content': name, 'special': True} | dict.fromkeys(flags, False)
      for name, i in special.items()
    ],
    'pre_tokenizer': {
      'type': 'Split', 'pattern': pattern, 'invert': False,
      'behavior': 'Removed' if between else 'Isolated',
    },
    'decoder': None if between else {'type': 'Fuse'},
    'model': {
      'type': 'WordLevel', 'vocab': special | ids, 'unk_token': _SPECIAL[1],
    },
  })  # fmt: skip
  return Tokenizer(encode, other + 3, other + 1, other + 2, content)


def word_pieces(sentences: Sequence[str], size: int) -> Tokenizer:
  """Train a WordPiece vocabulary of `size` >= 100 tokens: arXiv:1609.08144."""
  # The library breaks ties by a hash map: letters are numbered before training
  # and the vocabulary is sorted after it.
  with extras.needed('text'):
    from tokenizers import models, trainers
  checks.at_least('vocabulary', size, 100)
  encoder = _bert(models.WordPiece(unk_token='[UNK]'))
  split = encoder.pre_tokenizer.pre_tokenize_str
  plain = (encoder.normalizer.normalize_str(s) for s in sentences)
  words = {word for sentence in plain for word, _ in split(sentence)}
  letters = sorted({letter for word in words for letter in word})
  inner = sorted({f'##{letter}' for word in words for letter in word[1:]})
  special = _SPECIAL + letters + inner
  trainer = trainers.WordPieceTrainer(
    vocab_size=size, special_tokens=special, show_progress=False
  )
  encoder.train_from_iterator(sentences, trainer)
  pieces = sorted(set(encoder.get_vocab()) - set(_SPECIAL))
  numbers = {piece: i for i, piece in enumerate(_SPECIAL + pieces)}
  return _of_library(_bert(models.WordPiece(numbers, unk_token='[UNK]')))


def published(path: pathlib.Path, framed: bool = True) -> Tokenizer:
  """Open a published model's vocab.txt, tokenizer.json or safetensors file.

  Raises DataError if it is no tokenizer or, if `framed`, [PAD] is not token 0,
  which models mask, or there is no [CLS] or [SEP].
  """
  with extras.needed('text'):
    import tokenizers
  try:
    if path.suffix == '.safetensors':
      encoder = tokenizers.Tokenizer.from_str(_of_run(path))
    elif path.suffix == '.json':
      encoder = tokenizers.Tokenizer.from_file(str(path))
    else:
      pieces = tokenizers.models.WordPiece
      encoder = _bert(pieces.from_file(str(path), unk_token='[UNK]'))
  except Exception as error:  # the library raises nothing narrower
    raise DataError(f'{path} is no tokenizer: {error}') from error
  padding, *ends = map(encoder.token_to_id, ('[PAD]', '[CLS]', '[SEP]'))
  if framed and (padding != 0 or None in ends):
    raise DataError(f'{path} must have [PAD], as token 0, [CLS] and [SEP].')
  encoder.no_padding()  # `frame` pads and cuts; a published file may do so too
  encoder.no_truncation()
  return _of_library(encoder)


def _of_run(path: pathlib.Path) -> str:
  """Return the vocabulary of a file that `Run.save_safetensors` wrote."""
  with extras.needed('weights'):
    from safetensors import safe_open
  with safe_open(path, 'numpy') as file:
    about = file.metadata() or {}
  if 'tokenizer' not in about:
    raise ValueError(
      'it has no vocabulary. Set dataset_options.tokenizer to that of its '
      'words, or model_options.vocab_size for one made of the data'
    )
  return about['tokenizer']


def frame(
  tokenizer: Tokenizer, sentences: Sequence[str], length: int
) -> np.ndarray:
  """Frame sentences as int32[n, length]: first, tokens, last, then 0."""
  x = np.zeros((len(sentences), length), np.int32)
  for row, tokens in zip(x, tokenizer.encode(sentences), strict=True):
    ids = [tokenizer.first, *tokens[: length - 2], tokenizer.last]
    row[: len(ids)] = ids
  return x


def windows(tokens: Sequence[int] | np.ndarray, length: int) -> Arrays:
  """Cut a text into windows of x and the next tokens y, int32[n, length].

  Every token but the first is once in y. The last window is padded: y by -1.

  >>> cut = windows([7, 8, 9, 6], length=2)
  >>> cut['x'].tolist(), cut['y'].tolist()
  ([[7, 8], [9, 0]], [[8, 9], [6, -1]])
  """
  count = len(tokens) - 1
  rows = -(-count // length)
  x, y = np.zeros(rows * length, np.int32), np.full(rows * length, PADDING)
  x[:count], y[:count] = tokens[:-1], tokens[1:]
  shape = rows, length
  return {'x': x.reshape(shape), 'y': y.astype(np.int32).reshape(shape)}


def _of_library(encoder: Any) -> Tokenizer:
  of = lambda texts: encoder.encode_batch([*texts], add_special_tokens=False)
  encode = lambda texts: [tokens.ids for tokens in of(texts)]
  first, last = (encoder.token_to_id(name) for name in ('[CLS]', '[SEP]'))
  known = [x for x in _SPECIAL if encoder.token_to_id(x) is not None]
  encoder.add_special_tokens(known)
  size = encoder.get_vocab_size()
  return Tokenizer(encode, size, first, last, encoder.to_str())


def _bert(model):
  import tokenizers

  encoder = tokenizers.Tokenizer(model)
  encoder.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
  encoder.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  encoder.decoder = tokenizers.decoders.WordPiece()
  return encoder
