"""Sentences and texts to tokens."""

import chex
from fl_sketch.data import sources, text, tokenization
import numpy as np
import pytest
import tokenizers

NUMBERS = {'[PAD]': 0, '[UNK]': 1, '[CLS]': 2, '[SEP]': 3, 'good': 4, 'bad': 5}


def test_sentences_are_framed_cut_and_padded(folder):
  """Catches padding before the end, and sentences without one."""
  loaded = text.sst2(folder, length=8, vocabulary=120)
  assert loaded.num_classes == 2
  assert loaded.test['y'].tolist() == [0, 1] * 10
  x = loaded.train['x']
  assert x.dtype == np.int32
  assert (x[:, 0] == 2).all()  # [CLS]
  ends = (x == 3).argmax(1)  # [SEP]
  np.testing.assert_array_equal(x > 0, np.arange(8) <= ends[:, None])
  assert ends.min() < ends.max() == 7  # some are cut


def test_ties_are_broken_the_same_way_every_time():
  rng = np.random.default_rng(0)
  draw = lambda: ''.join(rng.choice(list('abcdefgh'), rng.integers(2, 9)))
  words = [draw() for _ in range(320)]
  trained = [tokenization.word_pieces(words, 150) for _ in range(6)]
  assert trained[0].size == 150
  first = trained[0].encode(words)
  assert all(x.encode(words) == first for x in trained)


def test_a_published_vocabulary_is_used(folder):
  """Catches a file's own padding and cuts, which would come on top."""
  path = folder / 'vocab.txt'
  path.write_text('\n'.join(NUMBERS) + '\n')
  word_piece = tokenizers.models.WordPiece(NUMBERS, unk_token='[UNK]')
  encoder = tokenization._bert(word_piece)
  encoder.enable_padding(length=5)
  encoder.enable_truncation(max_length=2)
  encoder.save(str(folder / 'tokenizer.json'))
  for file in path, folder / 'tokenizer.json':
    opened = tokenization.published(file)
    tokens = tokenization.frame(opened, ['Good bad film !', 'bad'], 6)
    assert tokens.tolist() == [[2, 4, 5, 1, 1, 3], [2, 5, 3, 0, 0, 0]]
    assert text.sst2(folder, tokenizer=str(file)).train['x'].max() <= 5
  path.write_text('\n'.join([*NUMBERS][1:]) + '\n')
  with pytest.raises(sources.DataError, match='PAD'):
    text.sst2(folder, tokenizer=str(path))


def test_the_layout_of_glue_is_read(folder, tmp_path):
  """Catches a header that is a sentence, and a test without labels."""
  plain = text.sst2(folder, vocabulary=120)
  glue = tmp_path / 'glue' / 'SST-2'
  glue.mkdir(parents=True)
  for ours, theirs in ('train', 'train'), ('test', 'dev'):
    lines = (folder / 'sst2' / f'{ours}.tsv').read_text()
    (glue / f'{theirs}.tsv').write_text(f'sentence\tlabel\n{lines}')
  (glue / 'test.tsv').write_text('index\tsentence\n0\ta bad film\n')
  chex.assert_trees_all_equal(text.sst2(glue.parent, vocabulary=120), plain)


def test_any_sentences_are_read(tmp_path):
  """Catches labels in the order of text, and a header that is a sentence."""
  path = tmp_path / 'news.tsv'
  rows = [(f'word{i}', 10 - i % 3) for i in range(20)]
  lines = ''.join(f'{words}\t{label}\n' for words, label in rows)
  letters = sorted({x for words, _ in rows[:18] for x in words})
  number = {x: i + 1 for i, x in enumerate(letters)}
  first, last = len(letters) + 2, len(letters) + 3
  for header in '', '\ufeffsentence\tlabel\n':  # also as Windows writes it
    path.write_text(header + lines, encoding='utf-8')
    got = text.load(str(path), length=9, tokens='characters')
    assert got.num_classes == 3
    labels = [label - 8 for _, label in rows]
    assert got.train['y'].tolist() == labels[:18]
    assert got.test['y'].tolist() == labels[18:]
    want = [first, *(number[x] for x in 'word0'), last, 0, 0]
    assert got.train['x'][0].tolist() == want
    assert got.vocabulary == last + 1
  path.write_text('text\tkind\n' + lines)  # not a class that is called kind
  with pytest.raises(sources.DataError, match='kind'):
    text.load(str(path), tokens='characters')


