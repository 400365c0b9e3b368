"""Published files of natural clients, as this module writes them, and imports.

What comes out of the store is what was written, in its order, but for the
transformation that the task documents.
"""

import io
import json
import lzma
import sqlite3
import struct
import zlib

from fl_sketch.data import sources, store
from fl_sketch.data.natural import (
  examples,
  importing,
  plays,
  spool as spool_lib,
  tasks,
)
from flax import serialization
import h5py
import numpy as np
from PIL import Image
import pyarrow as pa
from pyarrow import parquet
import pytest

RNG = np.random.default_rng(0)
CLIENTS = ['f0003_41', 'f0000_14', 'writer with spaces', 'Ünal']


def people(classes=62, shape=(28, 28)):
  """Clients with images of 0 to 1, of which the third has no test."""

  def some(n):
    x = RNG.integers(0, 256, (n, *shape)).astype(np.float32) / 255
    return {'pixels': x, 'label': RNG.integers(0, classes, n).astype(np.int32)}

  train = {name: some(i + 1) for i, name in enumerate(CLIENTS)}
  test = {name: some(2) for name in CLIENTS if name != CLIENTS[2]}
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


def varint(n):
  out = bytearray()
  while True:
    out.append((n & 127) | (128 if n > 127 else 0))
    n >>= 7
    if not n:
      return bytes(out)


def field(number, content):
  return varint(number << 3 | 2) + varint(len(content)) + content


def example(columns):
  entries = b''
  for name, x in columns.items():
    x = np.atleast_1d(x)
    if x.dtype.kind == 'f':
      value = field(2, field(1, x.astype('<f4').tobytes()))
    else:
      packed = b''.join(varint(int(v) & (2**64 - 1)) for v in x)
      value = field(3, field(1, packed))
    entries += field(1, field(1, name.encode()) + field(2, value))
  return field(1, entries)


def write_sqlite(folder, train, test, packed=True):
  path = folder / 'emnist_all.sqlite'
  with sqlite3.connect(path) as base:
    base.execute(
      'CREATE TABLE examples (split_name TEXT, client_id TEXT, '
      'serialized_example_proto BLOB)'
    )
    base.execute(
      'CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, '
      'num_examples INTEGER)'
    )
    for split, some in (('all_train', train), ('all_test', test)):
      for name, columns in some.items():
        count = len(columns['label'])
        row = name, split, count
        base.execute('INSERT INTO client_metadata VALUES (?, ?, ?)', row)
        for i in range(count):
          one = {k: x[i].ravel() for k, x in columns.items()}
          base.execute(
            'INSERT INTO examples VALUES (?, ?, ?)', (split, name, example(one))
          )
  base.close()
  if packed:
    path.with_suffix('.sqlite.lzma').write_bytes(
      lzma.compress(path.read_bytes())
    )
    path.unlink()


def write_fedjax(folder, train, test):
  for split, some in (('train', train), ('test', test)):
    with sqlite3.connect(folder / f'federated_emnist_{split}.sqlite') as base:
      base.execute(
        'CREATE TABLE federated_data (client_id BLOB, data BLOB, '
        'num_examples INTEGER)'
      )
      for name, columns in some.items():
        data = zlib.compress(serialization.msgpack_serialize(columns))
        row = name.encode(), data, len(columns['label'])
        base.execute('INSERT INTO federated_data VALUES (?, ?, ?)', row)
    base.close()


def write_leaf(folder, train, test):
  for split, some in (('train', train), ('test', test)):
    (folder / split).mkdir()
    content = {'users': [*some], 'num_samples': [], 'user_data': {}}
    for name, columns in some.items():
      x = columns['pixels'].reshape(len(columns['label']), -1)
      content['num_samples'].append(len(x))
      content['user_data'][name] = {
        'x': x.tolist(), 'y': columns['label'].tolist(),
      }  # fmt: skip
    (folder / split / 'all_data_0.json').write_text(json.dumps(content))


def png(x):
  file = io.BytesIO()
  Image.fromarray(x).save(file, 'png')
  return file.getvalue()


def write_parquet(folder, train, test):
  """Rows of clients in turn, as Hugging Face has them, images as PNG."""
  for split, some in (('train', train), ('test', test)):
    rows = [
      (name, png(np.rint(255 * x).astype(np.uint8)), int(y))
      for name, columns in some.items()
      for x, y in zip(columns['pixels'], columns['label'], strict=True)
    ]
    rows = rows[::2] + rows[1::2]
    names, images, labels = zip(*rows, strict=True)
    table = pa.table(
      {
        'writer_id': names,
        'image': [{'bytes': x, 'path': None} for x in images],
        'character': labels,
      }
    )
    parquet.write_table(table, folder / f'{split}-00000-of-00001.parquet')


