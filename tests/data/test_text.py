"""Sentences to tokens, and the config fields that choose data and models."""

import draws
from fl_sketch import experiment, models, sweeps
from fl_sketch.data import sources, text, tokenization
from fl_sketch.experiment.config import Config
from fl_sketch.models import pretrained
import flax.linen as nn
import jax
import numpy as np
import pytest
from refusals import refused
import runs
import tokenizers

DATA = runs.DATA.parent
needs_sst2 = pytest.mark.skipif(
  not (DATA / 'sst2').is_dir(), reason=f'SST-2 is not in {DATA}'
)
NUMBERS = {'[PAD]': 0, '[UNK]': 1, '[CLS]': 2, '[SEP]': 3, 'good': 4, 'bad': 5}
WORDS = 'a bad film is not good but an unlovely , charming one was so'.split()
SMALL = {'population': 4, 'cohort': 4, 'batch_size': 4, 'model': 'mlp'}
BERT = {
  'dataset': 'sst2',
  'model': 'bert_nano',
  'model_options': {'width': 8, 'heads': 1, 'depth': 1},
  'dataset_options': {'length': 10, 'vocabulary': 120},
}
PRIVATE = {'epsilon': 1.0, 'delta': 1e-5, 'clip_norm': 1.0}


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """Files of artificial sentences in place of those of SST-2."""
  monkeypatch.setattr(text, '_SENTENCES', {'train': 60, 'test': 20})
  rng = np.random.default_rng(0)
  (tmp_path / 'sst2').mkdir()
  for split, count in text._SENTENCES.items():
    lines = [
      ' '.join(rng.choice(WORDS, rng.integers(1, 14))) + f'\t{i % 2}\n'
      for i in range(count)
    ]
    (tmp_path / 'sst2' / f'{split}.tsv').write_text(''.join(lines))
  return tmp_path


@pytest.fixture
def drawn_by_numpy(monkeypatch):
  draws.by_numpy(monkeypatch)


def test_sentences_are_framed_cut_and_padded(folder):
  loaded = text.sst2(folder, length=8, vocabulary=120)
  assert loaded.num_classes == 2
  assert loaded.test['y'].tolist() == [0, 1] * 10
  for x in (loaded.train['x'], loaded.test['x']):
    assert x.dtype == np.int32
    assert (x[:, 0] == 2).all()  # [CLS]
    assert ((x == 3).sum(1) == 1).all()  # [SEP]
    real = x > 0
    assert (real[:, 1:] <= real[:, :-1]).all(), 'padding comes last'
    last = real.sum(1) - 1
    assert (x[np.arange(len(x)), last] == 3).all()
  assert (loaded.train['x'][:, -1] == 3).any(), 'some are cut'
  assert (loaded.train['x'][:, -1] == 0).any(), 'some are padded'


def test_the_folder_may_stand_beside_the_images(folder):
  beside = text.sst2(folder / 'tfds', vocabulary=120)
  inside = text.sst2(folder, vocabulary=120)
  np.testing.assert_array_equal(beside.train['x'], inside.train['x'])


SCRIPT = """
import sys
from fl_sketch.data import text
text._SENTENCES = {'train': 60, 'test': 20}
print(text.sst2(sys.argv[1], vocabulary=120).train['x'].tolist())
"""


def test_another_process_makes_the_same_vocabulary(folder):
  outputs = [runs.python('-c', SCRIPT, folder) for _ in range(2)]
  tokens = text.sst2(folder, vocabulary=120).train['x'].tolist()
  assert outputs == [str(tokens)] * 2


def test_ties_are_broken_the_same_way_every_time():
  rng = np.random.default_rng(0)
  draw = lambda: ''.join(rng.choice(list('abcdefgh'), rng.integers(2, 9)))
  words = [draw() for _ in range(320)]
  vocabularies = [
    tokenization._trained(words, 150).get_vocab() for _ in range(6)
  ]
  assert len(vocabularies[0]) == 150
  assert all(f == vocabularies[0] for f in vocabularies)


def test_a_published_vocabulary_is_used(folder):
  names = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'good', 'bad', 'film']
  path = folder / 'vocab.txt'
  path.write_text('\n'.join(names) + '\n')
  opened = tokenization.published(path)
  encodings = tokenization.frame(opened, ['Good film !', 'bad'], 6)
  assert encodings.tolist() == [[2, 4, 6, 1, 3, 0], [2, 5, 3, 0, 0, 0]]
  tokenization._opened(path).save(str(folder / 'tokenizer.json'))
  same = text.sst2(folder, tokenizer=folder / 'tokenizer.json')
  assert same.train['x'].max() <= 6
  path.write_text('\n'.join(names[1:]) + '\n')
  with pytest.raises(sources.DataError, match=r'\[PAD\] to be token 0'):
    text.sst2(folder, tokenizer=path)


