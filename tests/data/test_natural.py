"""Imports of natural clients: their samples, their order, and damage."""

import pathlib
import tempfile
from unittest import mock

from fl_sketch.data import sources
from fl_sketch.data.natural import importing, readers
import hypothesis
from hypothesis import strategies as st
import natural_files
from natural_files import CLIENTS, LAYOUTS, inverted, people
import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest


@pytest.mark.parametrize('layout', LAYOUTS)
def test_what_is_written_comes_out_of_the_store(layout, files, tmp_path):
  """Catches clients or samples in another order, pixels not inverted."""
  train, test = people()
  LAYOUTS[layout](files, train, test)
  data = importing.import_data('femnist', files, tmp_path / 'store')
  names = [name.decode() for name in data.ids]
  # HDF5 has its groups in the order of their names.
  assert names == (sorted(CLIENTS) if layout == 'tff' else CLIENTS)
  assert data.num_classes == 62
  for split, arrays, offsets in (
    (train, data.train, data.offsets), (test, data.test, data.held_out),
  ):  # fmt: skip
    some = [split.get(name) for name in names]
    sizes = [0 if x is None else len(x['label']) for x in some]
    assert np.diff(offsets).tolist() == sizes
    images = np.concatenate([inverted(x['pixels']) for x in some if x])
    np.testing.assert_array_equal(arrays['x'], images)
    labels = np.concatenate([x['label'] for x in some if x])
    np.testing.assert_array_equal(arrays['y'], labels)


def clients(names):
  """Clients in any order, each with a few samples, perhaps several times."""
  pair = st.tuples(st.sampled_from(names), st.integers(1, 3))
  return st.lists(pair, max_size=9)


@hypothesis.settings(deadline=None, derandomize=True, max_examples=25)
@hypothesis.given(
  train=clients('abcd').map(lambda x: [('a', 3), *x]),
  test=clients(['a', 'b', 'e', None]), share=st.floats(0.2, 0.9),
  rows=st.sampled_from([2, 2**15]),
)  # fmt: skip
def test_samples_are_grouped_by_client_in_their_order(train, test, share, rows):
  """Catches samples of a neighbour, out of order, or held out by another."""
  number = iter(range(100))

  def arrays(pairs):
    for client, size in pairs:
      y = np.array([next(number) for _ in range(size)])
      samples.append((client, y))
      yield client, {'y': y, 'x': np.stack([y, -y], 1)}

  def of(samples, client):
    parts = [y for name, y in samples if name == client]
    return [*np.concatenate([np.zeros(0, int), *parts])]

  samples = []
  options = {'test_share': share} if not test else {}
  with (
    tempfile.TemporaryDirectory() as folder,
    mock.patch.object(importing, '_ROWS', rows),  # several chunks, or one
  ):
    data = importing.import_clients(
      arrays(train), f'{folder}/s', None, test=arrays(test), **options
    )
    trained, held_out = samples[: len(train)], samples[len(train) :]
    names = [*dict.fromkeys(name for name, _ in train)]
    assert [x.decode() for x in data.ids] == names
    assert data.scale == {'mean': 0.0, 'std': 1.0}  # no images
    want, want_test = [of(trained, x) for x in names], None
    if not test:
      counts = [min(round(share * len(y)), len(y) - 1) for y in want]
      want_test = [y[len(y) - n :] for y, n in zip(want, counts, strict=True)]
      want = [y[: len(y) - n] for y, n in zip(want, counts, strict=True)]
    elif {*names} & {name for name, _ in test}:
      want_test = [of(held_out, x) for x in names]
    else:  # samples of nobody who trains
      assert data.held_out is None
      assert [*data.test['y']] == [y for _, part in held_out for y in part]
    y = [*map(int, data.train['y'])]
    assert y == [y for part in want for y in part]
    assert np.diff(data.offsets).tolist() == [len(y) for y in want]
    if want_test is not None:
      assert [*data.test['y']] == [y for part in want_test for y in part]
      assert np.diff(data.held_out).tolist() == [len(y) for y in want_test]
    for split in data.train, data.test:
      np.testing.assert_array_equal(split['x'][:, 1], -split['y'])


