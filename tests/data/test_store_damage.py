"""Stores that are damaged, and arrays that make none."""

import os
import pathlib
import shutil
import tempfile

import chex
from fl_sketch.data import sources, store, store_writer
from fl_sketch.utils import digests, files
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.data.test_store import TEST, TRAIN, chunks_of, write

FILES = (
  'store.json', 'checked.json', 'offsets.npy',
  *(f'{prefix}{name}.npy' for prefix in ('', 'test_') for name in TRAIN),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
  return write(tmp_path / 'clients')


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  return write(tmp_path_factory.mktemp('whole') / 'clients')


def touch(path):
  """Changes the time of a file, also where the clock is coarse."""
  times = path.stat()
  os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))


@hypothesis.settings(deadline=None, derandomize=True, max_examples=80)
@hypothesis.given(
  name=st.sampled_from(FILES), bit=st.integers(0, 7), at=st.floats(0, 0.999),
  damage=st.sampled_from(['flip', 'flip a header', 'cut', 'remove']),
)  # fmt: skip
def test_a_damaged_store_is_refused(whole, name, bit, at, damage):
  """Catches a flip, a cut or a lost file that gives other data."""
  with tempfile.TemporaryDirectory() as parent:
    folder = pathlib.Path(shutil.copytree(whole, f'{parent}/copy'))
    path = folder / name
    content = bytearray(path.read_bytes())
    place = int(at * (len(content) if damage != 'flip a header' else 128))
    if damage == 'remove':
      path.unlink()
    else:
      if damage == 'cut':
        del content[place:]
      else:
        content[place % len(content)] ^= 1 << bit
      path.write_bytes(content)
      touch(path)
    try:
      data = store.open(folder)
    except sources.DataError as error:
      assert 'copy' in str(error)  # noqa: PT017
      assert name != 'checked.json'
      return
    # Times that are not known, and a header's padding, change nothing.
    chex.assert_trees_all_equal(data.train, TRAIN)
    chex.assert_trees_all_equal(data.test, TEST)
    assert data._replace(train=0, test=0, offsets=0) == store.open(
      whole
    )._replace(train=0, test=0, offsets=0)


def test_a_folder_without_a_store_is_named(tmp_path):
  with pytest.raises(sources.DataError, match='clients'):
    store.open(tmp_path / 'clients')


@pytest.fixture
def reads(monkeypatch):
  """The shapes of the arrays that were read whole."""
  shapes, of_array = [], digests.of_array
  record = lambda x: shapes.append(x.shape) or of_array(x)
  monkeypatch.setattr(digests, 'of_array', record)
  return shapes


def test_a_store_is_read_whole_only_where_times_changed(folder, reads):
  """Catches a start that reads a huge store, and a copy that is not checked."""
  store.open(folder)
  assert not reads
  touch(folder / 'x.npy')
  for _ in range(2):  # the second finds the new time
    store.open(folder)
    assert reads == [TRAIN['x'].shape]
  (folder / 'checked.json').write_text('[')
  store.open(folder)
  assert len(reads) == 1 + 7


def test_a_digest_on_record_is_that_of_the_array(folder, reads):
  """Catches a digest of another array, or of a part of it."""
  data = store.open(folder)
  arrays = {**data.train, 'offsets': data.offsets}
  for name, x in arrays.items():
    recorded = store.digest(x)
    assert not reads, name
    assert recorded == store.digest(x, read=True)
    assert recorded == digests.of_array(np.array(x))
    assert store.digest(x[1:]) == digests.of_array(np.array(x[1:]))
    reads.clear()
  with (folder / 'y.npy').open('r+b') as file:
    file.seek(-1, 2)
    file.write(b'\xff')
  with pytest.raises(sources.DataError, match='y'):
    store.digest(data.train['y'], read=True)


