"""Imports of natural clients' published files: their samples and order."""

import json
import struct

from fl_sketch.data import sources
from fl_sketch.data.natural import importing, readers, tasks, tff
from fl_sketch.data.natural.records import Records
import natural_files
from natural_files import CLIENTS, LAYOUTS, field, inverted, people, varint
import numpy as np
import pytest


@pytest.mark.parametrize('clients', [1, 4])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_what_is_written_comes_out_of_the_store(
  layout, clients, files, tmp_path
):
  """Catches clients or samples in another order, pixels not inverted."""
  names = CLIENTS[:clients]
  train, test = people(names)
  LAYOUTS[layout](files, train, test)
  data = importing.import_data('femnist', files, tmp_path / 'store')
  # Of a client's samples, as files have them.
  places = {'train': {}, 'test': {}}
  for split, of in ('train', train), ('test', test):
    rows = [(name, i) for name in of for i in range(len(of[name]['label']))]
    if layout == 'table':  # its writer takes every other row first
      rows = rows[::2] + rows[1::2]
    for name, i in rows:
      places[split].setdefault(name, []).append(i)
  wanted = [*places['train']]
  if layout == 'tff':  # HDF5 has its groups in the order of their names
    wanted = sorted(names)
  names = [name.decode() for name in data.ids]
  assert names == wanted
  assert data.num_classes == 62
  for i, name in enumerate(names):
    for split, offsets, arrays, of in (
      ('train', data.offsets, data.train, train),
      ('test', data.held_out, data.test, test),
    ):
      part = slice(offsets[i], offsets[i + 1])
      x, y = np.asarray(arrays['x'][part]), np.asarray(arrays['y'][part])
      want = of.get(name, {'pixels': x[:0, ..., 0], 'label': y[:0]})
      order = places[split].get(name, [])
      np.testing.assert_array_equal(x, inverted(want['pixels'])[order])
      np.testing.assert_array_equal(y, want['label'][order])


@pytest.mark.parametrize(('names', 'read'), [
  (['train', 'heldout', 'test'], 'test'),
  (['train', 'heldout'], 'heldout'),
  (['all_train', 'digits_only_test', 'all_test'], 'all_test'),
])  # fmt: skip
def test_splits_of_sqlite_have_the_names_of_the_reference(names, read):
  """Catches a test that is not found by the name that it has in SQLite."""
  assert tff._splits({*names}, 'file', False) == {
    names[0]: 'train', read: 'test',
  }  # fmt: skip


@pytest.mark.parametrize('kind', ['femnist', 'femnist_digits'])
@pytest.mark.parametrize('layout', ['tff', 'sqlite', 'fedjax'])
def test_the_digits_of_emnist_lie_beside_all_of_it(kind, layout, tmp_path):
  """Catches digits that are read in place of all letters, or with them."""
  every = people()
  digits = [
    {k: v | {'label': v['label'] % 10} for k, v in part.items()}
    for part in people(['d1', 'd2'])
  ]
  if layout == 'sqlite':
    natural_files.write_sqlite(tmp_path, *every, digits)
  else:
    write, stem = {
      'tff': (natural_files.write_tff, 'fed_emnist'),
      'fedjax': (natural_files.write_fedjax, 'federated_emnist'),
    }[layout]
    write(tmp_path, *every, stem)
    write(tmp_path, *digits, f'{stem}_digitsonly')
  data = importing.import_data(kind, tmp_path, tmp_path / 'store')
  of_digits = kind == 'femnist_digits'
  names = {*(digits if of_digits else every)[0]}
  assert {x.decode() for x in data.ids} == names
  assert data.num_classes == (10 if of_digits else 62)
  if layout != 'sqlite':
    name = f'{stem}_train' if of_digits else f'{stem}_digitsonly_train'
    (path,) = tmp_path.glob(f'{name}.*')
    with pytest.raises(
      sources.DataError, match=f'{name}.* has no files of {kind!r}'
    ):
      importing.import_data(kind, path, tmp_path / 'other')


def test_files_of_leaf_without_their_fields_are_refused(tmp_path):
  """Catches a file of users that are not checked."""
  natural_files.write_leaf(tmp_path, *people(CLIENTS[:2], (2, 2)))
  path = tmp_path / 'train' / 'all_data_0.json'
  content = json.loads(path.read_text())
  del content['users']
  for text, said in (
    (json.dumps(content), r"data_0.json must have .*'users'\]"),
    ('[1, 2]', r'data_0.json cannot be read'),
  ):
    path.write_text(text)
    with pytest.raises(sources.DataError, match=said):
      [*readers.leaf(tmp_path)]


def test_an_example_has_all_kinds_of_features():
  """Catches negative or unpacked numbers, and a damage that is a traceback."""
  unpacked = field(3, b''.join(varint(1 << 3) + varint(v) for v in (7, 300)))
  floats = field(2, struct.pack('<BfBf', 13, 0.5, 13, -2.0))
  strings = field(1, field(1, b'ab') + field(1, b''))
  entries = b''.join(
    field(1, field(1, name) + field(2, value))
    for name, value in ((b'i', unpacked), (b'f', floats), (b's', strings))
  )
  got = tff.parse(field(1, entries))
  assert got['i'].tolist() == [7, 300]
  assert got['f'].tolist() == [0.5, -2.0]
  assert got['s'] == [b'ab', b'']
  no_name = varint(1 << 3) + varint(5)  # a number
  too_long = field(1, b'i') + field(2, field(3, field(1, varint(2**70))))
  entries = [field(1, field(1, x)) for x in (field(2, b''), no_name, too_long)]
  for bad in (b'\x08\x01', b'\x0a\x05ab', *entries):
    with pytest.raises(ValueError, match='An example is damaged'):
      tff.parse(bad)
  minus = tff.parse(natural_files.example({'y': np.array([-1, 3])}))
  assert minus['y'].tolist() == [-1, 3]


def test_characters_are_those_before_the_next():
  """Catches labels that are not shifted, and padding that counts."""
  task = tasks.characters(letters='ab', length=4)
  records = Records('anna', 'train', {'snippets': [b'abab?', b'']})
  got = task.arrays(records)
  # 1 a, 2 b, 3 others, 4 begin, 5 end.
  assert got['x'].dtype == got['y'].dtype == np.int16
  assert got['x'].tolist() == [[4, 1, 2, 1], [3, 5, 0, 0], [4, 5, 0, 0]]
  assert got['y'].tolist() == [[1, 2, 1, 2], [5, -1, -1, -1], [5, -1, -1, -1]]
  assert task.num_classes == 6
  many = tasks.next_words([f'{i}' for i in range(2**15)])
  got = many.arrays(Records('anna', 'train', {'tokens': ['32767']}))
  assert got['x'][0, 1] == 2**15


def test_speakers_are_clients(tmp_path):
  """Catches speeches of another speaker, and a test that is trained on."""
  long = 'x' * 600
  parts = [('ANNA', f'one {long}'), ('Both', 'few'), ('ANNA', f'two {long}')]
  parts += [('ANNA', 'three: with a colon\nand a line')]
  text = '\n\n'.join(f'{name}:\n{speech}' for name, speech in parts)
  (tmp_path / 'input.txt').write_text(text)
  train, test = readers.speeches(tmp_path)
  assert train.client == test.client == 'ANNA'
  assert train.columns['text'] == [f'one {long}']
  assert test.columns['text'][-1] == 'three: with a colon\nand a line'
