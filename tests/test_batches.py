"""Laws of batch drawing. Statistical bounds have false-alarm rate < 1e-6."""

from fl_sketch.data import batches
from fl_sketch.data import partitions
import numpy as np
import pytest
from scipy import stats

RAGGED = partitions.size_skew(500, 30, seed=0, sigma=1.5)
EVEN = partitions.iid(480, 30, seed=0)
IDS = np.array([3, 29, 0, 17, 30, 8, 30], np.int32)  # 30 is padding
each_order = pytest.mark.parametrize('order', batches.ORDERS)
each_partition = pytest.mark.parametrize('p', [RAGGED, EVEN])


@each_order
@each_partition
def test_clients_see_their_own_samples_only(p, order):
  index = batches.draw(p, IDS, 0, 5, local_steps=4, batch_size=6, order=order)
  assert index.shape == (7, 4, 6)
  assert index.dtype == np.int32
  for i, own in zip(IDS, index, strict=True):
    if i == 30:
      assert np.all(own == (-1 if order == 'mask' else 0))
    else:
      allowed = [-1] if order == 'mask' else []
      assert set(own.ravel()) <= {*p.client(i), *allowed}


@each_order
def test_a_client_draws_the_same_in_any_cohort(order):
  draw = lambda ids: batches.draw(RAGGED, ids, 1, 2, 3, 5, order)
  together = draw(IDS)
  np.testing.assert_array_equal(draw(IDS[::-1]), together[::-1])
  np.testing.assert_array_equal(draw(np.append(IDS, 30))[:-1], together)
  for i, own in zip(IDS, together, strict=True):
    np.testing.assert_array_equal(draw(np.array([i]))[0], own)


@pytest.mark.parametrize('order', ['replace', 'mask'])
def test_seed_round_client_and_position_all_matter(order):
  same = partitions.Partition(np.arange(400), np.array([0, 400]))
  twin = partitions.Partition(np.arange(800) % 400, np.array([0, 400, 800]))
  draw = lambda p, i, seed, r: batches.draw(
    p, np.array([i]), seed, r, 2, 20, order
  )
  base = draw(same, 0, 0, 0)
  assert not np.array_equal(base, draw(same, 0, 1, 0))
  assert not np.array_equal(base, draw(same, 0, 0, 1))
  assert not np.array_equal(base, draw(twin, 1, 0, 0))
  assert not np.array_equal(base[:, 0], base[:, 1])
  np.testing.assert_array_equal(base, draw(twin, 0, 0, 0))
  np.testing.assert_array_equal(base, draw(same, 0, 2**64, 0))


@pytest.mark.parametrize('size', [1, 3, 7, 64])
def test_replace_is_uniform_over_positions_clients_and_rounds(size):
  clients = 20
  p = partitions.Partition(
    np.arange(size * clients), np.arange(clients + 1) * size
  )
  draws = np.stack(
    [batches.draw(p, np.arange(clients), 0, r, 10, 10) for r in range(30)]
  )
  within = draws % size  # [rounds, clients, steps, batch]
  for axes in ((1, 2, 3), (0, 2, 3), (0, 1, 2)):
    kept = np.moveaxis(within, axes, (-3, -2, -1)).reshape(
      within.size // np.prod([within.shape[a] for a in axes]), -1
    )
    for row in kept if size > 1 else ():
      counts = np.bincount(row, minlength=size)
      statistic = np.sum((counts - row.size / size) ** 2) / (row.size / size)
      assert statistic < stats.chi2.isf(1e-9, size - 1)


def test_draws_of_neighbouring_counters_are_independent():
  p = partitions.Partition(np.arange(32), np.array([0, 8, 16, 24, 32]))
  x = np.stack([batches.draw(p, np.arange(4), 0, r, 25, 20) for r in range(20)])
  x = x % 8
  pairs = [
    (x[1:], x[:-1]),
    (x[:, 1:], x[:, :-1]),
    (x[:, :, 1:], x[:, :, :-1]),
    (x[..., 1:], x[..., :-1]),
  ]
  for a, b in pairs:
    counts = np.bincount((a * 8 + b).ravel(), minlength=64)
    expected = a.size / 64
    statistic = np.sum((counts - expected) ** 2) / expected
    assert statistic < stats.chi2.isf(1e-8, 63)


def test_cycle_walks_in_order_from_round_to_round():
  ids = np.array([4, 11, 30])
  index = np.concatenate(
    [batches.draw(EVEN, ids, 0, r, 3, 5, 'cycle')[:2] for r in range(4)], 1
  ).reshape(2, -1)
  for i, walked in zip(ids, index, strict=False):
    np.testing.assert_array_equal(walked, np.resize(EVEN.client(i), 60))


def test_cycle_of_a_whole_pass_is_the_same_every_round():
  first, later = (
    batches.draw(EVEN, np.array([2]), 0, r, 2, 8, 'cycle') for r in (0, 10**9)
  )
  np.testing.assert_array_equal(first, later)
  np.testing.assert_array_equal(first.ravel(), EVEN.client(2))


def test_mask_visits_each_sample_once_in_a_fresh_order():
  largest = RAGGED.sizes.max()
  ids = np.arange(31)
  rounds = [
    batches.draw(RAGGED, ids, 0, r, 2, largest, 'mask') for r in range(2)
  ]
  for index in rounds:
    for i in range(30):
      own = index[i].ravel()
      size = RAGGED.sizes[i]
      np.testing.assert_array_equal(
        np.sort(own[:size]), np.sort(RAGGED.client(i))
      )
      assert np.all(own[size:] == -1)
  assert not np.array_equal(rounds[0], rounds[1])


def test_mask_of_less_than_a_pass_repeats_nothing_and_is_uniform():
  p = partitions.Partition(np.arange(20), np.array([0, 20]))
  seen = np.zeros(20)
  for r in range(1000):
    index = batches.draw(p, np.array([0]), 0, r, 1, 4, 'mask').ravel()
    assert len(set(index)) == 4
    seen[index] += 1
  z = (seen - 200) / np.sqrt(1000 * 0.2 * 0.8)
  assert np.all(np.abs(z) < 6)


@each_partition
def test_full_is_every_client_whole(p):
  index = batches.full(p, IDS)
  assert index.shape == (7, 1, p.sizes.max())
  assert index.dtype == np.int32
  for i, own in zip(IDS, index[:, 0], strict=True):
    held = p.client(i) if i < 30 else []
    np.testing.assert_array_equal(own[: len(held)], held)
    assert np.all(own[len(held) :] == -1)


def test_bad_arguments_are_refused():
  with pytest.raises(ValueError, match=r"order='no' in \('replace', 'cycle'"):
    batches.draw(EVEN, IDS, 0, 0, 1, 1, 'no')
  with pytest.raises(ValueError, match='batch_size=0 >= 1'):
    batches.draw(EVEN, IDS, 0, 0, 1, 0)
  for ids in ([-1], [31]):
    with pytest.raises(ValueError, match='0 <= ids <= population=30'):
      batches.full(EVEN, np.array(ids))
