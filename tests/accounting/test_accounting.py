"""Epsilon against dp_accounting and closed forms."""

import math

import accounting_reference as ref
from accounting_reference import (
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


@pytest.mark.covers('S0-H6, H7')
@pytest.mark.parametrize('delta', [1e-200, 1e-9, 0.3])
@pytest.mark.parametrize(('z', 'steps'), [(0.05, 1), (0.7, 40), (1e3, 10**6)])
def test_the_closed_form_has_the_epsilon_of_40_digits(z, steps, delta):
  """Catches overflow, cancellation, and an inverse on the unsafe side."""
  exact = multiprecision.closed_form(math.sqrt(steps) / z, delta)
  eps = accounting.gaussian_epsilon(z, delta, steps)
  assert exact <= eps <= exact * (1 + 1e-9)
  assert accounting.gaussian_delta(z, eps, steps) <= delta
  least = accounting.gaussian_noise_multiplier(eps, delta, steps)
  assert least == pytest.approx(z, rel=1e-8)
  assert accounting.gaussian_delta(least, eps, steps) <= delta


def test_extremes_are_infinite_or_genuinely_zero():
  assert accounting.gaussian_epsilon(1e-200, 1e-5) == math.inf
  assert accounting.gaussian_delta(0.0, 5.0) == 1.0
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
