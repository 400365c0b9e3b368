"""Layouts of texts, photos and several labels, as they are published."""

import csv
import io
import json

from fl_sketch.data import sources
from fl_sketch.data.natural import importing, tasks
from fl_sketch.data.natural.records import Records
import h5py
import natural_files
import numpy as np
from PIL import Image
import pytest


def test_snippets_are_tokenised_by_the_letters_of_the_reference(
  files, tmp_path
):
  """Catches another alphabet: 86 letters, of which 'd' is the first."""
  texts = {'HAMLET': ['dh', 'ü'], 'A_LADY': ['x' * 100]}
  some = {name: {'snippets': lines} for name, lines in texts.items()}
  natural_files.write_tff(files, some, some, 'shakespeare')
  data = importing.import_data('shakespeare', files, tmp_path / 's')
  assert data.num_classes == 90
  assert [x.decode() for x in data.ids] == ['A_LADY', 'HAMLET']
  x, y = np.asarray(data.train['x']), np.asarray(data.train['y'])
  assert data.offsets.tolist() == [0, 2, 4]
  assert x[2, :4].tolist() == [88, 1, 2, 89]  # begin, d, h, end
  assert y[2, :4].tolist() == [1, 2, 89, -1]
  assert x[3, :3].tolist() == [88, 87, 89]  # a letter of no alphabet
  assert (x[0] == [88] + [6] * 79).all()
  assert y[1, :21].tolist() == [6] * 19 + [89, -1]


def leaf(folder, text, follows, counts=(2, 2)):
  for split, count in zip(('train', 'test'), counts, strict=True):
    (folder / split).mkdir()
    users = {'ROMEO': {'x': [text, text[::-1]], 'y': follows}}
    content = {'users': [*users], 'num_samples': [count], 'user_data': users}
    (folder / split / 'all.json').write_text(json.dumps(content))


def test_leaf_tells_one_letter_from_eighty(files, tmp_path):
  """Catches labels of another alphabet than that of the texts."""
  text = (tasks.LEAF_LETTERS * 2)[:80]
  leaf(files, text, ['a', '}'])
  data = importing.import_data('shakespeare', files, tmp_path / 's')
  letters = tasks.LEAF_LETTERS
  assert data.num_classes == len(letters) == len(set(letters))
  row = ''.join(letters[i] for i in np.asarray(data.train['x'][0]))
  assert row == text
  assert [letters[i] for i in data.train['y']] == ['a', '}']


def test_the_test_of_cifar100_is_of_other_clients_with_the_same_names(
  files, tmp_path
):
  """Catches test images of a stranger that a client holds out."""
  natural_files.KINDS['cifar100'](files, range(3))
  data = importing.import_data('cifar100', files, tmp_path / 's')
  assert data.held_out is None
  assert data.partition.sizes.tolist() == [2] * 3
  assert np.asarray(data.test['y']).tolist() == [0, 99, 1, 99, 2, 99]


@pytest.mark.parametrize(('text', 'follows', 'counts', 'said'), [
  # LEAF counts 79 texts of a test more than it writes.
  ('ROMEO', ['a', 'a'], (2, 2 + 79), None),
  ('ROMEO', ['a', 'a'], (2 + 79, 2), 'num_samples=81 of user .* has 2'),
  ('ROMEÖ', ['a', 'a'], (2, 2), 'letters of LEAF'),
  ('ROMEO', ['a'], (2, 2), 'has 1 labels of user'),
  ('ROMEO', ['ab', 'ab'], (2, 2), 'a label of several letters'),
  ('ROMEO', 2, (2, 2), 'all.json cannot be read'),
])  # fmt: skip
def test_odd_texts_of_leaf_are_refused(
  text, follows, counts, said, files, tmp_path
):
  """Catches files as LEAF's split_data.py writes them that are refused."""
  leaf(files, text, follows, counts)
  if said is None:
    data = importing.import_data('shakespeare', files, tmp_path / 's')
    assert len(data.test['y']) == 2
    return
  with pytest.raises(sources.DataError, match=said):
    importing.import_data('shakespeare', files, tmp_path / 's')
  assert not (tmp_path / 's.partial').exists()


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
  with pytest.raises(sources.DataError, match='words, not 10000'):
    importing.import_data('stackoverflow', files, tmp_path / 't')


def jpeg(path, shade, shape=(40, 30)):
  image = np.full((*shape, 3), shade, np.uint8)
  Image.fromarray(image).save(path, quality=95)
  with Image.open(path) as again:
    return np.asarray(again)