LAYOUTS = {
  'tff': write_tff,
  'sqlite': write_sqlite,
  'fedjax': write_fedjax,
  'leaf': write_leaf,
  'table': write_parquet,
}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_what_is_written_comes_out_of_the_store(layout, tmp_path):
  """Catches clients that are mixed up, pixels that are not inverted."""
  train, test = people()
  files = tmp_path / 'files'
  files.mkdir()
  LAYOUTS[layout](files, train, test)
  data = importing.import_data('femnist', files, tmp_path / 'store')
  names = [name.decode() for name in data.ids]
  # HDF5 has its groups in the order of their names, tables in that of rows.
  assert set(names) == set(CLIENTS)
  if layout != 'tff':
    assert names[:2] == CLIENTS[:2]
  assert data.num_classes == 62
  for i, name in enumerate(names):
    for offsets, arrays, of in (
      (data.offsets, data.train, train),
      (data.held, data.test, test),
    ):
      part = slice(offsets[i], offsets[i + 1])
      x, y = np.asarray(arrays['x'][part]), np.asarray(arrays['y'][part])
      want = of.get(name, {'pixels': x[:0, ..., 0], 'label': y[:0]})
      order = np.arange(len(y))
      if layout == 'table':  # rows were in another order
        key = lambda images: [image.tobytes() for image in images]
        order = np.argsort(key(x))
        shown = inverted(want['pixels'])
        again = np.argsort(key(shown))
        np.testing.assert_array_equal(x[order], shown[again])
        np.testing.assert_array_equal(y[order], want['label'][again])
      else:
        np.testing.assert_array_equal(x, inverted(want['pixels']))
        np.testing.assert_array_equal(y, want['label'])


def test_tables_of_one_order_stay_in_it(tmp_path):
  """Catches rows that are sorted: those of a client keep their order."""
  rows = [('b', 5), ('a', 3), ('b', 1), ('c', 9), ('a', 2), ('b', 7)]
  for split in 'train', 'test':
    lines = '\n'.join(f'{name},{label},{label}' for name, label in rows)
    (tmp_path / f'{split}.csv').write_text(f'who,label,shade\n{lines}\n')
  task = tasks.Task(
    lambda r: {'y': np.array(r.columns['label'], np.int32)}, 10, {}
  )
  kinds = importing.KINDS | {'own': importing.Kind(lambda *_: task, ('table',))}
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(importing, 'KINDS', kinds)
    data = importing.import_data('own', tmp_path, tmp_path / 's', client='who')
  assert [x.decode() for x in data.ids] == ['b', 'a', 'c']
  assert np.asarray(data.train['y']).tolist() == [5, 1, 7, 3, 2, 9]
  assert data.offsets.tolist() == data.held.tolist() == [0, 3, 5, 6]


def test_an_example_has_all_kinds_of_features():
  """Catches negative integers, unpacked numbers and lists of bytes."""
  unpacked = field(3, b''.join(varint(1 << 3) + varint(v) for v in (7, 300)))
  floats = field(2, struct.pack('<BfBf', 13, 0.5, 13, -2.0))
  strings = field(1, field(1, b'ab') + field(1, b''))
  entries = b''.join(
    field(1, field(1, name) + field(2, value))
    for name, value in ((b'i', unpacked), (b'f', floats), (b's', strings))
  )
  got = examples.parse(field(1, entries))
  assert got['i'].tolist() == [7, 300]
  assert got['f'].tolist() == [0.5, -2.0]
  assert got['s'] == [b'ab', b'']
  minus = examples.parse(example({'y': np.array([-1, 3])}))
  assert minus['y'].tolist() == [-1, 3]


def test_characters_are_those_before_the_next():
  """Catches labels that are not shifted, and padding that counts."""
  task = tasks.characters(letters='ab', length=4)
  records = importing.Records('anna', 'train', {'snippets': [b'abab?', b'']})
  got = task.arrays(records)
  # 1 a, 2 b, 3 others, 4 begin, 5 end.
  assert got['x'].tolist() == [[4, 1, 2, 1], [3, 5, 0, 0], [4, 5, 0, 0]]
  assert got['y'].tolist() == [[1, 2, 1, 2], [5, -1, -1, -1], [5, -1, -1, -1]]
  assert task.num_classes == 6


