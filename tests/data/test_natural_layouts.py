"""Tasks of texts, photos and several labels, from files as published."""

import sqlite3

from fl_sketch import runs
from fl_sketch.data import sources, store
from fl_sketch.data.natural import importing, tasks
import harness
import natural_files
import numpy as np
from PIL import Image
import pytest
from refusals import refused

PLAYS = harness.DATA.parent / 'tinyshakespeare'
# A serialised tf.train.Example of a label, 7, and 784 pixels.
EXAMPLE = (
  b'\n\xe4\x18\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07'
  b'\n\xd1\x18\n\x06pixels\x12\xc6\x18\x12\xc3\x18\n\xc0\x18'
) + np.float32([0.2] + [1.0] * 783).tobytes()


def test_snippets_are_tokenised_by_the_letters_of_the_reference(
  files, tmp_path
):
  """Catches another of 86 letters, labels not shifted, padding that counts."""
  texts = {'HAMLET': ['dh', 'ü', ''], 'A_LADY': ['x' * 100]}
  some = {name: {'snippets': lines} for name, lines in texts.items()}
  natural_files.write_tff(files, some, some, 'shakespeare')
  data = importing.import_data('shakespeare', files, tmp_path / 's')
  assert data.num_classes == 90
  assert [x.decode() for x in data.ids] == ['A_LADY', 'HAMLET']
  x, y = np.asarray(data.train['x']), np.asarray(data.train['y'])
  assert data.offsets.tolist() == [0, 2, 5]
  assert x[2, :4].tolist() == [88, 1, 2, 89]  # begin, d, h, end
  assert y[2, :4].tolist() == [1, 2, 89, -1]
  assert (x.dtype, x[4, :3].tolist(), y[4, 1]) == (np.int16, [88, 89, 0], -1)
  assert x[3, :3].tolist() == [88, 87, 89]  # a letter of no alphabet
  assert (x[0] == [88] + [6] * 79).all()
  assert y[1, :21].tolist() == [6] * 19 + [89, -1]


def test_leaf_predicts_one_letter_from_eighty():
  """Catches labels of another alphabet, and letters that are others."""
  letters = tasks.LEAF_LETTERS
  task = tasks.KINDS['shakespeare']['leaf']()
  text = (letters * 2)[:80]
  got = task.arrays({'x': [text, text[::-1]], 'y': ['a', '}']})
  assert task.num_classes == len(letters) == len(set(letters))
  assert ''.join(letters[i] for i in got['x'][0]) == text
  assert [letters[i] for i in got['y']] == ['a', '}']
  for odd, label in (('ROMEÖ', 'a'), ('ROMEO', 'ab')):
    with pytest.raises(KeyError):
      task.arrays({'x': [odd], 'y': [label]})


def test_the_test_of_cifar100_is_of_other_clients_with_the_same_names(
  files, tmp_path
):
  """Catches test images of a stranger that a client holds out."""
  natural_files.KINDS['cifar100'](files, range(3))
  data = importing.import_data('cifar100', files, tmp_path / 's')
  assert data.held_out is None
  assert data.partition.sizes.tolist() == [2] * 3
  assert np.asarray(data.test['y']).tolist() == [0, 99, 1, 99, 2, 99]


def test_words_of_stack_overflow(files, tmp_path):
  """Catches a sentence that is not cut, and a vocabulary in another order."""
  (files / 'stackoverflow.word_count').write_text(
    'the 9\na b 5\ncat 2\ndog 1\n'
  )
  sentences = ['the dog saw the cat', ' '.join(['the'] * 30)]
  some = {'17': {'tokens': sentences, 'title': sentences}}
  natural_files.write_tff(files, some, some, 'stackoverflow')
  held_out = files / 'stackoverflow_held_out.h5'
  (files / 'stackoverflow_test.h5').rename(held_out)
  short = {'vocabulary': 3, 'length': 6}
  data = importing.import_data('stackoverflow', files, tmp_path / 's', **short)
  x, y = np.asarray(data.train['x']), np.asarray(data.train['y'])
  # 1 the, 2 'a b', 3 cat, 4 others, 5 begin, 6 end.
  assert x.tolist() == [[5, 1, 4, 4, 1, 3], [5, 1, 1, 1, 1, 1]]
  assert y.tolist() == [[1, 4, 4, 1, 3, 6], [1] * 6]
  assert data.num_classes == 7
  many = tasks.next_words([f'{i}' for i in range(2**15)])
  assert many.arrays({'tokens': ['32767']})['x'][0, 1] == 2**15
  with pytest.raises(sources.DataError, match='word_count'):
    importing.import_data('stackoverflow', files, tmp_path / 't')