def test_a_store_without_permissions_is_named(folder, monkeypatch):
  """Catches a traceback where a store cannot be read or written."""
  with pytest.raises(sources.DataError, match='new'):
    write(folder / 'y.npy' / 'new')
  touch(folder / 'x.npy')

  def forbidden(*_, **__):
    raise files.SaveError('checked.json cannot be written.')

  monkeypatch.setattr(files, 'replace', forbidden)
  with pytest.warns(UserWarning, match=r'checked\.json'):
    store.open(folder)  # a copy is used all the same
  monkeypatch.setattr(np, 'load', forbidden)
  with pytest.raises(sources.DataError, match='npy'):
    store.open(folder)


def chunk(sizes=(2, 1), **changes):
  few = {name: x[:3] for name, x in TRAIN.items()} | changes
  few = {name: x for name, x in few.items() if x is not None}
  return {'chunks': [(np.array(sizes), few)]}


few_ids = chunk()
few_ids['chunks'] = [
  store.Chunk(*one, ids=ids)
  for one, ids in zip(chunk()['chunks'] * 2, (['anna'], None), strict=True)
]
REFUSED = {
  'nobody': ({'chunks': []}, 'client'),
  'empty client': (chunk((3, 0)), 'sizes'), 'sizes': (chunk((2, 2)), 'x'),
  'lengths': (chunk(y=TRAIN['y'][:2]), 'y'), 'names': (chunk(age=None), 'age'),
  'shape': (chunk(x=np.zeros((3, 6), np.uint8)), 'x'),
  'type': (chunk(y=np.zeros(3, np.int8)), 'y'),
  'label': (chunk(y=np.array([0, 5, 1])), 'num_classes'),
  'no labels': (
    {'test': {'x': TEST['x']}, **chunk(y=None, age=None)}, 'num_classes',
  ),
  'no test': ({'test': {name: x[:0] for name, x in TEST.items()}}, 'test'),
  'no test at all': ({'test': None}, 'test'),
  'mask': ({'test': TEST | {'mask': TEST['y']}}, 'mask'),
  'ids': (few_ids, 'ids'),
}  # fmt: skip


@pytest.mark.parametrize('name', REFUSED)
def test_what_does_not_fit_is_refused_and_leaves_nothing(name, tmp_path):
  """Catches a store of arrays that do not fit together, or part of one."""
  changes, field = REFUSED[name]
  with pytest.raises(ValueError, match=field):
    write(tmp_path / 'clients', **changes)
  assert not [*tmp_path.iterdir()]


def test_more_samples_than_an_index_can_have_are_refused(tmp_path, monkeypatch):
  """Catches int32 indices that wrap around."""
  monkeypatch.setattr(store_writer, '_MOST', 2)
  with pytest.raises(ValueError, match='samples'):
    write(tmp_path / 'clients', **chunk())
  assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_there_stays_as_it_is(folder):
  """Catches a writer that overwrites what another process has written."""
  before = (folder / 'x.npy').stat()
  with pytest.raises(FileExistsError, match='clients'):
    write(folder)

  def slow():
    write(folder.with_name('late'))
    yield from chunks_of(8)

  with pytest.raises(FileExistsError, match='late'):
    write(folder.with_name('late'), chunks=slow())
  assert (folder / 'x.npy').stat() == before
  names = sorted(path.name for path in folder.parent.iterdir())
  assert names == ['clients', 'late']
  store.open(folder.with_name('late'))


def test_two_starts_may_check_a_copy_at_once(folder, monkeypatch):
  """Catches a partial file that another process has renamed or left behind."""
  path, replace, others = folder / 'checked.json', os.replace, [7]

  def interrupted(*args):
    if others:
      with monkeypatch.context() as patch:
        patch.setattr(os, 'getpid', others.pop)
        files.replace(path, 'theirs')
    replace(*args)

  monkeypatch.setattr(os, 'replace', interrupted)
  files.replace(path, 'ours')
  assert path.read_text() == 'ours'
  assert not [*folder.glob('*.partial')]
