"""Clients on disk: files are read as they were written, and whole."""

import errno
import json
import os
import shutil

import chex
from fl_sketch.data import (
  batches,
  partitions,
  sources,
  store,
  store_digests,
  store_writer,
)
from fl_sketch.reporting import label_distribution
from fl_sketch.utils import digests, files
import numpy as np
import pytest

RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 9, 40)
HELD = SIZES.sum()


def arrays_of(samples):
  return {
    'x': RNG.integers(256, size=(samples, 2, 3), dtype=np.uint8),
    'y': RNG.integers(5, size=samples),
    'age': RNG.random((samples, 1), np.float32),
  }


TRAIN, TEST = arrays_of(HELD), arrays_of(7)


def chunks_of(clients):
  """The same clients, in chunks of `clients`."""
  ends = np.cumsum(SIZES)
  for first in range(0, len(SIZES), clients):
    block = slice(first, first + clients)
    rows = slice(ends[first] - SIZES[first], ends[block][-1])
    yield SIZES[block], {name: x[rows] for name, x in TRAIN.items()}


def write(folder, clients=8, /, **changes):
  fields = {'chunks': chunks_of(clients), 'test': TEST, 'num_classes': 5}
  store.write(folder, **fields | changes)
  return folder


@pytest.fixture
def folder(tmp_path):
  return write(tmp_path / 'clients')


def test_what_is_written_is_read(folder):
  data = store.open(folder)
  for split, expected in ((data.train, TRAIN), (data.test, TEST)):
    assert split.keys() == expected.keys()
    assert store.is_mapped(split)
    for name, x in expected.items():
      assert split[name].dtype == x.dtype
      np.testing.assert_array_equal(split[name], x)
  assert data.num_classes == 5
  np.testing.assert_array_equal(data.partition.sizes, SIZES)
  pixels = TRAIN['x'] / 255
  np.testing.assert_allclose(data.scale['mean'], pixels.mean(), rtol=1e-12)
  np.testing.assert_allclose(data.scale['std'], pixels.std(), rtol=1e-12)


@pytest.mark.parametrize('clients', [1, 7])
def test_what_clients_hold_out_is_theirs(clients, tmp_path):
  """Catches held-out samples of another client, and types that are changed.

  Inputs are tokens and labels sequences, whose padding is -1.
  """
  sizes, held = RNG.integers(1, 5, 20), RNG.integers(0, 3, 20)
  held[3] = 2
  rows = lambda n: {
    'x': RNG.integers(300, size=(n, 4), dtype=np.int16),
    'y': RNG.integers(-1, 300, (n, 4), np.int16),
  }
  train, test = rows(sizes.sum()), rows(held.sum())
  ids = [f'Fräulein {i:02}' for i in range(20)]
  starts = [np.concatenate([[0], np.cumsum(n)]) for n in (sizes, held)]

  def part(arrays, at, first):
    ends = at[first], at[min(first + clients, 20)]
    return {name: x[slice(*ends)] for name, x in arrays.items()}

  chunks = [
    store.Chunk(
      sizes[i : i + clients], part(train, starts[0], i),
      held[i : i + clients], part(test, starts[1], i), ids[i : i + clients],
    )
    for i in range(0, 20, clients)
  ]  # fmt: skip
  store.write(tmp_path / 'texts', chunks, None, num_classes=300)
  data = store.open(tmp_path / 'texts')
  assert [name.decode() for name in data.ids] == ids
  assert data.scale == {'mean': 0.0, 'std': 1.0}
  for got, want in ((data.train, train), (data.test, test)):
    for name, x in want.items():
      assert got[name].dtype == x.dtype
      np.testing.assert_array_equal(got[name], x)
  np.testing.assert_array_equal(data.offsets, starts[0])
  np.testing.assert_array_equal(data.held, starts[1])


def test_a_client_holds_its_own_samples(folder):
  data = store.open(folder)
  for i, (_, arrays) in enumerate(chunks_of(1)):
    held = data.partition.client(i)
    np.testing.assert_array_equal(data.train['x'][held], arrays['x'])
    np.testing.assert_array_equal(data.train['y'][held], arrays['y'])


