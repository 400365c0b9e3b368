"""Epsilon against dp_accounting, closed forms and quadrature."""

import dataclasses
import math

import accounting_reference as ref
from accounting_reference import REPLACE, ZERO, delta_of, epsilon, poisson
import dp_accounting
from dp_accounting.pld import PLDAccountant
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import (
  Adjacency,
  GaussianMechanism,
  events,
  profiles,
  types,
)
import numpy as np
import pytest
from scipy import integrate, stats

REFERENCE = [
  (poisson(8.0, 50, 0.9), 1e-8),
  (poisson(1.0, 1, 0.01), 1e-5),
  (poisson(2.0, 100, 0.2, adjacency=REPLACE), 1e-5),
  (poisson(1.0, 30, 0.3, adjacency=ZERO), 1e-5),
  (accounting.compose([poisson(2.0, 50, 0.2), poisson(20.0, 20, 1.0)]), 1e-5),
  (GaussianMechanism(1.21, 100, ref.TRUNCATED, 0.1, 100, 14, ZERO), 1e-5),
]


@pytest.mark.representatives('mechanism1-1e-05', 'mechanism2-1e-05')
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


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('accountant', ['pld', 'rdp'])
def test_full_participation_is_the_closed_form(adjacency, accountant):
  """Also under replace-one at z / 2, where the library's Renyi is not."""
  z, steps = 21.9, 500
  mechanism = GaussianMechanism(z, steps, adjacency=adjacency)
  eps = epsilon(mechanism, accountant=accountant)
  z /= 2 if adjacency is REPLACE else 1
  closed = accounting.gaussian_epsilon(z, 1e-5, steps)
  if accountant == 'pld':
    assert eps == pytest.approx(closed, rel=1e-12)
  else:
    assert closed <= eps <= 1.12 * closed


def test_the_library_still_errs_by_two_under_replace_one():
  """If this fails, the halving of the multiplier must go."""
  from dp_accounting import GaussianDpEvent, NeighboringRelation
  from dp_accounting.rdp import RdpAccountant

  relations = NeighboringRelation
  for relation in relations.ADD_OR_REMOVE_ONE, relations.REPLACE_ONE:
    accountant = RdpAccountant(neighboring_relation=relation)
    accountant.compose(GaussianDpEvent(2.0))
    assert accountant.get_epsilon(1e-5) == pytest.approx(2.166, abs=1e-3)


@pytest.mark.covers('S0-H6, H7')
@pytest.mark.parametrize('z', [0.05, 0.7, 3.0])
@pytest.mark.parametrize('steps', [1, 40])
def test_closed_form_agrees_with_an_integral(z, steps):
  distance = math.sqrt(steps) / z
  for eps in (0.0, 0.3 * distance, distance**2 / 2 + distance):
    loss = lambda x, eps=eps: (
      -math.expm1(min(0, eps - distance * x + distance**2 / 2))
      * stats.norm.pdf(x, distance)
    )
    start = eps / distance + distance / 2
    ends, exact = (start, max(start, distance) + 12), {'epsabs': 0}
    integral, _ = integrate.quad(loss, *ends, epsrel=1e-10, limit=200, **exact)
    delta = accounting.gaussian_delta(z, eps, steps)
    assert delta == pytest.approx(integral, rel=1e-7)
    if 0 < eps and 1e-300 < delta < 1:
      inverse = accounting.gaussian_epsilon(z, delta, steps)
      assert inverse == pytest.approx(eps, rel=1e-6)


@pytest.mark.parametrize(
  ('eps', 'delta', 'steps'), [(1e-3, 1e-9, 1), (1, 0.3, 7), (900, 1e-6, 3)]
)
def test_exact_multiplier_is_the_inverse_and_on_the_safe_side(
  eps, delta, steps
):
  z = accounting.gaussian_noise_multiplier(eps, delta, steps)
  assert accounting.gaussian_delta(z, eps, steps) <= delta
  assert accounting.gaussian_delta(z * (1 - 1e-6), eps, steps) > delta


def test_extremes_are_infinite_or_genuinely_zero():
  assert accounting.gaussian_epsilon(1e-200, 1e-5) == math.inf
  assert accounting.gaussian_epsilon(0, 1e-5) == math.inf
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
@pytest.mark.representatives('pld-2.00684')
@pytest.mark.parametrize(
  ('accountant', 'expected'), [('pld', 2.00684), ('rdp', 2.14608)]
)
def test_calibrated_noise_is_least_and_on_the_safe_side(accountant, expected):
  eps, delta, q, steps = 5.0, 1e-5, 0.2, 100
  z = ref.calibrated(eps, delta, steps, q, accountant)
  assert z == pytest.approx(expected, rel=2e-4)
  mechanism = poisson(z, steps, q)
  assert epsilon(mechanism, delta, accountant) <= eps
  closer = dataclasses.replace(mechanism, noise_multiplier=z * (1 - 2.1e-4))
  assert epsilon(closer, delta, accountant) > eps