def test_what_a_published_file_cuts_and_pads_is_not_done_twice(folder):
  path = folder / 'tokenizer.json'
  word_piece = tokenizers.models.WordPiece(NUMBERS, unk_token='[UNK]')
  encoder = tokenization._bert(word_piece)
  encoder.enable_padding(length=5)
  encoder.enable_truncation(max_length=2)
  encoder.save(str(path))
  opened = tokenization.published(path)
  tokens = tokenization.frame(opened, ['good bad good', 'bad'], 6)
  assert tokens.tolist() == [[2, 4, 5, 4, 3, 0], [2, 5, 3, 0, 0, 0]]


@pytest.mark.parametrize(
  ('name', 'written', 'message'),
  [
    ('vocab.txt', '[PAD]\n[UNK]\n[SEP]\n', r'\[CLS\] among the tokens of'),
    ('vocab.txt', '[PAD]\n[CLS]\n[SEP]\n', r'\[UNK\] among the tokens of'),
    ('tokenizer.json', '{"model": ', 'tokenizer.json is no tokenizer: '),
  ],
)
def test_a_damaged_tokenizer_is_refused(tmp_path, name, written, message):
  (tmp_path / name).write_text(written)
  with pytest.raises(sources.DataError, match=message):
    tokenization._opened(tmp_path / name)


def test_what_is_wrong_with_the_files_is_named(folder):
  path = folder / 'sst2' / 'test.tsv'
  good = path.read_text()
  path.write_text(good + 'no label here\n')
  with pytest.raises(sources.DataError, match=f'label in line 21 of {path}'):
    text.sst2(folder)
  path.write_text(good[:-2] + '2\n')
  with pytest.raises(sources.DataError, match=r"'1'\) in line 20 of .* '2'"):
    text.sst2(folder)
  path.write_text(good + 'one more\t1\n')
  with pytest.raises(sources.DataError, match=r'Expected 20 lines in .*not 21'):
    text.sst2(folder)
  path.unlink()
  with pytest.raises(sources.DataError, match=r'No train.tsv and test.tsv of'):
    text.sst2(folder)
  with pytest.raises(sources.DataError, match='No tokenizer in'):
    tokenization._opened(folder / 'nowhere.txt')


def test_the_layout_of_glue_is_read(folder, tmp_path):
  """Catches a header that is a sentence, and a test without labels."""
  plain = text.sst2(folder, vocabulary=120)
  glue = tmp_path / 'glue' / 'SST-2'
  glue.mkdir(parents=True)
  files = {'train': 'train', 'test': 'dev'}
  for ours, theirs in files.items():
    lines = (folder / 'sst2' / f'{ours}.tsv').read_text()
    (glue / f'{theirs}.tsv').write_text(f'sentence\tlabel\n{lines}')
  (glue / 'test.tsv').write_text('index\tsentence\n0\ta bad film\n')
  dataset = text.sst2(glue.parent, vocabulary=120)
  for name in 'x', 'y':
    np.testing.assert_array_equal(dataset.train[name], plain.train[name])
    np.testing.assert_array_equal(dataset.test[name], plain.test[name])
  (glue / 'dev.tsv').write_text('sentence\tlabel\na\t1\tb\n')
  with pytest.raises(sources.DataError, match=r'line 2 of .*dev.tsv.*header'):
    text.sst2(glue.parent)


def test_any_table_of_sentences_is_read(tmp_path):
  """Catches labels in the order of text, and columns of other names."""
  path = tmp_path / 'news.tsv'
  rows = [(f'word{i}', 10 - i % 3) for i in range(20)]
  lines = [f'{label}\t-\t{words}\n' for words, label in rows]
  path.write_text(''.join(['kind\tid\ttitle\n', *lines]))
  columns = {'columns': ('title', 'kind'), 'tokens': 'characters'}
  got = text.load(path, length=9, **columns)
  # 11 letters: d, o, r, w and seven digits or more; 0 is padding.
  assert got.num_classes == 3
  labels = [label - 8 for _, label in rows]
  assert got.train['y'].tolist() == labels[:18]
  assert got.test['y'].tolist() == labels[18:]
  letters = sorted({x for words, _ in rows[:18] for x in words})
  first, last = len(letters) + 2, len(letters) + 3
  number = {x: i + 1 for i, x in enumerate(letters)}
  want = [first, *(number[x] for x in 'word0'), last, 0, 0]
  assert got.train['x'][0].tolist() == want
  assert got.vocabulary == last + 1
  path.write_text(path.read_text() + '7\t-\tnew\n')
  with pytest.raises(sources.DataError, match=r"'10'.* in line 22 of .*'7'"):
    text.load(path, **columns)


