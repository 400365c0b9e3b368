"""Stores that are damaged, and arrays that make none."""

import json
import os
import shutil

from fl_sketch.data import sources, store, store_writer
from fl_sketch.utils import digests, files
import numpy as np
import pytest

from tests.data.test_store import TEST, TRAIN, chunks_of, write


@pytest.fixture
def folder(tmp_path):
  return write(tmp_path / 'clients')


def cut(path, size):
  path.write_bytes(path.read_bytes()[:size])


def about(folder, **changes):
  path = folder / 'store.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def touch(path):
  """Changes the time of a file, also where the clock is coarse."""
  times = path.stat()
  os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))


def flip(folder, name, index=-1):
  """Changes a byte of an array in place."""
  with open(folder / f'{name}.npy', 'r+b') as file:
    file.seek(index, 2)
    (byte,) = file.read(1)
    file.seek(index, 2)
    file.write(bytes([byte ^ 1]))
  touch(folder / f'{name}.npy')


def offsets(folder, to, source):
  path = folder / 'offsets.npy'
  array = np.load(path)
  array[to] = array[source].copy()
  np.save(path, array)


DAMAGES = {
  'missing': (shutil.rmtree, 'No store of clients in .*clients'),
  'no json': (lambda f: (f / 'store.json').unlink(), 'No store of clients in'),
  'half a json': (lambda f: cut(f / 'store.json', 99), 'json is damaged'),
  'no train': (lambda f: about(f, train=None), 'json is damaged: Attribute'),
  'no pixels': (lambda f: about(f, pixels={'sum': 1}), 'json is damaged: Type'),
  'null': (lambda f: about(f, population=None), 'json is damaged: Type'),
  'no labels': (lambda f: about(f, train={}), 'json is damaged: Value'),
  'format': (lambda f: about(f, format=1), 'json has format=1, not 3'),
  'truncated': (
    lambda f: cut(f / 'x.npy', 300),
    r'clients/x.npy has 300 bytes, not \d+\.',
  ),
  'no head': (
    lambda f: (f / 'y.npy').write_bytes(bytes((f / 'y.npy').stat().st_size)),
    'y.npy is damaged: ',
  ),
  'other type': (
    lambda f: np.save(f / 'test_age.npy', TEST['age'].view(np.int32)),
    r'test_age.npy is <i4\[7, 1\], not <f4\[7, 1\]',
  ),
  'population': (lambda f: about(f, population=39), 'population=39 steps'),
  'samples': (lambda f: about(f, samples=9), 'rise from 0 to samples=9 in'),
}
RISE = 'offsets.npy must rise from 0 to samples=.* none of them empty'
DAMAGES |= {
  'falling': (lambda f: offsets(f, np.s_[5:7], np.s_[6:4:-1]), RISE),
  'empty client': (lambda f: offsets(f, 5, 6), RISE),
}
CHANGED = '.npy was changed after it was written: write the store again'
DAMAGES |= {
  f'changed {name}': (lambda f, name=name: flip(f, name), f'{name}{CHANGED}')
  for name in ('x', 'test_age')
}
DAMAGES['no digests'] = (lambda f: about(f, sha256=None), 'damaged: TypeError')


@pytest.mark.parametrize('name', DAMAGES)
def test_damage_is_named(name, folder):
  damage, message = DAMAGES[name]
  store.open(folder)
  damage(folder)
  with pytest.raises(sources.DataError, match=message):
    store.open(folder)


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
  flip(folder, 'y')
  with pytest.raises(sources.DataError, match=f'y{CHANGED}'):
    store.digest(data.train['y'], read=True)


def test_a_store_without_permissions_is_named(folder, monkeypatch):
  """Catches a traceback where a store cannot be read or written."""
  with pytest.raises(sources.DataError, match='new cannot be written'):
    write(folder / 'y.npy' / 'new')

  def forbidden(*_, **__):
    raise PermissionError(13, 'Permission denied')

  monkeypatch.setattr(np, 'load', forbidden)
  with pytest.raises(sources.DataError, match='cannot be read: '):
    store.open(folder)


def test_a_copy_in_a_folder_without_permissions_is_used(folder, monkeypatch):
  """Catches a store that fails where it cannot note that it was checked."""
  touch(folder / 'x.npy')

  def forbidden(*_):
    raise files.SaveError('checked.json cannot be written.')

  monkeypatch.setattr(files, 'replace', forbidden)
  with pytest.warns(UserWarning, match='checked.json .* reads .* whole'):
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
  'nobody': ({'chunks': []}, 'at least one client'),
  'empty client': (chunk((3, 0)), r'Sizes \[3 0\] must be >= 1'),
  'sizes': (chunk((2, 2)), r"Arrays of samples=4 have lengths .'x': 3"),
  'lengths': (chunk(y=TRAIN['y'][:2]), 'samples=3 have lengths .'),
  'names': (chunk(age=None), "those of the test, .*'age'"),
  'shape': (chunk(x=np.zeros((3, 6), np.uint8)), 'those of the test'),
  'type': (chunk(y=np.zeros(3, np.int8)), 'those of the test'),
  'label': (chunk(y=np.array([0, 5, 1])), 'num_classes=5, not 0 to 5'),
  'no labels': (
    {'test': {'x': TEST['x']}, **chunk(y=None, age=None)},
    "'y' must have integers with num_classes=5",
  ),
  'objects': (
    {'test': {'x': TEST['x'].astype(object)}, 'num_classes': None},
    "'x' must have numbers",
  ),
  'no test': (
    {'test': {name: x[:0] for name, x in TEST.items()}},
    'at least one client and one test example',
  ),
  'no test at all': ({'test': None}, 'Add a test or samples that clients hold'),
  'mask': ({'test': TEST | {'mask': TEST['y']}}, "cannot be called 'mask'"),
  'ids': (few_ids, 'There are 1 ids of 4 clients'),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_does_not_fit_is_refused_and_leaves_nothing(name, tmp_path):
  changes, message = REFUSED[name]
  with pytest.raises(ValueError, match=message):
    write(tmp_path / 'clients', **changes)
  assert not [*tmp_path.iterdir()]


def test_more_samples_than_an_index_can_tell_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(store_writer, '_MOST', 2)
  with pytest.raises(ValueError, match='samples=7 must be <= 2'):
    write(tmp_path / 'clients', **chunk())
  assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_there_stays_as_it_is(folder):
  before = (folder / 'x.npy').stat()
  with pytest.raises(FileExistsError, match='clients exists; name'):
    write(folder)

  def slow():
    write(folder.with_name('late'))
    yield from chunks_of(8)

  with pytest.raises(FileExistsError, match='Another process has written'):
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
