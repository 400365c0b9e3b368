"""Epsilon against dp_accounting and closed forms; what sampling costs."""

import dataclasses
import itertools
import math

import accounting_reference as ref
from accounting_reference import (
  ADD,
  POISSON,
  REPLACE,
  ZERO,
  delta_of,
  epsilon,
  poisson,
)
import dp_accounting
from dp_accounting.pld import PLDAccountant
from fl_sketch import accounting
from fl_sketch.accounting import (
  Adjacency,
  GaussianMechanism,
  events,
  profiles,
  types,
)
import multiprecision
import numpy as np
import pytest
from scipy import stats

REFERENCE = [
  (poisson(2.0, 100, 0.2, adjacency=REPLACE), 1e-5),
  (accounting.compose([poisson(2.0, 50, 0.2), poisson(20.0, 20, 1.0)]), 1e-5),
  (GaussianMechanism(1.21, 100, ref.TRUNCATED, 0.1, 100, 14, ZERO), 1e-5),
]


@pytest.mark.representatives('mechanism0-1e-05', 'mechanism1-1e-05')
@pytest.mark.parametrize(('mechanism', 'delta'), REFERENCE)
def test_losses_are_those_of_dp_accounting(mechanism, delta):
  """Catches losses of another adjacency."""
  relation = events.relation(types.parts_of(mechanism)[0].adjacency)
  library = PLDAccountant(relation)
  for part in types.parts_of(mechanism):
    z, q = part.noise_multiplier, part.sampling_probability
    event = dp_accounting.PoissonSampledDpEvent(
      q, dp_accounting.GaussianDpEvent(z)
    )
    if part.max_cohort is not None:
      sizes = part.population, q, part.max_cohort
      event = dp_accounting.TruncatedSubsampledGaussianDpEvent(*sizes, z)
    library.compose(event, part.steps)
  want = library.get_epsilon(delta)
  assert epsilon(mechanism, delta) == pytest.approx(want, rel=1e-5)


def by_integer_orders(z, q, order):
  """Mironov, Talwar and Zhang, arXiv:1908.10530, section 3.3."""
  terms = [
    math.log(math.comb(order, k))
    + k * math.log(q)
    + (order - k) * math.log(1 - q)
    + k * (k - 1) / (2 * z**2)
    for k in range(order + 1)
  ]
  return np.logaddexp.reduce(terms) / (order - 1)


def divergences(mechanism, orders):
  return np.array(profiles.renyi(types.parts_of(mechanism), orders).divergences)


def test_divergences_of_samples_are_those_of_the_closed_form():
  """Catches steps, or the sampling, that are left out."""
  (z, q, steps), orders = (1.0, 0.2, 7), (2, 5, 30)
  want = [steps * by_integer_orders(z, q, order) for order in orders]
  got = divergences(poisson(z, steps, q), orders)
  np.testing.assert_allclose(got, want, rtol=1e-6)
  assert (got > want).all()  # by what rounding may cost


@pytest.mark.parametrize('adjacency', Adjacency)
def test_divergences_of_everybody_grow_by_the_order_and_add_up(adjacency):
  """Catches the sensitivity of another adjacency, and releases of one step."""
  moved = 2 if adjacency is REPLACE else 1
  spec = {'adjacency': adjacency}
  one = GaussianMechanism(2.0, 3, **spec)
  two = GaussianMechanism(5.0, 4, releases_per_step=2, **spec)
  orders = 1.01, 1.5, 2.0, 77.0
  alone = divergences(one, orders)
  np.testing.assert_allclose(alone, np.array(orders) * moved**2 * 3 / 8)
  both = np.array(orders) * moved**2 * (3 / 8 + 8 / 50)
  composed = divergences(accounting.compose([one, two]), orders)
  np.testing.assert_allclose(composed, both)


@pytest.mark.parametrize('delta', [1e-200, 1e-9, 0.3])
@pytest.mark.parametrize(('z', 'steps'), [(0.05, 1), (0.7, 40), (1e3, 10**6)])
def test_the_closed_form_has_the_epsilon_of_40_digits(z, steps, delta):
  """Catches overflow, cancellation, and an inverse on the unsafe side."""
  exact = multiprecision.closed_form(math.sqrt(steps) / z, delta)
  eps = accounting.gaussian_epsilon(z, delta, steps)
  assert exact <= eps <= exact * (1 + 1e-9)
  assert accounting.gaussian.delta_at(math.sqrt(steps) / z, eps) <= delta
  least = accounting.gaussian_noise_multiplier(eps, delta, steps)
  assert least == pytest.approx(z, rel=1e-8)
  assert accounting.gaussian.delta_at(math.sqrt(steps) / least, eps) <= delta