@pytest.mark.parametrize(
  ('header', 'columns'),
  [('text\tlabel', {}), ('sentence\tlabel', {'columns': ('text', 'kind')})],
)
def test_a_header_of_other_columns_is_no_sentence(header, columns, tmp_path):
  """Catches a class that is called label."""
  path = tmp_path / 'news.tsv'
  rows = '\n'.join(f'word{i}\t{i % 2}' for i in range(20))
  path.write_text(f'{header}\n{rows}\n')
  with pytest.raises(
    sources.DataError, match=r"'label' of line 1 of .*columns"
  ):
    text.load(path, tokens='characters', **columns)
  path.write_text(f'{rows}\n')
  plain = text.load(path, tokens='characters')
  path.write_text(f'\ufeffsentence\tlabel\n{rows}\n', encoding='utf-8')
  marked = text.load(path, tokens='characters')  # as Windows writes it
  np.testing.assert_array_equal(plain.train['x'], marked.train['x'])
  assert plain.num_classes == marked.num_classes == 2


def test_a_letter_that_comes_again_has_one_number():
  """Catches the last letter under the number of all others."""
  tokenizer = tokenization.characters('aab')
  assert tokenizer.encode(['ab?']) == [[1, 2, 3]]
  assert tokenizer.size == tokenization.characters('ab').size


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
  got = text.load(tmp_path, tokens='characters', length=5)
  letters = ''.join(sorted({*PLAY}))
  spell = lambda arrays: ''.join(
    f'{letters}?'[t - 1] for t in arrays['y'].ravel() if t >= 0
  )
  assert spell(got.train) == PLAY[1:]
  assert spell(got.test) == 'o see\n?'
  assert got.num_classes == len(letters) + 4
  given = text.load(tmp_path, tokens='characters', letters='abc', length=5)
  assert given.num_classes == 7
  assert set(given.train['x'].ravel().tolist()) == {0, 1, 2, 4}


def test_a_text_by_words_is_that_of_a_published_file(tmp_path):
  """Catches special tokens in a text, and a tokenizer that must have them."""
  names = ['be', 'not', 'or', 'to', '[UNK]', '.']
  (tmp_path / 'vocab.txt').write_text('\n'.join(names) + '\n')
  path = tmp_path / 'lines.txt'
  path.write_text('to be\nor not\nto be or\nnot.')
  got = text.load(
    path, tokenizer=tmp_path / 'vocab.txt', length=3, test_share=0.25
  )
  assert got.train['x'].tolist() == [[3, 0, 2], [1, 3, 0]]
  assert got.train['y'].tolist() == [[0, 2, 1], [3, 0, 2]]
  assert got.test['y'].tolist() == [[5, -1, -1]]
  assert (got.num_classes, got.vocabulary) == (6, None)
  trained = text.load(path, vocabulary=100, test_share=0.25)
  assert trained.num_classes <= 100
  assert trained.train['x'].max() < trained.num_classes == trained.vocabulary


def test_a_text_beside_the_data_is_found_and_others_are_named(tmp_path):
  (tmp_path / 'poems').mkdir()
  with pytest.raises(sources.DataError, match=r'No train.tsv and test.tsv of'):
    text.load('poems', tmp_path)
  (tmp_path / 'poems' / 'train.txt').write_text('a\n')
  with pytest.raises(sources.DataError, match='may be called test, dev, valid'):
    text.load('poems', tmp_path)
  (tmp_path / 'poems' / 'dev.txt').write_text('b')
  with pytest.raises(sources.DataError, match=r'two tokens or more in .*dev'):
    text.load('poems', tmp_path, tokens='characters')
  with pytest.raises(sources.DataError, match='lines of training and of a'):
    text.load(tmp_path / 'poems' / 'dev.txt', tokens='characters')
  with pytest.raises(sources.DataError, match='No text in proses or '):
    text.load('proses', tmp_path)
  with pytest.raises(ValueError, match="letters='ab' with words"):
    text.load('poems', tmp_path, letters='ab')
  with pytest.raises(ValueError, match=r'vocabulary=120 or .* with characters'):
    text.load('poems', tmp_path, vocabulary=120, tokens='characters')


