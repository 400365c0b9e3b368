"""Tables of clients, and which samples they hold out."""

from fl_sketch.data import sources
from fl_sketch.data.natural import importing, readers, tasks
import numpy as np
import pyarrow as pa
from pyarrow import parquet
import pytest


def imported(folder, tables, to='s', **options):
  """The store of tables by name, each a header and rows of texts."""
  for name, lines in tables.items():
    (folder / name).write_text('\n'.join(lines))
  options = {'client': 'who', 'classes': 1} | options
  return importing.import_data('table', folder, folder / to, **options)


HEADER = 'who,image,label'


def test_tables_of_one_order_stay_in_it(tmp_path):
  """Catches rows that are sorted: those of a client keep their order."""
  rows = [('b', 5), ('a', 3), ('b', 1), ('c', 9), ('a', 2), ('b', 7)]
  for split in 'train', 'test':
    lines = '\n'.join(f'{name},{label},{label}' for name, label in rows)
    (tmp_path / f'{split}.csv').write_text(f'who,label,shade\n{lines}\n')
  task = tasks.NaturalTask(
    lambda r: {'y': np.array(r.columns['label'], np.int32)}, 10, {}
  )
  known = importing.KINDS | {'own': importing.Kind(lambda *_: task, ('table',))}
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(importing, 'KINDS', known)
    data = importing.import_data('own', tmp_path, tmp_path / 's', client='who')
  assert [x.decode() for x in data.ids] == ['b', 'a', 'c']
  assert np.asarray(data.train['y']).tolist() == [5, 1, 7, 3, 2, 9]
  assert data.offsets.tolist() == data.held_out.tolist() == [0, 3, 5, 6]


def test_users_that_do_not_train_are_a_test_of_nobody(tmp_path):
  """Catches splits by user, as of FLAIR, that have no test."""
  rows = [('a', 'train', 1), ('b', 'test', 2), ('a', 'train', 3)]
  rows += [('c', 'test', 4), ('b', 'test', 5)]
  lines = ['who,part,image,label', *(f'{w},{p},{x},0' for w, p, x in rows)]
  data = imported(tmp_path, {'all.csv': lines}, 'apart', split='part')
  assert data.held_out is None
  assert data.ids.tolist() == [b'a']
  assert np.asarray(data.test['x']).tolist() == [2, 4, 5]
  # One that trains, too, holds out what is its own; others are left out.
  lines.append('b,train,6,0')
  data = imported(tmp_path, {'all.csv': lines}, 'shared', split='part')
  assert data.held_out.tolist() == [0, 0, 2]
  assert np.asarray(data.test['x']).tolist() == [2, 5]


def test_clients_hold_out_their_last_samples(tmp_path):
  """Catches samples of a neighbour, and clients without any to train on."""
  sizes = {'a': 1, 'b': 10, 'c': 3}
  lines = [f'{who},{i},0' for who, n in sizes.items() for i in range(n)]
  tables = {'all.csv': [HEADER, *lines[::2], *lines[1::2]]}
  with pytest.raises(sources.DataError, match='no test examples: set test_sh'):
    imported(tmp_path, tables)
  with pytest.raises(ValueError, match='test_share=1'):
    imported(tmp_path, tables, test_share=1.0)
  data = imported(tmp_path, tables, test_share=0.4)
  assert np.diff(data.offsets).tolist() == [1, 6, 2]
  assert np.diff(data.held_out).tolist() == [0, 4, 1]
  # The file has b's as 1, 3, 5, 7, 9, 0, 2, ..., and c's as 1, 0, 2.
  assert np.asarray(data.train['x']).tolist() == [0, 1, 3, 5, 7, 9, 0, 1, 0]
  assert np.asarray(data.test['x']).tolist() == [2, 4, 6, 8, 2]


def test_names_of_clients_are_no_numbers(tmp_path):
  """Catches 007 that becomes 7, and tabs that are no columns."""
  lines = ['who\timage\tlabel', '007\t1\t0', '7\t2\t0', 'seven\t3\t0']
  data = imported(tmp_path, {'train.tsv': lines, 'test.tsv': lines})
  assert data.ids.tolist() == [b'007', b'7', b'seven']
  (tmp_path / 'input.txt').touch()
  with pytest.raises(ValueError, match="size has no effect for 'plays'"):
    importing.import_data('plays', tmp_path, tmp_path / 't', size=3, classes=1)


@pytest.mark.parametrize('held', ['test', 'val', 'validation', 'dev'])
def test_files_of_a_folder_are_of_the_splits_that_they_name(held, tmp_path):
  """Catches held-out samples that are trained on, as their file is unknown."""
  tables = {
    f'{held}-0.csv': [HEADER, 'a,2,0'],
    'train-0.csv': [HEADER, 'a,1,0'],
  }
  if held == 'dev':
    with pytest.raises(sources.DataError, match=r'dev-0\.csv must begin with'):
      imported(tmp_path, tables)
    return
  data = imported(tmp_path, tables)
  assert np.asarray(data.train['x']).tolist() == [1]
  assert np.asarray(data.test['x']).tolist() == [2]


def test_texts_of_several_lines_are_whole(tmp_path):
  """Catches quoted texts that a block of the reader cuts at a line."""
  texts = ['\n'.join(['b,c' + 'x' * (i % 31)] * (i % 7)) for i in range(30_000)]
  rows = ''.join(f'a,"{text}"\n' for text in texts)
  (tmp_path / 'all.csv').write_text(f'who,text\n{rows}')
  records = readers.rows(tmp_path, 'who')
  assert [x for r in records for x in r.columns['text']] == texts


def test_names_of_clients_may_be_bytes(tmp_path):
  """Catches clients whose names are those of Python's bytes."""
  table = pa.table({'who': [b'a', b'\xc3\xbc'], 'x': [1, 2]})
  parquet.write_table(table, tmp_path / 'all.parquet')
  names = [r.client for r in readers.rows(tmp_path / 'all.parquet', 'who')]
  assert names == ['a', 'ü']
