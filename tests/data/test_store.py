"""Stores: what is written is read, damage is refused, clients are simulated."""

import pathlib
import shutil
import tempfile

import chex
from fl_sketch import runs
from fl_sketch.data import batches, partitions, sources, store, synthetic
from fl_sketch.runs import sampler
from fl_sketch.utils import digests
import hypothesis
from hypothesis import strategies as st
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
  """Catches other types, pixels of a part, and a store read into memory."""
  data = store.open(folder)
  for split, expected in ((data.train, TRAIN), (data.test, TEST)):
    chex.assert_trees_all_equal(split, expected)
    assert store.is_mapped(split)
  assert data.num_classes == 5
  np.testing.assert_array_equal(data.partition.sizes, SIZES)
  pixels = TRAIN['x'] / 255
  np.testing.assert_allclose(data.scale['mean'], pixels.mean(), rtol=1e-12)
  np.testing.assert_allclose(data.scale['std'], pixels.std(), rtol=1e-12)


@pytest.mark.parametrize('clients', [1, 40])
def test_the_files_do_not_depend_on_the_chunks(clients, folder, tmp_path):
  other = write(tmp_path / 'other', clients)
  names = sorted(path.name for path in folder.iterdir())
  assert names == sorted(path.name for path in other.iterdir())
  assert len(names) == 8
  for name in names:
    assert (folder / name).read_bytes() == (other / name).read_bytes()


def test_all_uses_are_those_of_explicit_indices(folder):
  disk = store.open(folder).partition
  memory = partitions.Partition(np.arange(HELD), disk.offsets)
  ids = np.array([3, 39, 0, 40, 17])
  uses = []
  for p in (disk, memory):
    drawn = [batches.draw(p, ids, 1, 2, 3, 1, x) for x in batches.ORDERS]
    capped = partitions.cap(p, 3)
    limits = batches.max_batch(p, 1)
    cut = capped.indices, capped.offsets
    uses.append((drawn, batches.full(p, ids), limits, cut))
  chex.assert_trees_all_equal(*uses)
  np.testing.assert_array_equal(disk.sizes, SIZES)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  return write(tmp_path_factory.mktemp('whole') / 'clients')


@hypothesis.settings(deadline=None, derandomize=True, max_examples=80)
@hypothesis.given(
  which=st.integers(0, 7), bit=st.integers(0, 7), at=st.floats(0, 0.999),
  damage=st.sampled_from(['flip', 'flip a header', 'cut', 'remove']),
)  # fmt: skip
def test_a_damaged_store_is_refused(whole, which, bit, at, damage):
  """Catches a flip, a cut or a lost file that gives other data."""
  with tempfile.TemporaryDirectory() as parent:
    folder = pathlib.Path(shutil.copytree(whole, f'{parent}/copy'))
    path = sorted(folder.iterdir())[which]
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
    try:
      data = store.open(folder)
      for split in (data.train, data.test, {'offsets': data.offsets}):
        for x in split.values():  # as a private run does
          store.digest(x, read=True)
    except sources.DataError as error:
      assert 'copy' in str(error)  # noqa: PT017
      return
    # A header's padding changes nothing.
    chex.assert_trees_all_equal(data.train, TRAIN)
    chex.assert_trees_all_equal(data.test, TEST)
    arrays = {'train': None, 'test': None, 'offsets': None}
    assert data._replace(**arrays) == store.open(whole)._replace(**arrays)


def test_a_digest_on_record_is_that_of_the_array(whole, monkeypatch):
  """Catches a digest of another array, or of a part, or a start that reads."""
  data = store.open(whole)
  arrays = {**data.train, 'offsets': data.offsets}
  want = {k: digests.of_array(np.array(x)) for k, x in arrays.items()}
  part = digests.of_array(np.array(data.train['x'][1:]))
  assert store.digest(data.train['x'][1:]) == part
  monkeypatch.setattr(digests, 'of_array', None)
  assert {k: store.digest(x) for k, x in arrays.items()} == want


def chunk(sizes=(2, 1), **changes):
  few = {name: x[:3] for name, x in TRAIN.items()} | changes
  return {'chunks': [(np.array(sizes), few)]}


REFUSED = {
  'many': (chunk(), 'samples'), 'empty client': (chunk((3, 0)), 'sizes'),
  'sizes': (chunk((2, 2)), 'x'),
  'type': (chunk(y=np.zeros(3, np.int8)), 'y'),
  'label': (chunk(y=np.array([0, 5, 1])), 'num_classes'),
  'mask': ({'test': TEST | {'mask': TEST['y']}}, 'mask'),
  'ids': ({'chunks': [store.Chunk(*chunk()['chunks'][0], ids=['anna'])]},
    'ids'),
}  # fmt: skip