test_configs_that_mean_nothing_are_refused = refused(
  lambda fields: Config(**SMALL | fields),
  ({'train_slice': '5'}, "train_slice='5' to be as '0:10000'"),
  ({'test_slice': '9:3'}, "test_slice='9:3' to hold a sample"),
  ({'dataset': 'quadratics', 'train_slice': ':3'}, 'Expected no train_slice'),
  ({'dataset': 'quadratics', 'pretrained': 'x'}, 'Expected no pretrained'),
  (
    {'dataset': 'sst2', 'model': 'bert_nano', 'pretrained': 'x'},
    'Expected a tokenizer beside',
  ),
  ({'dataset_options': {'length': 9}}, "options of dataset 'digits' in"),
  ({'model': 'bert_nano'}, "dataset='digits' in .'sst2', 'text'. with model="),
  ({'dataset': 'text'}, r"Expected options \['path'\] of dataset 'text'"),
  (
    {'dataset': 'text', 'dataset_options': {'path': 'x', 'test_share': 0.0}},
    '0 < test_share=0.0 < 1',
  ),
  (
    BERT | {'model': 'mlp', 'model_options': None},
    "model='mlp' to be one of tokens with dataset='sst2'",
  ),
  (
    {
      'dataset': 'text',
      'dataset_options': {'path': 'x'},
      'model': 'lstm',
      'model_options': {'last': True},
    },
    r"Expected no last in model_options=.* with dataset='text'",
  ),
  (
    BERT | {'dataset_options': {'vocabulary': 120, 'tokenizer': 'x'}},
    'one of vocabulary and tokenizer',
  ),
  (
    BERT | PRIVATE | {'algorithm': 'dp_fedavg', 'standardize': False},
    'Expected a tokenizer in a private config',
  ),
)


@pytest.mark.parametrize(
  ('dataset', 'options'),
  [
    ('sst2', {'tokenizer': 'x'}),
    ('text', {'path': 'x', 'tokenizer': 'x'}),
    ('text', {'path': 'x', 'tokens': 'characters', 'letters': 'ab'}),
  ],
)
def test_a_private_config_may_use_a_published_tokenizer(dataset, options):
  """Catches a vocabulary of the clients' own words in a private run."""
  fields = SMALL | BERT | PRIVATE | {'dataset': dataset}
  fields |= {'algorithm': 'dp_fedavg', 'dataset_options': options}
  assert Config(**fields).dataset_options == options
  own = {k: x for k, x in options.items() if k not in ('tokenizer', 'letters')}
  with pytest.raises(ValueError, match='a tokenizer in a private config'):
    Config(**fields | {'dataset_options': own})


class Tiny(nn.Module):
  num_classes: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.num_classes)(nn.Embed(self.num_classes, 4)(x))


@pytest.mark.usefixtures('drawn_by_numpy', 'own_parts')
def test_a_text_is_trained_by_its_tokens(tmp_path):
  """Catches labels that no loss takes, and a vocabulary of another size."""
  models.register(Tiny)
  (tmp_path / 'play.txt').write_text(PLAY * 9)
  options = {'path': 'play.txt', 'tokens': 'characters', 'length': 12}
  fields = SMALL | {'dataset': 'text', 'dataset_options': options}
  fields |= {'model': 'Tiny', 'loss': 'tokens'}
  exp = experiment.build(fields, str(tmp_path))
  zero = jax.tree.map(np.zeros_like, exp.params)
  letters = len({*PLAY}) + 4
  batch = {k: x[-1:] for k, x in exp.data.items()}  # which is padded
  assert (batch['y'] < 0).any()
  assert exp.loss_fn(zero, batch) == pytest.approx(np.log(letters))
  sums = exp.metrics_fn(zero, batch)
  assert sums['count'] == (batch['y'] >= 0).sum()
  with pytest.raises(ValueError, match=r'Expected logits\[batch, classes\]'):
    experiment.build(fields | {'loss': 'classes'}, str(tmp_path))
  with pytest.raises(ValueError, match="kind='dirichlet' of samples without"):
    experiment.build(fields | {'partition': 'dirichlet'}, str(tmp_path))