@pytest.mark.parametrize('clients', [1, 7, 40])
def test_the_files_do_not_depend_on_the_chunks(clients, folder, tmp_path):
  other = write(tmp_path / 'other', clients)
  names = sorted(path.name for path in folder.iterdir())
  assert names == sorted(path.name for path in other.iterdir())
  assert len(names) == 9
  for name in set(names) - {'checked.json'}:  # it has the times
    assert (folder / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize('order', batches.ORDERS)
def test_draws_are_those_of_explicit_indices(order, folder):
  ids, sizes = np.array([3, 39, 0, 40, 17]), (3, 1)
  held = np.arange(HELD)
  disk = store.open(folder).partition
  memory = partitions.Partition(held, np.append(0, np.cumsum(SIZES)))
  a, b = (batches.draw(p, ids, 1, 2, *sizes, order) for p in (disk, memory))
  assert a.dtype == b.dtype == np.int32
  np.testing.assert_array_equal(a, b)


def test_other_uses_are_those_of_explicit_indices(folder, monkeypatch):
  disk = store.open(folder).partition
  memory = partitions.Partition(np.arange(HELD), disk.offsets)
  ids = np.array([3, 39, 0, 40, 17])
  uses = []
  for p in (disk, memory):
    capped = partitions.cap(p, 3)
    limits = batches.poisson_limits(p, 1)
    uses.append((batches.full(p, ids), limits, capped.indices, capped.offsets))
  chex.assert_trees_all_equal(*uses)
  whole = label_distribution._counts(TRAIN['y'], memory, 5)
  monkeypatch.setattr(label_distribution, '_CLIENTS_AT_ONCE', 7)
  np.testing.assert_array_equal(
    label_distribution._counts(TRAIN['y'], disk, 5), whole
  )
  np.testing.assert_array_equal(whole.sum(1), SIZES)


def test_a_round_takes_no_pass_over_the_population(monkeypatch):
  """Sizes are computed at most once, and only where the largest matters."""
  p = partitions.Partition(None, np.append(0, np.cumsum(SIZES)))
  ids = np.arange(4)
  for order in ('replace', 'cycle', 'mask'):
    batches.draw(p, ids, 0, 0, 2, 1, order)
    assert 'sizes' not in vars(p)
  batches.full(p, ids)
  batches.draw(p, ids, 0, 0, 2, 1, 'poisson')
  monkeypatch.delitem(vars(p), 'sizes')
  batches.full(p, ids)
  batches.draw(p, ids, 0, 1, 2, 1, 'poisson')
  assert 'sizes' not in vars(p)


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
  'file': (
    lambda f: (shutil.rmtree(f), f.write_text('')),
    'No store of clients in .*clients',
  ),
  'no json': (lambda f: (f / 'store.json').unlink(), 'No store of clients in'),
  'half a json': (lambda f: cut(f / 'store.json', 99), 'json is damaged'),
  'a list': (lambda f: (f / 'store.json').write_text('[]'), 'json is damaged'),
  'no train': (lambda f: about(f, train=None), 'json is damaged: Attribute'),
  'no pixels': (lambda f: about(f, pixels={'sum': 1}), 'json is damaged: Type'),
  'a text': (lambda f: about(f, population='2'), 'Expected .*offsets.npy'),
  'null': (lambda f: about(f, population=None), 'json is damaged: Type'),
  'no pixel': (
    lambda f: about(f, pixels={'count': 0, 'total': 0, 'squares': 0}),
    'json is damaged: ZeroDivision',
  ),
  'no labels': (lambda f: about(f, train={}), 'json is damaged: Value'),
  'format': (lambda f: about(f, format=1), 'Expected format=1 == 3 in .*json'),
  'truncated': (
    lambda f: cut(f / 'x.npy', 300),
    r'Expected .*clients/x.npy of 300 bytes to have \d+\.',
  ),
  'no array': (lambda f: (f / 'y.npy').unlink(), 'y.npy of 0 bytes to have'),
  'no head': (
    lambda f: (f / 'y.npy').write_bytes(bytes((f / 'y.npy').stat().st_size)),
    'y.npy is damaged: ',
  ),
  'other type': (
    lambda f: np.save(f / 'test_age.npy', TEST['age'].view(np.int32)),
    r'test_age.npy of <i4\[7, 1\] to be of <f4\[7, 1\]',
  ),
  'population': (lambda f: about(f, population=39), 'population=39 steps'),
  'samples': (lambda f: about(f, samples=9), 'rise from 0 to samples=9 in'),
}
RISE = 'offsets.npy to rise from 0 to samples=.* none of them empty'
DAMAGES |= {
  'falling': (lambda f: offsets(f, np.s_[5:7], np.s_[6:4:-1]), RISE),
  'empty client': (lambda f: offsets(f, 5, 6), RISE),
  'late': (lambda f: offsets(f, 0, 1), RISE),
}
CHANGED = '.npy was changed after it was written: write the store again'
DAMAGES |= {
  f'changed {name}': (lambda f, name=name: flip(f, name), f'{name}{CHANGED}')
  for name in ('x', 'y', 'age', 'test_x', 'test_y', 'test_age')
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
    recorded = store_digests.of_array(x)
    assert not reads, name
    assert recorded == store_digests.of_array(x, read=True)
    assert recorded == digests.of_array(np.array(x))
    assert store_digests.of_array(x[1:]) == digests.of_array(np.array(x[1:]))
    reads.clear()
  flip(folder, 'y')
  with pytest.raises(sources.DataError, match=f'y{CHANGED}'):
    store_digests.of_array(data.train['y'], read=True)


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
  'nobody': ({'chunks': []}, 'Expected at least one client'),
  'nobody in a chunk': (
    chunk(SIZES[:0]),
    'Expected sizes >= 1 of one client or',
  ),
  'empty client': (chunk((3, 0)), r'sizes >= 1 of one client or more, got \[3'),
  'sizes': (chunk((2, 2)), r"arrays of samples=4, got lengths .'x': 3"),
  'lengths': (chunk(y=TRAIN['y'][:2]), 'samples=3, got lengths .'),
  'names': (chunk(age=None), "'age': .*those of the test"),
  'shape': (chunk(x=np.zeros((3, 6), np.uint8)), 'those of the test'),
  'type': (chunk(y=np.zeros(3, np.int8)), 'those of the test'),
  'label': (chunk(y=np.array([0, 5, 1])), 'num_classes=5, got 0 to 5'),
  'negative': (chunk(y=np.array([0, -1, 1])), 'num_classes=5, got -1 to 1'),
  'no x': ({'test': {'y': TEST['y']}}, "'x': .*those of the test"),
  'floats': ({'test': TEST | {'x': TEST['x'] / 255}}, 'those of the test'),
  'no labels': (
    {'test': {'x': TEST['x']}, **chunk(y=None, age=None)},
    "Expected 'y' of integers with num_classes=5",
  ),
  'objects': (
    {'test': {'x': TEST['x'].astype(object)}, 'num_classes': None},
    "Expected numbers in 'x'",
  ),
  'no test': (
    {'test': {name: x[:0] for name, x in TEST.items()}},
    'at least one client, and a test example',
  ),
  'no test at all': ({'test': None}, 'Expected a test, or what clients hold'),
  'mask': ({'test': TEST | {'mask': TEST['y']}}, "array than 'mask'"),
  'offsets': ({'test': TEST | {'offsets': TEST['y']}}, "array than 'offsets'"),
  'ids': (few_ids, 'Expected 1 ids of 4 clients'),
  'test': ({'test': TEST | {'test_x': TEST['x']}}, "array than 'test_x'"),
}


