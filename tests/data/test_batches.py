"""Laws of batch drawing. Statistical bounds have false-alarm rate < 1e-6."""

from types import SimpleNamespace

from fl_sketch.data import batches, cohorts, partitions
from fl_sketch.utils import seeding
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import stats


@hypothesis.settings(deadline=None, derandomize=True, max_examples=60)
@hypothesis.given(
  sizes=st.lists(st.integers(2, 9), min_size=1, max_size=6),
  ids=st.lists(st.integers(0, 6), min_size=1, max_size=5),
  order=st.sampled_from(batches.ORDERS), steps=st.integers(1, 3),
  size=st.integers(1, 5), round=st.integers(0, 9),
)  # fmt: skip
def test_clients_see_their_own_samples_only(
  sizes, ids, order, steps, size, round
):
  """Catches samples of others, or left out, and draws that others change."""
  offsets = np.append(0, np.cumsum(sizes))
  p = partitions.Partition(np.arange(offsets[-1])[::-1], offsets)
  ids = np.minimum(ids, p.population)  # the last id is padding
  size = min(size, 2) if order == 'poisson' else size
  draw = lambda ids: batches.draw(p, ids, 1, round, steps, size, order)
  index = draw(ids)
  width = batches.max_batch(p, size) if order == 'poisson' else size
  assert index.shape == (len(ids), steps, width)
  assert index.dtype == np.int32
  missing = -1 if order in ('mask', 'poisson') else 0
  full = batches.full(p, ids)
  assert full.shape == (len(ids), 1, max(sizes))
  for i, batch, whole in zip(ids, index, full, strict=True):
    held = p.client(i).tolist() if i < p.population else []
    if not held:
      assert np.all(batch == missing)
    else:
      assert {*batch.ravel()} <= {*held, *[-1] * (missing == -1)}
    if order == 'cycle' and held:  # in order, from round to round
      walked = np.resize(held, (round + 1) * batch.size)[-batch.size :]
      assert batch.ravel().tolist() == walked.tolist()
    if order == 'mask':  # one pass, then padding
      taken = batch.ravel()[: len(held)].tolist()
      assert len({*taken} - {-1}) == len(taken)
      assert (batch.ravel()[len(held) :] == -1).all()
    assert whole.ravel().tolist() == held + [-1] * (max(sizes) - len(held))
    np.testing.assert_array_equal(draw(np.array([i]))[0], batch)
  np.testing.assert_array_equal(draw(ids[::-1]), index[::-1])


def test_draws_of_neighbouring_counters_are_independent():
  p = partitions.Partition(np.arange(32), np.array([0, 8, 16, 24, 32]))
  x = np.stack([batches.draw(p, np.arange(4), 0, r, 25, 20) for r in range(20)])
  for axis in range(4):
    y = np.moveaxis(x % 8, axis, 0)
    counts = np.bincount((y[1:] * 8 + y[:-1]).ravel(), minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-8


def test_mask_of_less_than_a_pass_repeats_nothing_and_is_uniform():
  p = partitions.Partition(np.arange(20), np.array([0, 20]))
  draws = np.zeros(20)
  for r in range(1000):
    index = batches.draw(p, np.array([0]), 0, r, 1, 4, 'mask').ravel()
    assert len(set(index)) == 4
    draws[index] += 1
  z = (draws - 200) / np.sqrt(1000 * 0.2 * 0.8)
  assert np.all(np.abs(z) < 6)


def chosen(p, rounds, steps, size, **options):
  """Who is in which batch, f64[rounds, steps, samples of all clients]."""
  ids, order = np.arange(p.population), 'poisson'
  taken = np.zeros((rounds, steps, len(p.indices) + 1))
  for r in range(rounds):
    index = batches.draw(p, ids, 7, r, steps, size, order, **options)
    np.put_along_axis(
      taken[r], np.moveaxis(index, 1, 0).reshape(steps, -1), 1, axis=1
    )
  return taken[:, :, :-1]  # padding is -1, and went into the last


def assert_chi_square(squares, freedom):
  assert squares < stats.chi2.isf(1e-8, freedom)
  assert squares > stats.chi2.isf(1 - 1e-8, freedom)  # too good to be random


def test_poisson_samples_are_independent_with_their_probability():
  p = partitions.Partition(np.arange(60), np.array([0, 20, 60]))
  rounds = 3000
  q = np.repeat([1 / 4, 1 / 8], p.sizes)
  taken = chosen(p, rounds, 2, 5)
  # Columns: both steps of all samples of both clients; rows: rounds.
  z = ((taken - q) / np.sqrt(q * (1 - q))).reshape(rounds, -1)
  assert_chi_square(np.sum(z.sum(0) ** 2) / rounds, z.shape[1])
  pairs = (z.T @ z)[np.triu_indices(z.shape[1], 1)]
  assert_chi_square(np.sum(pairs**2) / rounds, len(pairs))
  neighbours = z[1:].T @ z[:-1]
  assert_chi_square(np.sum(neighbours**2) / (rounds - 1), neighbours.size)


def test_poisson_keeps_a_uniform_subset_of_a_batch_that_is_too_large():
  p = partitions.Partition(np.arange(20), np.array([0, 20]))
  limit = batches.max_batch(p, 5, tail=0.4)
  whole, kept = (chosen(p, 3000, 2, 5, tail=t) for t in (1e-18, 0.4))
  whole, kept = (x.reshape(-1, 20) for x in (whole, kept))
  size = whole.sum(1)
  assert np.mean(size > limit) > 0.2
  assert np.all(kept <= whole)
  np.testing.assert_array_equal(kept.sum(1), np.minimum(size, limit))
  cut = size > limit
  share = (limit / size[cut])[:, None] * whole[cut]
  away = (kept[cut] - share).sum(0)
  assert np.all(np.abs(away) < 6 * np.sqrt((share * (1 - share)).sum(0)))


def test_poisson_compares_64_bits(monkeypatch):
  # The number of winning coins of a sample: 2^64 / 3, rounded down.
  third = 2**64 // 3
  coins = np.array(
    [[third - 1, third, 0], [third, 2**64 - 1, third + 1]], np.uint64
  )
  fake = lambda *_: SimpleNamespace(
    bit_generator=SimpleNamespace(random_raw=lambda _: coins)
  )
  monkeypatch.setattr(seeding, 'generator', fake)
  p = partitions.Partition(np.array([5, 6, 7]), np.array([0, 3]))
  index = batches.draw(p, np.array([0]), 0, 0, 2, 1, 'poisson')
  assert index.tolist() == [[[5, 7, -1], [-1, -1, -1]]]
  # With probability 1 even the highest coin wins.
  index = batches.draw(p, np.array([0]), 0, 0, 2, 3, 'poisson')
  assert index.tolist() == [[[5, 6, 7], [5, 6, 7]]]


@pytest.mark.parametrize(('size', 'tail'), [(1, 0.6), (8, 1e-18)])
def test_poisson_limit_holds_for_every_client(size, tail):
  sizes = np.arange(size, 300)
  p = partitions.Partition(
    np.arange(sizes.sum()), np.append(0, np.cumsum(sizes))
  )
  each = [cohorts.default_max_cohort(n, size / n, tail) for n in sizes.tolist()]
  assert max(each) == batches.max_batch(p, size, tail)