def test_rows_of_sqlite_are_examples(tmp_path):
  """Catches pixels or labels that are read at another place of a message."""
  rows = ('all_train', 'b'), ('all_train', 'a'), ('all_test', 'a')
  names = 'split_name, client_id, serialized_example_proto'
  with sqlite3.connect(tmp_path / 'emnist_all.sqlite') as base:
    base.execute(f'CREATE TABLE examples ({names})')
    for row in rows:
      base.execute('INSERT INTO examples VALUES (?, ?, ?)', (*row, EXAMPLE))
  base.close()
  data = natural_files.import_any('emnist', tmp_path, tmp_path / 'store')
  assert data.ids.tolist() == [b'b', b'a']
  assert data.held_out.tolist() == [0, 0, 1]
  assert data.train['y'].tolist() == [7, 7]
  pixels = np.asarray(data.train['x'])
  assert pixels[:, 0, 0, 0].tolist() == [204, 204]
  assert pixels[:, -1, -1, 0].tolist() == [0, 0]


@pytest.mark.parametrize('mode', ['L', 'RGB', 'LA'])
@pytest.mark.parametrize('channels', [1, 3])
def test_an_image_has_the_channels_of_its_kind(mode, channels):
  """Catches colours among letters."""
  x = natural_files.pixels(0, (4, 4))
  content = natural_files.png(np.asarray(Image.fromarray(x).convert(mode)))
  got = tasks.pixels(content, (4, 4, channels))
  np.testing.assert_array_equal(got, np.stack([x] * channels, -1))


# Catches colours among letters, 16 bits that are white, and parts beyond 1.
DEEP = np.full((4, 4), 300, np.uint16)
test_other_pixels_are_refused = refused(
  lambda x: tasks.pixels(*x),
  ((natural_files.png(DEEP), (4, 4)), 'Pixels'), ((DEEP, (4, 4)), 'Pixels'),
  (([0.5, 1.5], (4, 4)), 'Pixels'),
  ((np.zeros((4, 4, 3), np.uint8), (4, 4, 1)), 'shape'),
  ((np.zeros((4, 4, 1), np.uint8), (4, 4, 3)), 'shape'),
)  # fmt: skip


def test_a_slice_of_the_test_is_not_of_clients(tmp_path):
  """Catches clients that evaluate on a slice, and a test that is whole."""
  natural_files.make_store('femnist', tmp_path, range(5))
  fields = {
    'dataset': 'store', 'dataset_options': {'folder': str(tmp_path / 'store')},
    'population': 5, 'cohort': 2, 'model': 'linear', 'personal_steps': 0,
  }  # fmt: skip
  exp = runs.build(fields | {'test_slice': ':3'})
  assert exp.test['mask'].sum() == 3
  assert exp.held_out.sizes.tolist() == [2] * 5
  with pytest.raises(ValueError, match='train_slice'):
    runs.build(fields | {'train_slice': ':3'})


@pytest.mark.skipif(not PLAYS.is_dir(), reason=f'no plays in {PLAYS}')
def test_the_speakers_of_shakespeare_are_imported(tmp_path):
  """Catches a speaker who is lost, and letters that the alphabet lacks."""
  to = tmp_path / 'plays'
  done = harness.command('import_data', 'plays', str(PLAYS), f'--to={to}')
  assert done.returncode == 0, done.stderr
  data = store.open(to)
  assert f'| training | {data.partition.population} |' in done.stdout
  assert b'ROMEO' in data.ids.tolist()
  # Letters that the alphabet lacks have one number: here it has all.
  assert data.num_classes == 90
  assert not (np.asarray(data.train['x']) == 87).any()