def test_speakers_are_clients(tmp_path):
  """Catches speeches of another speaker, and a test that is trained on."""
  long = 'x' * 600
  parts = [('ANNA', f'one {long}'), ('Both', 'few'), ('ANNA', f'two {long}')]
  parts += [('ANNA', 'three: with a colon\nand a line')]
  text = '\n\n'.join(f'{name}:\n{speech}' for name, speech in parts)
  (tmp_path / 'input.txt').write_text(text)
  train, test = plays.speeches(tmp_path)
  assert train.client == test.client == 'ANNA'
  assert train.columns['text'] == [f'one {long}']
  assert test.columns['text'][-1] == 'three: with a colon\nand a line'


def damaged(folder, layout):
  train, test = people()
  LAYOUTS[layout](folder, train, test)
  (path, *_) = sorted(x for x in folder.rglob('*train*') if x.is_file()) or (
    sorted(x for x in folder.rglob('*') if x.is_file())
  )
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_truncated_file_is_named_and_leaves_nothing(layout, tmp_path):
  """Catches half a store, and an error of a library without the file."""
  files = tmp_path / 'files'
  files.mkdir()
  damaged(files, layout)
  with pytest.raises(sources.DataError, match=r'files'):
    importing.import_data('femnist', files, tmp_path / 'store')
  assert [x.name for x in tmp_path.iterdir()] == ['files']


def test_foreign_files_are_refused_by_name(tmp_path):
  """Catches a file that is read as another layout."""
  (tmp_path / 'notes.txt').write_text('ANNA:\nhello')
  with pytest.raises(sources.DataError, match=r"files of 'femnist' at .*plays"):
    importing.import_data('femnist', tmp_path / 'notes.txt', tmp_path / 's')
  with pytest.raises(sources.DataError, match='does not exist'):
    importing.import_data('plays', tmp_path / 'no', tmp_path / 's')
  with pytest.raises(ValueError, match="kind='femist'"):
    importing.import_data('femist', tmp_path, tmp_path / 's')


def test_an_import_that_was_stopped_goes_on(tmp_path, monkeypatch):
  """Catches samples that are there twice, or not at all, after a restart."""
  train, test = people()
  files = tmp_path / 'files'
  files.mkdir()
  write_fedjax(files, train, test)
  whole = importing.import_data('femnist', files, tmp_path / 'whole')
  monkeypatch.setattr(importing, '_SAVED_EVERY', 2)
  add, calls = spool_lib.Spool.add, []

  def interrupted(self, *args):
    calls.append(args)
    if len(calls) == 4:  # the third is written, but not saved
      raise KeyboardInterrupt
    add(self, *args)

  with monkeypatch.context() as patch:
    patch.setattr(spool_lib.Spool, 'add', interrupted)
    with pytest.raises(KeyboardInterrupt):
      importing.import_data('femnist', files, tmp_path / 'again')
  assert (tmp_path / 'again.partial').is_dir()
  seen = []
  with monkeypatch.context() as patch:
    patch.setattr(
      spool_lib.Spool, 'add', lambda self, *a: (seen.append(a), add(self, *a))
    )
    again = importing.import_data('femnist', files, tmp_path / 'again')
  assert len(seen) == len(train) + len(test) - 2
  assert not (tmp_path / 'again.partial').exists()
  for name in 'x', 'y':
    np.testing.assert_array_equal(again.train[name], whole.train[name])
    np.testing.assert_array_equal(again.test[name], whole.test[name])
  assert again.ids.tolist() == whole.ids.tolist()


def test_ten_thousand_clients_of_one_sample(tmp_path):
  """Catches a reader whose time grows with the square of the clients."""
  n = 10_000
  table = pa.table(
    {
      'writer_id': [f'w{i % n}' for i in range(2 * n)],
      'split': ['train'] * n + ['test'] * n,
      'label': [i % 7 for i in range(2 * n)],
      'pixels': [[i % 251, i // 251 % 251] for i in range(2 * n)],
    }
  )
  parquet.write_table(table, tmp_path / 'all.parquet')
  data = importing.import_data(
    'table', tmp_path, tmp_path / 'store', client='writer_id', split='split',
    inputs='pixels', classes=7,
  )  # fmt: skip
  assert data.partition.population == n
  assert data.ids[-1] == b'w9999'
  assert np.asarray(data.train['y']).tolist() == [i % 7 for i in range(n)]


def test_a_store_of_before_is_not_written_over(tmp_path):
  train, test = people()
  files = tmp_path / 'files'
  files.mkdir()
  write_tff(files, train, test)
  importing.import_data('femnist', files, tmp_path / 'store')
  with pytest.raises(FileExistsError):
    importing.import_data('femnist', files, tmp_path / 'store')
  assert store.open(tmp_path / 'store').partition.population == 4
