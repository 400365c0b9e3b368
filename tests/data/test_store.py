"""Clients on disk: what is written is read, and used as arrays in memory."""

import chex
from fl_sketch.data import batches, partitions, store
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
    limits = batches.poisson_limits(p, 1)
    cut = capped.indices, capped.offsets
    uses.append((drawn, batches.full(p, ids), limits, cut))
  chex.assert_trees_all_equal(*uses)
  np.testing.assert_array_equal(disk.sizes, SIZES)