@hypothesis.settings(deadline=None, derandomize=True, max_examples=25)
@hypothesis.given(
  name=st.sampled_from([*LAYOUTS, *natural_files.KINDS]),
  which=st.integers(0, 9), at=st.floats(0, 0.99), bit=st.integers(0, 7),
)  # fmt: skip
def test_a_cut_file_is_refused_or_is_a_whole_file(name, which, at, bit):
  """Catches damage that is a bare traceback, or leaves part of a store."""
  with tempfile.TemporaryDirectory() as folder:
    (files := pathlib.Path(folder, 'files')).mkdir()
    if name in LAYOUTS:
      LAYOUTS[name](files, *people())
    else:
      natural_files.KINDS[name](files, range(2))
    every = sorted(x for x in files.rglob('*') if x.is_file())
    path = every[which % len(every)]
    content = bytearray(path.read_bytes())
    place = int(at * len(content))
    if path.suffix == '.json' and bit < 4:
      content[place] ^= 1 << bit
    else:
      del content[place:]
    path.write_bytes(content)
    kind = name if name in natural_files.KINDS else 'femnist'
    try:
      importing.import_data(kind, files, f'{folder}/store')
    except sources.DataError:
      assert [x.name for x in pathlib.Path(folder).iterdir()] == ['files']
    else:  # half a text is a text; half of anything else is not read
      assert path.suffix in ('.txt', '.word_count', '.json')


def test_the_digits_of_emnist_lie_beside_all_of_it(files, tmp_path):
  """Catches digits that are read in place of all letters, or with them."""
  natural_files.write_tff(files, *people())
  digits = [
    {k: v | {'label': v['label'] % 10} for k, v in part.items()}
    for part in people(['d1', 'd2'])
  ]
  natural_files.write_tff(files, *digits, 'fed_emnist_digitsonly')
  data = importing.import_data('femnist_digits', files, tmp_path / 'd')
  assert (data.ids.tolist(), data.num_classes) == ([b'd1', b'd2'], 10)
  data = importing.import_data('femnist', files, tmp_path / 'all')
  assert {x.decode() for x in data.ids} == {*CLIENTS}


def test_speakers_are_clients(tmp_path):
  """Catches speeches of another speaker, and a test that is trained on."""
  long = 'x' * 600
  parts = [('ANNA', f'one {long}'), ('Both', 'few'), ('ANNA', f'two {long}')]
  parts += [('ANNA', 'three: with a colon\nand a line')]
  text = '\n\n'.join(f'{name}:\n{speech}' for name, speech in parts)
  (tmp_path / 'input.txt').write_text(text)
  train, test = readers.plays(tmp_path / 'input.txt')
  assert train.client == test.client == 'ANNA'
  assert train.columns['text'] == [f'one {long}']
  assert test.columns['text'][-1] == 'three: with a colon\nand a line'


def test_rows_of_tables_have_clients_and_splits(files, tmp_path):
  """Catches 007 that becomes 7, tabs that are no columns, and a lost split."""
  read = lambda to, **options: importing.import_data(
    'table', files, tmp_path / to, client='who', classes=1, **options
  )
  rows = 'who\timage\tlabel\n007\t1\t0\n'
  (files / 'train.tsv').write_text(f'{rows}7\t2\t0\nseven\t3\t0')
  (files / 'test.tsv').write_text(rows)
  data = read('by_file')
  assert data.ids.tolist() == [b'007', b'7', b'seven']
  assert data.held_out.tolist() == [0, 1, 1, 1]
  for file in files.iterdir():
    file.unlink()
  rows = 'who,part,image,label\na,train,1,0\na,val,2,0\nb,train,3,0'
  (files / 'all.csv').write_text(rows)
  data = read('by_column', split='part')
  assert np.asarray(data.train['x']).tolist() == [1, 3]
  assert data.held_out.tolist() == [0, 1, 1]


def test_texts_of_several_lines_and_names_of_bytes_are_whole(tmp_path):
  """Catches quoted texts that are cut at a line, and names such as b'a'."""
  texts = ['\n'.join(['b,c' + 'x' * (i % 31)] * (i % 7)) for i in range(30_000)]
  rows = ''.join(f'a,"{text}"\n' for text in texts)
  (tmp_path / 'all.csv').write_text(f'who,text\n{rows}')
  records = readers.table(tmp_path, 'who')
  assert [x for r in records for x in r.columns['text']] == texts
  table = pa.table({'who': [b'a', b'\xc3\xbc'], 'x': [1, 2]})
  parquet.write_table(table, tmp_path / 'all.parquet')
  names = [r.client for r in readers.table(tmp_path / 'all.parquet', 'who')]
  assert names == ['a', 'ü']
