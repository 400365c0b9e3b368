"""Reads sentences as tokens, from disk and never from a network."""

import os
import pathlib
from typing import Any

from fl_sketch.data import sources
from fl_sketch.utils import checks, extras
import numpy as np

NAMES = ('sst2',)
LENGTH = 48  # tokens of a sentence; 6 % of those of SST-2 are longer
VOCABULARY = 4000
_SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]']
_SENTENCES = {'train': 6920, 'test': 1821}


def load(
  name: str,
  data_dir: str | os.PathLike | None = None,
  *,
  length: int | None = None,
  vocabulary: int | None = None,
  tokenizer: str | os.PathLike | None = None,
) -> sources.Dataset:
  """Loads sentences and their labels from disk; downloads nothing.

  SST-2 at the level of sentences: train.tsv and test.tsv with a sentence, a tab
  and 0 (negative) or 1 in each line, in DIR/sst2 or DIR/../sst2. The training
  sentences determine a WordPiece vocabulary (Wu et al., arXiv:1609.08144).

  Args:
    name: one of `NAMES`.
    data_dir: folder of datasets; None for the environment variable
      TFDS_DATA_DIR or else ~/tensorflow_datasets.
    length: tokens of a sentence, [CLS] and [SEP] among them; longer ones are
      cut, shorter ones padded with 0. None is `LENGTH`.
    vocabulary: the largest number of tokens; None is `VOCABULARY`.
    tokenizer: a published model's vocab.txt or tokenizer.json, in place of a
      trained vocabulary.

  Returns:
    A dataset with x int32[n, length].

  Raises:
    DataError: the files are missing or damaged.
    ValueError: a length or vocabulary is out of range, or there are both a
      vocabulary and a tokenizer.
  """
  checks.choice('name', name, NAMES)
  length = length or LENGTH
  checks.at_least('text_length', length, 3)
  if tokenizer is not None and vocabulary is not None:
    raise ValueError(f'Expected no {vocabulary=} beside {tokenizer=}.')
  folder = _folder(name, data_dir)
  (words, y), (test_words, test_y) = (_read(folder, s) for s in _SENTENCES)
  if tokenizer is None:
    encoder = _trained(words, vocabulary or VOCABULARY)
  else:
    encoder = _opened(pathlib.Path(tokenizer).expanduser())
  train, test = (
    {'x': encode(encoder, text, length), 'y': labels}
    for text, labels in ((words, y), (test_words, test_y))
  )
  return sources.Dataset(name, train, test, num_classes=2)


def encode(encoder: Any, sentences: list[str], length: int) -> np.ndarray:
  """Encodes sentences as int32[sentences, length]: [CLS] ... [SEP], then 0."""
  first, last = (encoder.token_to_id(name) for name in ('[CLS]', '[SEP]'))
  x = np.zeros((len(sentences), length), np.int32)
  encoded = encoder.encode_batch(sentences, add_special_tokens=False)
  for row, tokens in zip(x, encoded, strict=True):
    ids = [first, *tokens.ids[: length - 2], last]
    row[: len(ids)] = ids
  return x


def _folder(name, data_dir) -> pathlib.Path:
  root = sources.folder(data_dir, 'TFDS_DATA_DIR', '~/tensorflow_datasets')
  for folder in (root / name, root.parent / name):
    if all((folder / f'{split}.tsv').is_file() for split in _SENTENCES):
      return folder
  raise sources.DataError(
    f'No train.tsv and test.tsv of {name!r} in {root / name} or '
    f'{root.parent / name}. They hold a sentence, a tab and its label in each '
    'line; give --data_dir=DIR or set TFDS_DATA_DIR.'
  )


def _read(folder, split) -> tuple[list[str], np.ndarray]:
  path = folder / f'{split}.tsv'
  sentences, labels = [], []
  lines = path.read_text(encoding='utf-8').splitlines()
  for number, line in enumerate(lines, start=1):
    sentence, tab, label = line.rpartition('\t')
    if not tab or label not in ('0', '1'):
      raise sources.DataError(
        f'Expected a sentence, a tab and 0 or 1 in line {number} of {path}.'
      )
    sentences.append(sentence)
    labels.append(int(label))
  if len(labels) != _SENTENCES[split]:
    raise sources.DataError(
      f'Expected {_SENTENCES[split]:,} lines in {path}, not {len(labels):,}.'
    )
  return sentences, np.array(labels, np.int32)


def _trained(sentences, size):
  """Trains a WordPiece vocabulary on sentences.

  Among equally frequent pairs the library joins the one of smaller numbers
  first, and it numbers letters inside words in the order of a hash map. So
  letters get their numbers before the training, and the vocabulary is sorted
  after it: both are then the same every time.
  """
  with extras.needed('text'):
    from tokenizers import models, trainers
  checks.at_least('vocabulary', size, 100)
  encoder = _bert(models.WordPiece(unk_token='[UNK]'))
  words = _words(encoder, sentences)
  letters = sorted({letter for word in words for letter in word})
  inner = sorted({f'##{letter}' for word in words for letter in word[1:]})
  trainer = trainers.WordPieceTrainer(
    vocab_size=size,
    special_tokens=_SPECIAL + letters + inner,
    show_progress=False,
  )
  encoder.train_from_iterator(sentences, trainer)
  pieces = sorted(set(encoder.get_vocab()) - set(_SPECIAL))
  numbers = {piece: i for i, piece in enumerate(_SPECIAL + pieces)}
  return _bert(models.WordPiece(numbers, unk_token='[UNK]'))


def _words(encoder, sentences) -> set[str]:
  plain = (encoder.normalizer.normalize_str(s) for s in sentences)
  split = encoder.pre_tokenizer.pre_tokenize_str
  return {word for sentence in plain for word, _ in split(sentence)}


def _bert(model):
  import tokenizers

  encoder = tokenizers.Tokenizer(model)
  encoder.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
  encoder.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  return encoder


def _opened(path):
  with extras.needed('text'):
    import tokenizers
  if not path.is_file():
    raise sources.DataError(f'No tokenizer in {path}.')
  try:
    if path.suffix == '.json':
      encoder = tokenizers.Tokenizer.from_file(str(path))
    else:
      encoder = _bert(
        tokenizers.models.WordPiece.from_file(str(path), unk_token='[UNK]')
      )
  except Exception as error:  # the library raises nothing narrower
    raise sources.DataError(f'{path} is no tokenizer: {error}') from error
  if encoder.token_to_id('[PAD]') != 0:
    raise sources.DataError(f'Expected [PAD] to be token 0 of {path}.')
  for name in _SPECIAL:
    if encoder.token_to_id(name) is None:
      raise sources.DataError(f'Expected {name} among the tokens of {path}.')
  encoder.no_padding()  # `encode` pads and cuts; a published file may do so too
  encoder.no_truncation()
  return encoder