@pytest.mark.parametrize('length', [1, 3, 7, 200])
def test_windows_tell_every_token_once(length):
  """Catches a token that is lost between windows, or told from itself."""
  tokens = np.random.default_rng(0).integers(1, 50, 101).tolist()
  cut = tokenization.windows(tokens, length)
  real = cut['y'] >= 0
  assert cut['y'][real].tolist() == tokens[1:]
  assert cut['x'][real].tolist() == tokens[:-1]
  assert (cut['x'][~real] == 0).all()
  assert (cut['y'][~real] == -1).all()
  assert (~real).sum() < length


PLAY = 'ANNA:\nto be or not\n\nEMIL:\nwhat is it?\n'


def test_a_text_by_characters_is_told_whole(tmp_path):
  """Catches ends of lines that are lost, and letters of the test."""
  (tmp_path / 'train.txt').write_text(PLAY)
  (tmp_path / 'valid.txt').write_text('to see\nZ')
  got = text.load(str(tmp_path), tokens='characters', length=5)
  letters = ''.join(sorted({*PLAY}))
  spell = lambda arrays: ''.join(
    f'{letters}?'[t - 1] for t in arrays['y'].ravel() if t >= 0
  )
  assert spell(got.train) == PLAY[1:]
  assert spell(got.test) == 'o see\n?'
  assert got.num_classes == len(letters) + 4
  given = text.load(str(tmp_path), tokens='characters', letters='abc', length=5)
  assert given.num_classes == 7
  assert set(given.train['x'].ravel().tolist()) == {0, 1, 2, 4}


def test_a_text_by_words_is_that_of_a_published_file(tmp_path):
  """Catches special tokens in a text, and a tokenizer that must have them."""
  names = ['be', 'not', 'or', 'to', '[UNK]', '.']
  (tmp_path / 'vocab.txt').write_text('\n'.join(names) + '\n')
  path = tmp_path / 'lines.txt'
  path.write_text('to be\nor not\nto be or\nnot.')
  got = text.load(
    str(path), tokenizer=str(tmp_path / 'vocab.txt'), length=3, test_share=0.25
  )
  assert got.train['x'].tolist() == [[3, 0, 2], [1, 3, 0]]
  assert got.train['y'].tolist() == [[0, 2, 1], [3, 0, 2]]
  assert got.test['y'].tolist() == [[5, -1, -1]]
  assert (got.num_classes, got.vocabulary) == (6, None)
  trained = text.load(str(path), vocabulary=100, test_share=0.25)
  assert trained.num_classes <= 100
  assert trained.train['x'].max() < trained.num_classes == trained.vocabulary


@pytest.mark.parametrize('between', ['', ' '])
def test_what_is_kept_of_a_vocabulary_encodes_alike(between):
  """Catches ids that are one too low, and letters that are joined by spaces."""
  units = ['to', 'be', 'or'] if between else 'ab \nc'
  ours = tokenization.characters(units, between)
  kept = tokenizers.Tokenizer.from_str(ours.content)
  text = between.join(units)
  assert kept.encode(text).ids == [1 + i for i in range(len(units))]
  assert kept.decode(kept.encode(text).ids) == text
  other = between.join([*units, '?'])
  assert kept.encode(other).ids[-1] == len(units) + 1
  assert kept.decode([0, len(units) + 2, 1, len(units) + 3]) == units[0]
  assert kept.get_vocab_size() == ours.size
