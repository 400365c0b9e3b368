"""Trade-off curves and mu against closed forms, and tests by brute force."""

import math

import accounting_reference as ref
from accounting_reference import FIXED, INF, REPLACE, delta_of, poisson
from fl_sketch import accounting
from fl_sketch.accounting import Adjacency, GaussianMechanism
from fl_sketch.accounting.hypothesis_tests import (
  mu,
  true_positive_rate,
  type_two_error,
)
import numpy as np
import pytest
from scipy import stats

ALPHAS = np.array([0.0, 1e-6, 1e-3, 0.05, 0.3, 0.9, 1.0])
CAPPED = GaussianMechanism(1.21, 100, ref.TRUNCATED, 0.1, 100, 33)
FIXED_SIZE = GaussianMechanism(
  5.0, 20, FIXED, population=100, max_cohort=10, adjacency=REPLACE
)


def gaussian(distance, alphas):
  """Phi(Phi^-1(1 - alpha) - mu)."""
  return stats.norm.cdf(stats.norm.isf(alphas) - distance)


@pytest.mark.parametrize('adjacency', Adjacency)
def test_full_participation_is_the_trade_off_of_two_normals(adjacency):
  """Catches another sensitivity or order of steps, and Renyi's looseness."""
  options = {'accountant': 'rdp'}
  parts = [(3.0, 12), (5.0, 7)]
  mechanism = accounting.compose(
    GaussianMechanism(z, steps, adjacency=adjacency) for z, steps in parts
  )
  moved = 2 if adjacency is REPLACE else 1
  distance = moved * math.sqrt(12 / 9 + 7 / 25)
  got = mu(mechanism, delta=1e-5, **options)
  assert got == pytest.approx(distance, rel=1e-14)
  errors = type_two_error(mechanism, ALPHAS, **options)
  np.testing.assert_allclose(errors, gaussian(distance, ALPHAS), rtol=1e-9)
  rate = true_positive_rate(mechanism, 0.02, **options)
  assert rate == pytest.approx(1 - gaussian(distance, 0.02), rel=1e-9)


def best_tests(z, q, alphas):
  """Errors of likelihood ratio tests of two sampled releases, both orders."""
  x = np.linspace(-8 * z, 8 * z + 1, 900)
  alone = stats.norm.pdf(x, 0, z)
  mixed = (1 - q) * alone + q * stats.norm.pdf(x, 1, z)
  pairs = [np.outer(a, a).ravel() * (x[1] - x[0]) ** 2 for a in (alone, mixed)]
  for null, other in (pairs, pairs[::-1]):
    order = np.argsort(-other / null)
    rejected = np.cumsum(null[order])
    yield np.interp(alphas, rejected, 1 - np.cumsum(other[order]))


def test_no_test_of_two_sampled_releases_is_better():
  """Catches a bound of another mechanism, or of one order of neighbours."""
  (z, q), alphas = (0.8, 0.3), np.array([1e-3, 0.01, 0.1, 0.3, 0.6])
  exact = np.min([*best_tests(z, q, alphas)], axis=0)
  errors = type_two_error(poisson(z, 2, q), alphas)
  assert (errors <= exact + 1e-5).all()
  # The bound is symmetric and convex, so it may be below either order.
  assert (errors >= exact - 0.02).all()
  renyi = type_two_error(poisson(z, 2, q), alphas, accountant='rdp')
  assert (renyi <= errors + 1e-9).all()


POISSON = poisson(1.5, 80, 0.2)


@pytest.mark.parametrize(('mechanism', 'accountant'), [
  (POISSON, 'pld'), (CAPPED, 'pld'), (FIXED_SIZE, 'rdp'),
])  # fmt: skip
def test_mu_down_to_a_delta_covers_the_curve_and_hardly_more(
  mechanism, accountant
):
  """Catches a mu of one point of the curve: it holds at every epsilon."""
  delta, options = 1e-5, {'accountant': accountant}
  least = mu(mechanism, delta=delta, **options)
  last = accounting.compute_epsilon(mechanism, delta=delta, **options)
  epsilons = np.linspace(0, last * (1.2 if mechanism is POISSON else 1), 12)
  deltas = [delta_of(mechanism, e, accountant) for e in epsilons]
  allowed = lambda m: [accounting.gaussian.delta_at(m, e) for e in epsilons]
  assert (deltas <= np.maximum(allowed(least), delta) * (1 + 1e-6)).all()
  tight = deltas > np.maximum(allowed(0.99 * least), delta)
  assert tight.any() or mechanism is not POISSON


def test_without_noise_every_test_is_perfect():
  for mechanism in (GaussianMechanism(0.0, 3), poisson(0.0, 3, 0.1)):
    assert mu(mechanism, delta=1e-5) == INF
    assert type_two_error(mechanism, 0.1) == 0.0
    assert true_positive_rate(mechanism) == 1.0


def test_truncation_costs_and_has_no_bound_of_full_participation():
  """Catches a bound of full participation, where one unit displaces others."""
  rate, exact = map(true_positive_rate, (CAPPED, poisson(1.21, 100, 0.1)))
  assert exact <= rate < 0.05
  with pytest.raises(accounting.UnsupportedAccountingError):
    mu(CAPPED, delta=1e-10)
