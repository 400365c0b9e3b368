"""Imports FLAIR, Reddit, photos by user and SQLite of natural clients.

Layouts that fl_sketch itself does not read, as a reader of yours could be:
each function yields (client, arrays) for `import_clients`.

  python docs/examples/natural_readers.py flair flair_federated.hdf5 runs/flair

FLAIR and Reddit are pfl-research's HDF5, /SPLIT/USER/COLUMN and /metadata.
Photos, of iNaturalist and Landmarks (Hsu et al., arXiv:2003.08082), are CSV
files of (user_id, image_id, class), federated_train.csv and test.csv, which has
no users, beside JPEGs. 'emnist' is emnist_all.sqlite.lzma of TensorFlow
Federated, unpacked by `unxz --format=lzma`: a tf.train.Example in each row.
"""

import contextlib
import csv
import itertools
import json
import pathlib
import sqlite3
import sys

from fl_sketch.data.natural import import_clients, tasks
import h5py
import numpy as np

AT_ONCE = 64  # photos


def flair(path, split, size=256):
  """Yields users' images and labels, y uint8[n, labels]."""
  with h5py.File(path) as file:
    labels = len(json.loads(file['metadata/label_mapping'][()]))
    for user, columns in file[split].items():
      images = columns['images'][()]
      x = [tasks.pixels(image, (size, size), resize=True) for image in images]
      y = np.zeros((len(images), labels), np.uint8)
      y[columns['labels_row'][()], columns['labels_col'][()]] = 1
      yield user, {'x': np.stack(x), 'y': y}


def reddit(path, split):
  """Yields users' tokens and those that follow; 0 is padding."""
  with h5py.File(path) as file:
    for user, columns in file[split].items():
      x, y = columns['inputs'][()], columns['targets'][()]
      y = np.where(y, y, -1)  # labels that do not count
      yield user, {'x': x.astype(np.int16), 'y': y.astype(np.int16)}


def photos(folder, table, size=224):
  """Yields photos of each user of a CSV file; None is the user of a test."""
  files = {file.stem: file for file in folder.rglob('*.jp*g')}
  with (folder / table).open(newline='') as file:
    rows = csv.DictReader(file)
    for user, run in itertools.groupby(rows, lambda row: row.get('user_id')):
      while some := [*itertools.islice(run, AT_ONCE)]:
        images = [files[row['image_id']].read_bytes() for row in some]
        shape = size, size, 3
        x = [tasks.pixels(image, shape, resize=True) for image in images]
        y = np.array([row['class'] for row in some], np.int32)
        yield user, {'x': np.stack(x), 'y': y}


def sqlite(path, split, task):
  """Yields clients of TensorFlow Federated's SQLite, as arrays of a task."""
  query = (
    'SELECT client_id, serialized_example_proto FROM examples '
    'WHERE split_name = ?'
  )
  with contextlib.closing(sqlite3.connect(path)) as base:
    rows = base.execute(query, (split,))
    for client, run in itertools.groupby(rows, lambda row: row[0]):
      examples = [example(content) for _, content in run]
      columns = {k: [x[k] for x in examples] for k in examples[0]}
      yield client, task.arrays(columns)


def example(content):
  """Returns the features of a serialised tf.train.Example by name."""
  columns = {}
  for features in parts(content):
    for entry in parts(features):
      name, feature = parts(entry)
      ((kind, values),) = fields(feature)
      values = [*parts(values)]
      if kind == 2:
        values = np.frombuffer(b''.join(values), '<f4')
      elif kind == 3:
        values = np.array([*varints(b''.join(values))], np.uint64).view(int)
      columns[name.decode()] = values
  return columns


def varints(content):
  """Yields the integers of a packed field."""
  number = shift = 0
  for byte in content:
    number |= (byte & 127) << shift
    shift += 7
    if byte < 128:
      yield number
      number = shift = 0


def fields(content):
  """Yields number and bytes of each field of a message."""
  while content:
    tag, size = itertools.islice(varints(content), 2)
    start = sum(1 + max(x.bit_length() - 1, 0) // 7 for x in (tag, size))
    yield tag >> 3, content[start : start + size]
    content = content[start + size :]


def parts(content):
  """Yields the bytes of each field of a message."""
  return (value for _, value in fields(content))


def import_files(kind, path, to, **options):
  """Writes a store of 'flair', 'reddit', 'photos' or 'emnist'."""
  path = pathlib.Path(path)
  if kind in ('flair', 'reddit'):
    path = path if path.is_file() else next(path.glob('*.hdf5'))
    with h5py.File(path) as file:
      held_out = 'test' if 'test' in file else 'val'
      metadata = {name: x[()] for name, x in file['metadata'].items()}
  if kind == 'flair':
    classes = len(json.loads(metadata['label_mapping']))
    splits = (flair(path, x, **options) for x in ('train', held_out))
  elif kind == 'reddit':
    classes = int(metadata['vocabulary_size'])
    splits = (reddit(path, x) for x in ('train', held_out))
  elif kind == 'photos':
    (table,) = (x.name for x in path.glob('*train*.csv'))
    with (path / table).open(newline='') as file:
      classes = 1 + max(int(row['class']) for row in csv.DictReader(file))
    splits = (photos(path, x, **options) for x in (table, 'test.csv'))
  else:
    path = path if path.is_file() else next(path.glob('*.sqlite'))
    classes = 62
    task = tasks.images(num_classes=62, shape=(28, 28, 1), invert=True)
    splits = (sqlite(path, x, task) for x in ('all_train', 'all_test'))
  train, test = splits
  return import_clients(train, to, classes, test=test)


if __name__ == '__main__':
  import_files(*sys.argv[1:4])