def test_extremes_are_infinite_or_genuinely_zero():
  assert accounting.gaussian_epsilon(1e-200, 1e-5) == math.inf
  assert accounting.gaussian_epsilon(1e9, 1e-5) == 0.0
  assert accounting.gaussian_epsilon(1e9, 1e-11) > 0
  for q in (0.2, 1.0):
    for accountant in ('pld', 'rdp'):
      silent = poisson(0.0, 3, q)
      assert epsilon(silent, accountant=accountant) == math.inf
      assert delta_of(silent, 5, accountant) == 1
      assert epsilon(poisson(1e-8, 3, q), accountant=accountant) > 1e15


@pytest.mark.smoke
@pytest.mark.representatives('spec0')
@pytest.mark.parametrize('spec', [
  {'sampling_probability': 0.2},
  {'sampling_probability': 0.2, 'accountant': 'rdp'},
  {'sampling': ref.ALLOCATION, 'epoch_steps': 5},
])  # fmt: skip
def test_calibrated_noise_is_least_and_on_the_safe_side(spec):
  """Catches a calibration to another sampling, or to less noise."""
  goal, delta, steps = 5.0, 1e-5, 100
  target = {'epsilon': goal, 'delta': delta, 'steps': steps}
  z = accounting.calibrate_noise_multiplier(**target, **spec)
  accountant = spec.pop('accountant', 'pld')
  spec = {'sampling': POISSON, **spec}
  at = lambda z: GaussianMechanism(z, steps, **spec)
  assert epsilon(at(z), delta, accountant) <= goal
  assert epsilon(at(z * (1 - 2.1e-4)), delta, accountant) > goal


def fixed(z, steps, population, cohort):
  clients = {'population': population, 'max_cohort': cohort}
  return GaussianMechanism(z, steps, ref.FIXED, adjacency=REPLACE, **clients)


EPOCHS = {'sampling': ref.ALLOCATION, 'epoch_steps': 5}


@pytest.mark.parametrize(('plain', 'sampling', 'caps', 'accountant'), [
  (poisson(1.21, 100, 0.1), ref.TRUNCATED, (40, 33, 20), 'rdp'),
  (ref.mechanism(steps=20, **EPOCHS), ref.ALLOCATION, (100, 48, 30), 'pld'),
  (ref.mechanism(steps=20, adjacency=ref.ZERO, **EPOCHS), ref.ALLOCATION,
    (100, 48, 30), 'pld'),
])  # fmt: skip
def test_a_largest_cohort_pays_for_its_overflow(
  plain, sampling, caps, accountant
):
  """Catches a largest cohort that costs nothing."""
  sizes = {'population': 100, 'sampling': sampling}
  wide, tight, small = (
    dataclasses.replace(plain, max_cohort=cap, **sizes) for cap in caps
  )
  exact = epsilon(plain, accountant=accountant)
  assert exact <= epsilon(wide, accountant=accountant) <= exact + 1e-4
  eps = epsilon(tight, accountant=accountant)
  assert exact < eps
  q = plain.sampling_probability
  overflow = plain.steps * stats.binom.sf(caps[1], 101, q)
  total = delta_of(plain, eps, accountant) + (1 + math.exp(eps)) * overflow
  assert total <= 1e-5
  capped = delta_of(tight, eps, accountant)
  assert capped == pytest.approx(total, rel=1e-9)
  with pytest.raises(accounting.UnsupportedAccountingError):
    epsilon(small, accountant=accountant)


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


def capped(adjacency, units):
  return GaussianMechanism(2.0, 1, ref.TRUNCATED, 0.3, units, 1, adjacency)


@pytest.mark.parametrize(('mechanism', 'before', 'after', 'accountant'), [
  (capped(ADD, 1), (-1.0,), (-1.0, 1.0), 'pld'),
  (capped(ref.ZERO, 2), (-1.0, 1.0), (-1.0, 0.0), 'pld'),
  (fixed(1.5, 1, 2, 1), (-1.0, 1.0), (-1.0, -1.0), 'rdp'),
])  # fmt: skip
def test_a_case_by_hand_is_covered(mechanism, before, after, accountant):
  """Catches a delta below that of two units by hand, of which one is drawn."""
  x, z = np.linspace(-20, 20, 4001), mechanism.noise_multiplier
  q = mechanism.sampling_probability  # 1 with a fixed size: all are drawn
  densities = [sampled_density(v, q, 1, z, x) for v in (before, after)]
  for p, other in (densities, densities[::-1]):
    for eps in (0.05, 0.2, 0.5, 1.0):
      delta = np.sum(np.maximum(p - math.exp(eps) * other, 0)) * (x[1] - x[0])
      assert delta <= delta_of(mechanism, eps, accountant)


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


def test_disjoint_data_cost_the_largest_epsilon():
  assert accounting.parallel_composition([0.5, 2.0, 1]) == 2.0
  assert accounting.parallel_composition([1.0, math.inf]) == math.inf


def test_a_delta_below_rounding_is_not_reported():
  sampled = poisson(50.0, 10, 0.1)
  assert delta_of(sampled, 5.0) == 1e-12
  assert delta_of(sampled, 5.0, 'rdp') < 1e-12