@pytest.mark.nightly
@pytest.mark.usefixtures('drawn_by_numpy')
@pytest.mark.parametrize('published', [False, True])
def test_models_of_sequences_train_on_any_text(published, tmp_path):
  """Catches a model that is refused, and one of other tokens or places."""
  (tmp_path / 'play.txt').write_text(PLAY * 9)
  options = {'path': 'play.txt', 'tokens': 'characters', 'length': 12}
  if published:
    (tmp_path / 'vocab.txt').write_text('[UNK]\nto\nbe\nor\n')
    tokenizer = str(tmp_path / 'vocab.txt')
    options = {'path': 'play.txt', 'tokenizer': tokenizer, 'length': 12}
  model = {'width': 8, 'depth': 1, 'heads': 1}
  fields = SMALL | {'dataset': 'text', 'dataset_options': options}
  fields |= {'model': 'gpt_nano', 'model_options': model, 'loss': 'tokens'}
  exp = experiment.build(fields, str(tmp_path))
  words = 4 if published else len({*PLAY}) + 4
  assert exp.params['words'].shape == (words, 8)
  assert exp.params['positions'].shape == (12, 8)
  batch = {k: x[-2:] for k, x in exp.data.items()}
  assert exp.loss_fn(exp.params, batch) == pytest.approx(np.log(words), rel=0.1)


@pytest.mark.usefixtures('drawn_by_numpy')
def test_slices_are_taken_before_anything_is_shared():
  c = Config(**SMALL, train_slice='100:180', test_slice=':50')
  exp = experiment.build(c)
  whole = sources.load('digits')
  np.testing.assert_array_equal(exp.data['x'], whole.train['x'][100:180])
  assert exp.test['mask'].sum() == 50
  assert exp.partition.sizes.sum() == 80
  with pytest.raises(ValueError, match="train_slice='1400:1500' in 1437"):
    experiment.build(Config(**SMALL, train_slice='1400:1500'))


@pytest.mark.nightly
@pytest.mark.usefixtures('drawn_by_numpy')
def test_model_options_reach_the_model_and_sweeps():
  c = {**SMALL, 'model': 'vit_nano', 'model_options': {'depth': 1, 'patch': 4}}
  blocks = lambda exp: [k for k in exp.params if k.startswith('block')]
  assert blocks(experiment.build(c)) == ['block_0']
  swept = sweeps.points(c | {'sweep': {'model_options': {'depth': (1, 2)}}})
  assert [p.values for p in swept] == [
    {'model_options.depth': 1}, {'model_options.depth': 2},
  ]  # fmt: skip
  assert blocks(experiment.build(swept[1].config)) == ['block_0', 'block_1']
  c['model_options'] = {'stem_stride': 2}
  with pytest.raises(
    ValueError, match=r"of model 'vit_nano' in .*'stem_stride'"
  ):
    experiment.build(c)


def test_a_run_starts_from_a_file(tmp_path):
  linear = {**SMALL, 'model': 'linear'}
  exp = experiment.build({**linear, 'seed': 3})
  path = tmp_path / 'model.safetensors'
  pretrained.save(path, exp.params)
  second = experiment.build({**linear, 'seed': 4, 'pretrained': str(path)})
  same = jax.tree.map(np.array_equal, exp.params, second.params)
  assert jax.tree.all(same)


def test_a_private_run_says_that_it_starts_from_a_file():
  private = {'noise_multiplier': 1.0, 'delta': 1e-4, 'clip_norm': 1.0}
  c = {'algorithm': 'dp_fedavg', 'standardize': False, **private}
  account = lambda **more: experiment.account(Config(**c, **more))
  statement, plain = account(pretrained='x').statement, account().statement
  (more,) = set(statement.caveats) - set(plain.caveats)
  assert 'not protected' in more


@pytest.mark.nightly
@pytest.mark.usefixtures('drawn_by_numpy')
def test_sentences_train_a_bert(folder):
  exp = experiment.build({**SMALL, **BERT}, str(folder))
  assert exp.params['words'].shape == (120, 8)
  assert exp.params['positions'].shape == (10, 8)
  batch = jax.tree.map(lambda x: x[:6], exp.data)
  loss, grads = jax.jit(jax.value_and_grad(exp.loss_fn))(exp.params, batch)
  assert np.isfinite(loss)
  assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))
  assert exp.test['mask'].sum() == 20


def test_a_token_past_the_end_of_the_model_is_refused(folder):
  small = BERT['model_options'] | {'vocab_size': 20}
  c = {**SMALL, **BERT, 'model_options': small}
  with pytest.raises(ValueError, match=r'vocab_size=20 > token \d+\.'):
    experiment.build(c, str(folder))


@pytest.mark.nightly
@needs_sst2
def test_sst2_is_the_usual_one():
  dataset = text.sst2(DATA / 'tfds')
  assert dataset.train['x'].shape == (6920, 48)
  assert dataset.test['x'].shape == (1821, 48)
  assert np.bincount(dataset.train['y']).tolist() == [3310, 3610]
  assert np.bincount(dataset.test['y']).tolist() == [912, 909]
  assert dataset.train['x'].max() == 3999
  cut = (dataset.train['x'][:, -1] != 0).mean()
  assert 0.05 < cut < 0.07
