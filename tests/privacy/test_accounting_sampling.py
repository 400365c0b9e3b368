"""What a scheme of sampling costs, and what compositions of steps do."""

import itertools
import math

import accounting_reference as ref
from accounting_reference import ADD, REPLACE, delta_of, epsilon, poisson
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import GaussianMechanism
import numpy as np
import pytest
from scipy import optimize, stats


def fixed(z, steps, population, cohort):
  clients = {'population': population, 'max_cohort': cohort}
  return GaussianMechanism(z, steps, ref.FIXED, adjacency=REPLACE, **clients)


def truncated(cap):
  return GaussianMechanism(1.21, 100, ref.TRUNCATED, 0.1, 100, cap)


def test_truncation_under_add_or_remove_pays_for_its_overflow():
  accountant = 'rdp'
  exact = poisson(1.21, 100, 0.1)
  overflow = lambda cap: 100 * stats.binom.sf(cap, 101, 0.1)
  target = epsilon(exact, accountant=accountant)
  wide = epsilon(truncated(40), accountant=accountant)
  assert target <= wide <= target + 1e-4
  tight = epsilon(truncated(33), accountant=accountant)
  assert target < tight
  paid = (1 + math.exp(tight)) * overflow(33)
  total = delta_of(exact, tight, accountant) + paid
  assert total <= 1e-5
  capped = delta_of(truncated(33), tight, accountant)
  assert capped == pytest.approx(total, rel=1e-9)
  with pytest.raises(accounting.UnsupportedAccountingError):
    epsilon(truncated(20), accountant=accountant)


def sampled_density(values, q, cap, z, x):
  """Density of a step on one-dimensional values, by all subsets."""
  total = np.zeros_like(x)
  for chosen in itertools.product((0, 1), repeat=len(values)):
    kept = [value for value, bit in zip(values, chosen, strict=True) if bit]
    weight = math.prod(q if bit else 1 - q for bit in chosen)
    subsets = [*itertools.combinations(kept, min(cap, len(kept)))]
    for subset in subsets:
      total += weight / len(subsets) * stats.norm.pdf(x, sum(subset), scale=z)
  return total


def test_an_epsilon_past_floats_leaves_truncation_no_delta():
  rare = GaussianMechanism(5.0, 100, ref.TRUNCATED, 0.1, 310, 309)
  assert delta_of(rare, 5.0) < 1e-3
  assert delta_of(rare, 709.0) == 1.0


@pytest.mark.representatives('before0-after0-Adjacency.ADD_OR_REMOVE_ONE')
@pytest.mark.parametrize(
  ('before', 'after', 'adjacency'),
  [((-1.0,), (-1.0, 1.0), ADD), ((-1.0, 1.0), (-1.0, 0.0), ref.ZERO)],
)
def test_truncation_covers_a_case_by_hand(before, after, adjacency):
  """Two units of which one is kept: where truncation is the whole story."""
  x, z, q = np.linspace(-20, 20, 20_001), 2.0, 0.3
  densities = [sampled_density(v, q, 1, z, x) for v in (before, after)]
  mechanism = GaussianMechanism(
    z, 1, ref.TRUNCATED, q, len(before), 1, adjacency
  )
  for p, other in (densities, densities[::-1]):
    for eps in (0.05, 0.2, 0.5):
      delta = np.sum(np.maximum(p - math.exp(eps) * other, 0)) * (x[1] - x[0])
      assert delta <= delta_of(mechanism, eps)


def test_a_fixed_cohort_covers_a_case_by_hand():
  """One of two units, the other at -C: the true curve stays below."""
  x, z = np.linspace(-15, 15, 20_001), 1.5
  pdf = lambda v: 0.5 * stats.norm.pdf(x, v, z)
  p, other = pdf(-1) + pdf(1), pdf(-1) + pdf(-1)
  true = lambda eps: max(
    np.sum(np.maximum(a - math.exp(eps) * b, 0)) * (x[1] - x[0])
    for a, b in ((p, other), (other, p))
  )
  for delta in (1e-2, 1e-4):
    eps = epsilon(fixed(z, 1, 2, 1), delta, 'rdp')
    least = optimize.brentq(lambda e, delta=delta: true(e) - delta, 0, 20)
    assert least <= eps
    assert true(epsilon(poisson(z, 1, 0.5), delta)) > delta


def test_a_fixed_cohort_of_everyone_is_full_participation():
  closed = accounting.gaussian_epsilon(1.0, 1e-5, 9)
  assert epsilon(fixed(2.0, 9, 5, 5)) == closed


def test_releases_of_one_cohort_count_as_one_of_less_noise():
  """They share the coin: sampling them one by one would be too little."""
  for accountant in ('pld', 'rdp'):
    twice = poisson(2.0, 10, 0.2, releases_per_step=2)
    once = poisson(2.0 / math.sqrt(2), 10, 0.2)
    eps = epsilon(twice, accountant=accountant)
    assert eps == pytest.approx(epsilon(once, accountant=accountant), rel=1e-9)
    assert eps > epsilon(poisson(2.0, 20, 0.2), accountant=accountant)


def test_a_curve_has_the_epsilon_of_each_number_of_steps():
  question = {'delta': 1e-5, 'accountant': 'pld'}
  mechanism, lengths = poisson(4.0, 999, 0.2), [100, 1, 30]
  curve = accounting.epsilon_curve(mechanism, lengths, **question)
  parts = (poisson(4.0, steps, 0.2) for steps in lengths)
  assert curve == [epsilon(part, **question) for part in parts]
  assert curve[1] < curve[2] < curve[0]
  assert accounting.epsilon_curve(mechanism, [], **question) == []


@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
def test_composition_does_not_see_how_it_is_cut(accountant):
  whole = poisson(2.0, 60, 0.2)
  parts = [poisson(2.0, 20, 0.2), poisson(2.0, 40, 0.2)]
  composed = accounting.compose(parts)
  assert accounting.compose([composed]) == composed
  eps = epsilon(whole, accountant=accountant)
  assert epsilon(composed, accountant=accountant) == pytest.approx(eps, 1e-6)
  full = [GaussianMechanism(3.0, 3), GaussianMechanism(4.0, 2)]
  distance = math.sqrt(3 / 9 + 2 / 16)
  closed = accounting.gaussian_epsilon(1 / distance, 1e-5)
  assert epsilon(accounting.compose(full)) == pytest.approx(closed, 1e-12)


@pytest.mark.covers('S0-H2')
def test_disjoint_data_cost_the_largest_epsilon():
  assert accounting.parallel_composition([0.5, 2.0, 1]) == 2.0
  assert accounting.parallel_composition([1.0, math.inf]) == math.inf


def test_a_delta_below_rounding_is_not_reported():
  sampled = poisson(50.0, 10, 0.1)
  assert delta_of(sampled, 5.0) == 1e-12
  assert delta_of(sampled, 5.0, 'rdp') < 1e-12
