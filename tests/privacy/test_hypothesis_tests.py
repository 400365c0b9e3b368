"""Trade-off curves and mu against closed forms, and tests by brute force."""

import math

import accounting_reference as ref
from accounting_reference import FIXED, INF, REPLACE, delta_of, poisson
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import (
  Adjacency,
  GaussianMechanism,
  hypothesis_tests,
)
from fl_sketch.privacy.accounting.hypothesis_tests import (
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


def test_mu_down_to_a_delta_covers_the_curve_and_hardly_more():
  """Catches a mu of one point of the curve: it holds at every epsilon."""
  mechanism, delta = poisson(1.5, 80, 0.2), 1e-5
  found = mu(mechanism, delta=delta)
  last = accounting.compute_epsilon(mechanism, delta=delta)
  epsilons = np.linspace(0, last * 1.2, 12)
  deltas = [delta_of(mechanism, e) for e in epsilons]
  allowed = [accounting.gaussian_delta(1 / found, e) for e in epsilons]
  assert (deltas <= np.maximum(allowed, delta) * (1 + 1e-6)).all()
  less = [accounting.gaussian_delta(1 / (0.99 * found), e) for e in epsilons]
  assert (deltas > np.maximum(less, delta)).any()


def test_mu_of_almost_everybody_is_that_of_everybody():
  """Catches a bound that is loose where the losses are those of a normal."""
  mechanism = poisson(20.0, 400, 1 - 1e-12)
  for delta in (1e-9, 1e-3):
    assert 1 - 1e-9 <= mu(mechanism, delta=delta) <= 1
  # Its own curve, without the bound of full participation.
  profile = hypothesis_tests.profiles.profile(mechanism)
  epsilons, deltas = hypothesis_tests._curve(profile)
  lines = hypothesis_tests._from_deltas(epsilons, deltas, ALPHAS[1:-1])
  exact = gaussian(1.0, ALPHAS[1:-1])
  assert (lines <= exact).all()
  np.testing.assert_allclose(lines, exact, rtol=2e-4)


def test_without_noise_every_test_is_perfect():
  for mechanism in (GaussianMechanism(0.0, 3), poisson(0.0, 3, 0.1)):
    assert mu(mechanism, delta=1e-5) == INF
    assert type_two_error(mechanism, 0.1) == 0.0
    assert true_positive_rate(mechanism) == 1.0


def test_truncation_has_a_mu_down_to_a_delta_only():
  """Catches a bound of full participation, where one unit displaces others."""
  found = mu(CAPPED, delta=1e-5)
  exact = mu(poisson(1.21, 100, 0.1), delta=1e-5)
  assert exact <= found <= 1.1 * exact
  rate = true_positive_rate(CAPPED)
  assert true_positive_rate(poisson(1.21, 100, 0.1)) <= rate < 0.05


def test_a_fixed_size_is_bounded_by_renyi():
  options = {'accountant': 'rdp'}
  found = mu(FIXED_SIZE, delta=1e-5, **options)
  eps = accounting.compute_epsilon(FIXED_SIZE, delta=1e-5, **options)
  at = 1 / accounting.gaussian_noise_multiplier(eps, 1e-5)
  # Renyi's bound is looser at smaller epsilons, which count too.
  assert 1.02 * at < found
  assert found <= 2 * math.sqrt(20) / 5  # of everybody
  for e in np.linspace(0, eps, 8):
    allowed = max(accounting.gaussian_delta(1 / found, e), 1e-5)
    assert delta_of(FIXED_SIZE, e, 'rdp') <= allowed * (1 + 1e-6)


@pytest.mark.parametrize(('name', 'call'), [
  ('max_cohort', lambda: mu(CAPPED, delta=1e-10)),
  ('delta', lambda: mu(CAPPED, delta=0.0)),
  ('alpha', lambda: type_two_error(CAPPED, np.array([0.5, 1.1]))),
  ('accountant', lambda: type_two_error(FIXED_SIZE, 0.1)),
  ('false_positive_rate', lambda: true_positive_rate(CAPPED, 0.0)),
])  # fmt: skip
def test_what_has_no_trade_off_is_refused(name, call):
  with pytest.raises(ValueError, match=name):
    call()