def test_photos_of_users_and_a_test_of_nobody(tmp_path):
  """Catches users that follow the order of images, and a test with owners."""
  (files := tmp_path / 'files' / 'images').mkdir(parents=True)
  rows = [('u7', 'i1', 3), ('u7', 'i2', 0), ('u2', 'i3', 1)]
  wanted = {}
  for shade, name in enumerate(('i1', 'i2', 'i3', 'i4')):
    wanted[name] = jpeg(files / f'{name}.jpg', 60 * shade)
  for name, head, some in (
    ('federated_train', ['user_id', 'image_id', 'class'], rows),
    ('test', ['image_id', 'class'], [('i4', 2)]),
  ):
    with (tmp_path / 'files' / f'{name}.csv').open('w', newline='') as file:
      csv.writer(file).writerows([head, *some])
  data = importing.import_data(
    'photos', tmp_path / 'files', tmp_path / 's', size=8
  )
  assert [x.decode() for x in data.ids] == ['u7', 'u2']
  assert data.partition.sizes.tolist() == [2, 1]
  assert data.held_out is None
  assert data.num_classes == 4
  assert np.asarray(data.train['y']).tolist() == [3, 0, 1]
  assert np.asarray(data.test['y']).tolist() == [2]
  resize = lambda x: Image.fromarray(x).resize(
    (8, 8), Image.Resampling.BILINEAR
  )
  want = np.stack([np.asarray(resize(wanted[n])) for n in ('i1', 'i2', 'i3')])
  np.testing.assert_array_equal(np.asarray(data.train['x']), want)
  (files / 'i2.jpg').unlink()
  with pytest.raises(sources.DataError, match=r"one image 'i2', found \[\]"):
    importing.import_data('photos', tmp_path / 'files', tmp_path / 't', size=8)


def test_several_labels_of_an_image(files, tmp_path):
  """Catches rows and columns of labels that are exchanged."""
  natural_files.KINDS['flair'](files, range(2))
  path = files / 'flair_federated.hdf5'
  data = importing.import_data('flair', path, tmp_path / 's', size=16)
  y = np.asarray(data.train['y'])
  assert np.argwhere(y).tolist() == [[0, 0], [1, 16], [2, 1], [3, 16]]
  assert data.num_classes == y.shape[1] == 17
  images = [natural_files.pixels(i, (2, 16, 16, 3)) for i in range(2)]
  np.testing.assert_array_equal(data.train['x'], np.concatenate(images))


@pytest.mark.parametrize(('place', 'value'), [
  ('train/train0/labels_col', [0, 99]),
  ('train/train0/labels_col', [0, -1]),
  ('train/train0/labels_col', [0]),
  ('train/train0/images', 3),
  ('metadata/label_mapping', '{oops'),
])  # fmt: skip
def test_odd_values_of_flair_are_refused(place, value, files, tmp_path):
  """Catches a bare traceback, and labels that are those of others."""
  natural_files.KINDS['flair'](files, range(2))
  with h5py.File(files / 'flair_federated.hdf5', 'a') as file:
    del file[place]
    file[place] = value
  with pytest.raises(sources.DataError, match=r'flair_federated\.hdf5'):
    importing.import_data('flair', files, tmp_path / 's', size=16)
  assert [x.name for x in tmp_path.iterdir()] == ['files']


def test_tokens_of_reddit(tmp_path):
  """Catches tokens out of the vocabulary, and labels that are not shifted."""
  path = tmp_path / 'reddit.hdf5'
  tokens = np.array([[5, 6, 7, 0], [8, 9, 0, 0]])
  with h5py.File(path, 'w') as file:
    file['metadata/vocabulary_size'] = 10
    for split in 'train', 'val':
      file[f'{split}/anna/inputs'] = tokens[:, :-1]
      file[f'{split}/anna/targets'] = tokens[:, 1:]
  data = importing.import_data('reddit', path, tmp_path / 's')
  assert np.asarray(data.train['x']).tolist() == tokens[:, :-1].tolist()
  assert np.asarray(data.train['y']).tolist() == [[6, 7, -1], [9, -1, -1]]
  with h5py.File(path, 'a') as file:
    file['metadata/vocabulary_size'][()] = 9
  with pytest.raises(sources.DataError, match='tokens beyond 8'):
    importing.import_data('reddit', path, tmp_path / 't')


@pytest.mark.parametrize('mode', ['L', 'RGB', 'LA', 'I;16'])
@pytest.mark.parametrize('channels', [1, 3])
def test_an_image_has_the_channels_of_its_kind(mode, channels):
  """Catches colours among letters, and 16 bits that become white."""
  x = natural_files.pixels(0, (4, 4))
  image = Image.fromarray(x).convert(mode)
  image.save(file := io.BytesIO(), 'png')
  record = {'image': [{'bytes': file.getvalue()}], 'label': [1]}
  task = tasks.images(num_classes=2, shape=(4, 4, channels))
  if mode == 'I;16':
    with pytest.raises(sources.DataError, match='8 bits'):
      task.arrays(Records('anna', 'train', record))
    return
  got = task.arrays(Records('anna', 'train', record))['x']
  np.testing.assert_array_equal(got, np.stack([x] * channels, -1)[None])
  raw = np.zeros((1, 4, 4, 4 - channels), np.uint8)
  with pytest.raises(sources.DataError, match='Images have shape'):
    task.arrays(Records('anna', 'train', {'image': raw, 'label': [1]}))


@pytest.mark.parametrize(
  ('kind', 'said'),
  [('bytes', 'An image is damaged'), ('range', 'or fractions 0 to 1')],
)
def test_images_that_are_none_are_refused(kind, said):
  """Catches pixels that wrap, and a decoder's error without a name."""
  file = io.BytesIO()
  Image.new('L', (4, 4)).save(file, 'png')
  image = file.getvalue()[:40] if kind == 'bytes' else [[0.5, 1.5]]
  task = tasks.images(num_classes=2)
  records = Records('anna', 'train', {'image': [image], 'label': [1]})
  with pytest.raises(sources.DataError, match=said):
    task.arrays(records)