@pytest.mark.parametrize('name', REFUSED)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
  name, tmp_path, monkeypatch
):
  """Catches arrays that do not fit, part of a store, indices that wrap."""
  changes, field = REFUSED[name]
  if field == 'samples':
    monkeypatch.setattr(store, '_MOST', 2)
  with pytest.raises(ValueError, match=field):
    write(tmp_path / 'clients', **changes)
  assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_there_stays_as_it_is(tmp_path):
  """Catches a writer that overwrites what another process has written."""

  def slow():
    write(tmp_path / 'late')
    yield from chunks_of(8)

  with pytest.raises(OSError, match='late'):
    write(tmp_path / 'late', chunks=slow())
  before = (tmp_path / 'late' / 'x.npy').stat()
  with pytest.raises(FileExistsError):
    write(tmp_path / 'late')
  assert (tmp_path / 'late' / 'x.npy').stat() == before
  assert [path.name for path in tmp_path.iterdir()] == ['late']


@pytest.fixture(scope='module')
def many(tmp_path_factory):
  """Simulated clients of more than one chunk."""
  folder = tmp_path_factory.mktemp('cache') / 'many'
  synthetic.write_simulated(folder, 1500)
  return store.open(folder)


@pytest.mark.parametrize('population', [1, 1030])
def test_simulated_clients_do_not_depend_on_how_many_there_are(
  population, many, tmp_path
):
  """Catches draws of a client that others shift."""
  synthetic.write_simulated(tmp_path / 'some', population)
  some = store.open(tmp_path / 'some')
  np.testing.assert_array_equal(some.offsets, many.offsets[: population + 1])
  held = some.partition.samples
  first = {name: x[:held] for name, x in many.train.items()}
  chex.assert_trees_all_equal((some.train, some.test), (first, many.test))


def test_simulated_clients_are_ragged_and_labelled_by_the_teacher(many):
  sizes, x, y = many.partition.sizes, many.train['x'], many.train['y']
  assert (sizes.min(), sizes.max()) == (1, 39)
  # Uniform on 1 to 39; six standard errors.
  assert abs(sizes.mean() - 20) < 6 * np.sqrt((39**2 - 1) / 12 / 1500)
  scores = (np.asarray(x, np.float32) - 127) @ synthetic.teacher()
  np.testing.assert_array_equal(scores, np.rint(scores))
  assert 0.8 < np.mean(scores.argmax(1) == y) < 0.9
  means = np.stack([x[many.partition.client(i)].mean(0) for i in range(500)])
  # Shifts spread the means of clients; noise alone would make this about 1.
  assert np.mean(means.var(0)) > 1.3 * np.mean(x.var(0) * np.mean(1 / sizes))


def test_the_simulated_store_is_made_once(tmp_path, monkeypatch):
  """Catches a store that each start writes, or that another start writes."""
  write = synthetic.write_simulated

  def at_once(folder, population):
    write(folder, population)
    write(folder, population)  # what another process does

  monkeypatch.setenv('FL_SKETCH_CACHE', str(tmp_path))
  monkeypatch.setattr(synthetic, 'write_simulated', at_once)
  assert synthetic.simulated(3).partition.population == 3
  monkeypatch.setattr(synthetic, 'write_simulated', None)
  synthetic.simulated(3)


def test_a_run_of_a_store_is_that_of_the_same_arrays_in_memory(tmp_path):
  """Catches rows of other clients, and a store that is held in memory."""
  synthetic.write_simulated(tmp_path / 'clients', 40)
  exp = runs.build({
    'dataset': 'store', 'dataset_options': {'folder': f'{tmp_path}/clients'},
    'model': 'linear', 'population': 40, 'cohort': 12, 'weights': 'samples',
  })  # fmt: skip
  assert store.is_mapped(exp.data)
  offsets = exp.partition.offsets
  memory = partitions.Partition(np.arange(offsets[-1]), offsets)
  arrays = {name: np.array(x) for name, x in exp.data.items()}
  sample = sampler.sampler(exp.config, memory)
  for r in range(3):
    a, b = exp.sample(r), sample(r)
    chex.assert_trees_all_equal(a, b)
    batches = exp.fetch(exp.data, a.batches)
    assert not store.is_mapped(batches)
    chex.assert_trees_all_equal(batches, exp.fetch(arrays, b.batches))
