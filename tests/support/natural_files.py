"""Files of natural clients, few samples each, as tests write them.

`LAYOUTS` has those of FEMNIST: (folder, train, test) of `people`; `KINDS` one
layout of every kind, (folder, clients); `FOREIGN` those that an example reads.
"""

import csv
import io
import json

from examples import natural_readers
from fl_sketch.data.natural import importing, tasks
import h5py
import numpy as np
from PIL import Image
import pyarrow as pa
from pyarrow import parquet

CLIENTS = ['f0003_41', 'f0000_14', 'writer with spaces', 'Ünal']


def people(names=CLIENTS, shape=(28, 28)):
  """Clients with images of 0 to 1, of which the third has no test."""
  rng = np.random.default_rng(0)

  def some(n):
    x = rng.integers(0, 256, (n, *shape)).astype(np.float32) / 255
    return {'pixels': x, 'label': rng.integers(0, 62, n).astype(np.int32)}

  train = {name: some(i % 4 + 1) for i, name in enumerate(names)}
  test = {name: some(2) for i, name in enumerate(names) if i != 2}
  return train, test


def inverted(x):
  return np.rint(255 * (1 - np.asarray(x))).astype(np.uint8)[..., None]


def write_tff(folder, train, test, stem='fed_emnist'):
  for split, people_ in (('train', train), ('test', test)):
    with h5py.File(folder / f'{stem}_{split}.h5', 'w') as file:
      for name, columns in people_.items():
        for key, x in columns.items():
          kind = {'dtype': h5py.string_dtype()} if isinstance(x, list) else {}
          file.create_dataset(f'examples/{name}/{key}', data=x, **kind)


def write_leaf(folder, train, test):
  flat = lambda images: images.reshape(len(images), -1).tolist()
  for split, some in (('train', train), ('test', test)):
    (folder / split).mkdir()
    users = {
      name: {'x': flat(x['pixels']), 'y': x['label'].tolist()}
      for name, x in some.items()
    }
    content = json.dumps({'users': [*users], 'user_data': users})
    (folder / split / 'all_data_0.json').write_text(content)


def png(x):
  file = io.BytesIO()
  Image.fromarray(x).save(file, 'png')
  return file.getvalue()


def write_parquet(folder, train, test):
  """Rows with images as PNG, as Hugging Face has them."""
  for split, some in (('train', train), ('test', test)):
    rows = [
      (name, png(np.rint(255 * x).astype(np.uint8)), int(y))
      for name, columns in some.items()
      for x, y in zip(columns['pixels'], columns['label'], strict=True)
    ]
    names, images, labels = zip(*rows, strict=True)
    images = [{'bytes': x, 'path': None} for x in images]
    columns = {'writer_id': names, 'image': images, 'character': labels}
    table = pa.table(columns)
    parquet.write_table(table, folder / f'{split}-00000-of-00001.parquet')


LAYOUTS = {'tff': write_tff, 'leaf': write_leaf, 'table': write_parquet}


def write_stackoverflow(folder, clients):
  words = [f'word{i}' for i in range(10_000)]
  lines = ''.join(f'{word} {20_000 - i}\n' for i, word in enumerate(words))
  (folder / 'stackoverflow.word_count').write_text(lines)
  some = {f'{i}': {'tokens': [' '.join(words[i : i + 6])]} for i in clients}
  write_tff(folder, some, some, 'stackoverflow')


def write_photos(folder, clients):
  with (folder / 'federated_train.csv').open('w', newline='') as file:
    rows = [(f'u{i}', f'i{i}', i % 3) for i in clients]
    csv.writer(file).writerows([('user_id', 'image_id', 'class'), *rows])
  (folder / 'test.csv').write_text('image_id,class\ni0,0\n')
  for i in clients:
    Image.fromarray(pixels(i, (30, 40, 3))).save(folder / f'i{i}.jpg')


def write_flair(folder, clients):
  """Images of users, of which others train, as those of FLAIR."""
  labels = {f'label{i}': i for i in range(17)}
  with h5py.File(folder / 'flair_federated.hdf5', 'w') as file:
    file['metadata/label_mapping'] = json.dumps(labels)
    for split in 'train', 'val', 'test':
      for i in clients:
        group = file.create_group(f'{split}/{split}{i}')
        group['images'] = pixels(i, (2, 16, 16, 3))
        group['image_ids'] = np.array([b'a', b'b'])
        group['labels_row'], group['labels_col'] = [0, 1], [i % 17, 16]
        for name in 'row', 'col':
          group[f'fine_grained_labels_{name}'] = [0, 0, 1]


def write_reddit(folder, clients):
  with h5py.File(folder / 'reddit.hdf5', 'w') as file:
    file['metadata/vocabulary_size'] = 10_000
    for split in 'train', 'val':
      for i in clients:
        tokens = np.arange(22).reshape(2, 11) + 1 + i
        file[f'{split}/{i}/inputs'] = tokens[:, :-1]
        file[f'{split}/{i}/targets'] = tokens[:, 1:]


def write_plays(folder, clients):
  speech = 'to be or not ' * 10
  blocks = [f'SPEAKER{i}:\n{speech}' for i in clients]
  (folder / 'input.txt').write_text('\n\n'.join(blocks * 12))


def pixels(seed, shape):
  rng = np.random.default_rng(seed)
  return rng.integers(0, 256, shape, dtype=np.uint8)


def _of_tff(stem, columns):
  def write(folder, clients):
    some = {f'{i}': columns(i) for i in clients}
    write_tff(folder, some, some, stem)

  return write


KINDS = {
  'femnist': _of_tff('fed_emnist', lambda i: {
    'pixels': pixels(i, (2, 28, 28)).astype(np.float32) / 255,
    'label': np.array([i % 62, 61])}),
  'cifar100': _of_tff('fed_cifar100', lambda i: {
    'image': pixels(i, (2, 32, 32, 3)), 'label': np.array([i % 100, 99]),
    'coarse_label': np.array([0, 19])}),
  'shakespeare': _of_tff('shakespeare', lambda i: {
    'snippets': [f'To be, or not {i}', 'Aye']}),
  'stackoverflow': write_stackoverflow, 'plays': write_plays,
}  # fmt: skip
FOREIGN = {
  'photos': write_photos, 'flair': write_flair, 'reddit': write_reddit,
}  # fmt: skip


def make_store(kind, folder, clients, **options):
  """The store folder/store of files of any kind, written to folder/files."""
  files = folder / 'files'
  files.mkdir()
  (KINDS | FOREIGN)[kind](files, clients)
  return import_any(kind, files, folder / 'store', **options)


def import_any(kind, files, to, **options):
  """Imports files of a kind, by the example's readers if it is foreign."""
  foreign = kind not in tasks.KINDS
  read = natural_readers.import_files if foreign else importing.import_data
  return read(kind, files, to, **options)