@pytest.mark.parametrize('name', REFUSED)
def test_what_does_not_fit_is_refused_and_leaves_nothing(name, tmp_path):
  changes, message = REFUSED[name]
  with pytest.raises(ValueError, match=message):
    write(tmp_path / 'clients', **changes)
  assert not [*tmp_path.iterdir()]


def test_more_samples_than_an_index_can_tell_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(store_writer, '_MOST', 2)
  with pytest.raises(ValueError, match='Expected samples=7 <= 2'):
    write(tmp_path / 'clients', **chunk())
  assert not [*tmp_path.iterdir()]


def test_an_exception_in_the_middle_leaves_nothing(tmp_path):
  def failing():
    for i, one in enumerate(chunks_of(8)):
      assert not (tmp_path / 'clients').exists()
      if i == 3:
        raise KeyboardInterrupt
      yield one

  with pytest.raises(KeyboardInterrupt):
    write(tmp_path / 'clients', chunks=failing())
  assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_there_stays_as_it_is(folder):
  before = (folder / 'x.npy').stat()
  with pytest.raises(FileExistsError, match='clients not to exist'):
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

  def full(*_):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(os, 'replace', full)
  with pytest.raises(files.SaveError, match='No space left'):
    files.replace(path, 'more')
  assert path.read_text() == 'ours'
  assert not [*folder.glob('*.partial')]
