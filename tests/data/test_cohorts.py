"""Laws of client sampling. Statistical bounds have false-alarm rate < 1e-6."""

from decimal import Decimal, localcontext
import math
import tracemalloc

from fl_sketch.data import cohorts
import numpy as np
import pytest
from scipy import stats

CASES = {
  'fixed': ('fixed_size', 40, {'cohort': 7}),
  'all': ('fixed_size', 12, {'cohort': 12}),
  'with replacement': ('with_replacement', 40, {'cohort': 30}),
  'poisson': ('poisson', 40, {'probability': 0.3}),
  'poisson overflow': ('poisson', 40, {'probability': 0.5, 'max_cohort': 9}),
  'poisson all': ('poisson', 9, {'probability': 1.0}),
  'allocation': ('random_allocation', 40, {'epoch_rounds': 4}),
  'allocation overflow': ('random_allocation', 40,
    {'epoch_rounds': 2, 'max_cohort': 9}),
  'allocation all': ('random_allocation', 9, {'epoch_rounds': 1}),
}  # fmt: skip
ROUNDS = 2000


def rounds_of(kind, population, n=ROUNDS, **options):
  return [cohorts.KINDS[kind](3, r, population, **options) for r in range(n)]


@pytest.mark.parametrize('case', CASES.values(), ids=CASES.keys())
def test_a_round_is_sorted_padded_and_of_its_seed_alone(case):
  """Catches clients twice, padding in between, and draws that repeat."""
  kind, population, options = case
  rounds, shapes = rounds_of(kind, population, 50, **options), set()
  for ids, weight in rounds:
    assert (ids.dtype, weight.dtype) == (np.int32, np.float32)
    shapes.add((ids.shape, weight.shape))
    present = weight > 0
    assert np.all(np.diff(ids[present]) > 0)
    assert np.all((ids[present] >= 0) & (ids[present] < population))
    assert np.all(ids[~present] == population)
    assert np.all(np.diff(present.astype(int)) <= 0)
  assert len(shapes) == 1
  draw = lambda seed, r: cohorts.KINDS[kind](seed, r, population, **options)
  np.testing.assert_array_equal(rounds[19], draw(3, 19))
  drawn = [ids.tolist() for ids, _ in rounds]
  if drawn[0] != [*range(population)]:
    assert len({*map(tuple, drawn)}) > 5
    assert [draw(4, r)[0].tolist() for r in range(50)] != drawn


def independent(p, most=4):
  """The probability of each subset of 4 clients as bits, cut to `most`."""
  sizes = np.array([bin(i).count('1') for i in range(16)])
  uncut = p**sizes * (1 - p) ** (4 - sizes)
  of_size = np.bincount(sizes)
  too_large = uncut[sizes > most].sum() / of_size[most]
  return np.where(sizes < most, uncut, (uncut + too_large) * (sizes == most))


@pytest.mark.parametrize(('kind', 'options', 'probability'), [
  ('fixed_size', {'cohort': 2}, independent(1.0, 2)),
  ('poisson', {'probability': 0.3}, independent(0.3)),
  ('poisson', {'probability': 0.5, 'max_cohort': 2}, independent(0.5, 2)),
  ('random_allocation', {'epoch_rounds': 2, 'max_cohort': 2},
    independent(0.5, 2)),
])  # fmt: skip
def test_every_subset_has_its_probability(kind, options, probability):
  """Catches clients, pairs or sizes that are not as likely as they should."""
  subsets = [
    np.sum(2 ** ids[w > 0]) for ids, w in rounds_of(kind, 4, **options)
  ]
  counts, possible = np.bincount(subsets, minlength=16), probability > 0
  assert not counts[~possible].any()
  expected = ROUNDS * probability[possible]
  assert stats.chisquare(counts[possible], expected).pvalue > 1e-7


def test_a_cohort_takes_no_memory_of_the_population():
  """Catches draws for every client of the population in every round."""
  tracemalloc.start()
  cohorts.poisson(0, 0, 10**7, 1e-6, max_cohort=60)
  cohorts.fixed_size(0, 0, 10**7, 10)
  cohorts.random_allocation(0, 0, 10**6, 10**5, max_cohort=60)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 10**6


def epoch_places(seed, epoch, population, t, **options):
  """The place of each client in an epoch, and how often it has one."""
  place, times = np.full(population, -1), np.zeros(population, int)
  for r in range(t):
    draw = cohorts.random_allocation(
      seed, epoch * t + r, population, t, **options
    )
    ids = draw[0][draw[1] > 0]
    place[ids] = r
    times[ids] += 1
  return place, times


def test_allocations_are_one_round_of_an_epoch_by_independent_coins():
  """Catches coins of every round, a shuffle, and repeated epochs."""
  _, times = epoch_places(3, 1, 40_000, 5, max_cohort=40_000)  # many blocks
  assert np.all(times == 1)
  population, t, epochs = 60, 4, 200
  drawn = [
    epoch_places(5, e, population, t, max_cohort=population)
    for e in range(epochs)
  ]
  places, times = (np.stack(x) for x in zip(*drawn, strict=True))
  assert np.all(times == 1)
  # Five bounds of 1e-7 each. Only disjoint pairs count: they are independent.
  uniform = lambda x, n: stats.chisquare(np.bincount(x.ravel(), minlength=n))
  assert uniform(places, t).pvalue > 1e-7
  clients = places[:, :-1:2] * t + places[:, 1::2]
  in_time = places[:-1:2] * t + places[1::2]
  for pairs in (clients, in_time):
    assert uniform(pairs, t * t).pvalue > 1e-7
  sizes = np.array([np.bincount(row, minlength=t) for row in places])
  variance = population / t * (1 - 1 / t)
  dispersion = np.sum((sizes[:, 0] - population / t) ** 2) / variance
  assert dispersion < stats.chi2.isf(1e-7, epochs)
  assert dispersion > stats.chi2.isf(1 - 1e-7, epochs)


@pytest.mark.parametrize('tail', [0.5, 1e-9, 1e-25])
@pytest.mark.parametrize('probability', [1e-6, 0.2, 1.0])
def test_default_max_cohort_is_the_least_for_any_tail(probability, tail):
  for population in (1, 5, 500):
    size = cohorts.default_max_cohort(population, probability, tail)
    assert 1 <= size <= population
    assert _binomial_tail(size, population, probability) <= tail
    if size > 1:
      assert _binomial_tail(size - 1, population, probability) > tail


def _binomial_tail(size, population, probability):
  """P[Binomial > size] computed with 40 digits, then rounded."""
  with localcontext(prec=40):
    p, n = Decimal(probability), population
    terms = (
      math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(size + 1, n)
    )
    return float(sum(terms) + (p**n if size < n else 0))


def test_with_replacement_counts_every_draw():
  """Catches draws of one client that count once, or unequal clients."""
  draws = rounds_of('with_replacement', 3, cohort=2)
  times = np.zeros((ROUNDS, 4))
  for row, (ids, weight) in zip(times, draws, strict=True):
    row[ids] = weight
  assert np.all(times[:, :3].sum(1) == 2)
  drawn, counts = np.unique(times[:, :3], axis=0, return_counts=True)
  expected = ROUNDS * np.where(drawn.max(1) == 2, 1, 2) / 9
  assert stats.chisquare(counts, expected).pvalue > 1e-7
