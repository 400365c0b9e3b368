"""Theorems K.2 and K.3 of Song et al.: that the inputs themselves are found."""

import loss_conditions as conditions
from loss_conditions import (
  non_critical,
  quadratic,
  semi_lipschitz_gradient,
  semi_strongly_convex,
)
import numpy as np
from papers.song.statements import leakage
import pytest

from tests.papers.test_leakage_theory import descend


@pytest.mark.covers('S0-K3')
def test_recovery_of_a_quadratic():
  """Theorem K.3 with alpha = c = 0: x'Ax, where x goes to x*."""
  f = quadratic(np.diag([1.0, 2.0, 5.0]))
  x, y = np.random.default_rng(0).normal(size=(2, 400, 3))
  pairs = conditions.at(f, x, y)
  d = semi_strongly_convex(pairs)
  assert d == pytest.approx(1, rel=0.05)
  beta, d, theta1 = 10.0, 1.0, 2.0  # exact
  rate = leakage.recovery(
    alpha=0.0, beta=beta, c=0.0, d=d, p=0.5, theta1=theta1
  )
  assert rate == pytest.approx((d / beta**2, 1 - d**2 / beta**2))
  values, points = descend(f, np.ones(3), rate.step, 200)
  away = np.square(points).sum(1)
  assert (away[1:] <= away[:-1] * rate.factor).all()
  # Along the least eigenvector (1 - 2 step d)^2: about 4 times that fast.
  assert away[-1] / away[-2] > rate.factor**4.1
  assert values[-1] < values[0]


@pytest.mark.covers('S0-K3')
@pytest.mark.parametrize('p', [0.3, 0.5])
def test_recovery_pays_for_alpha_and_c(p):
  """With a slower rate, and where that would be too slow, with a refusal."""
  free = leakage.recovery(alpha=0.0, beta=4.0, c=0.0, d=2.0, p=p, theta1=2.0)
  taxed = leakage.recovery(alpha=0.1, beta=4.0, c=0.05, d=2.0, p=p, theta1=2.0)
  assert taxed.step < free.step
  assert free.factor < taxed.factor < 1
  half = leakage.recovery(
    alpha=0.1, beta=4.0, c=0.05, d=2.0, p=p, theta1=2.0, step=taxed.step / 2
  )
  assert 1 - half.factor == pytest.approx((1 - taxed.factor) / 2)
  with pytest.raises(ValueError, match='xi='):
    leakage.recovery(alpha=0.1, beta=4.0, c=2.0, d=2.0, p=p, theta1=2.0)
  with pytest.raises(ValueError, match=r'theta1=2\.0 > '):
    leakage.recovery(alpha=3.0, beta=4.0, c=0.0, d=2.0, p=p, theta1=2.0)


def rippled(size, count):
  """x^2 (1 + size sin(count log|x|)), and pairs of all scales with 0.

  One period of x, as the constants are the same in each.
  """
  ripple = lambda x: count * np.log(np.where(x, abs(x), 1))
  wave = lambda x: 1 + size * np.sin(ripple(x))
  slope = lambda x: 2 * wave(x) + size * count * np.cos(ripple(x))
  f = conditions.Function(
    lambda x: (x**2 * wave(x))[:, 0], lambda x: x * slope(x)
  )
  turns = np.arange(100) / 100
  x = np.exp(2 * np.pi / count * turns)
  far = np.exp(2 * np.pi / count * (np.arange(-3, 4)[:, None] + turns[None]))
  y = np.concatenate([[0], far.ravel(), -far.ravel()])
  x, y = (v.ravel()[:, None] for v in np.meshgrid(x, y))
  x, y = x[x != y][:, None], y[x != y][:, None]
  return conditions.at(f, np.concatenate([x, y]), np.concatenate([y, x]))


@pytest.mark.covers('S0-K2', 'S0-K3')
@pytest.mark.parametrize('p', [0.3, 0.5])
@pytest.mark.parametrize(
  ('ripples', 'alpha', 'c', 'convex'),
  [((0.02, 10), 0.1, 0.05, False), ((0.01, 12), 0.2, 0.1, True)],
)
def test_recovery_and_growth_where_c_and_alpha_count(
  p, ripples, alpha, c, convex
):
  """K.2 and K.3 on ripples, some of which are not convex: c = 0 has no d."""
  pairs = rippled(*ripples)
  assert (semi_strongly_convex(pairs) > 0) == convex
  d = semi_strongly_convex(pairs, c, p)
  beta = semi_lipschitz_gradient(pairs, alpha, p)
  assert beta < semi_lipschitz_gradient(pairs)
  theta1, _ = non_critical(pairs)
  growth = leakage.quadratic_growth(c=c, d=d, p=p, theta1=theta1)
  away = np.square(pairs.x).sum(1)
  assert growth > 0.1
  assert (pairs.value_x >= growth * away).all()
  rate = leakage.recovery(alpha=alpha, beta=beta, c=c, d=d, p=p, theta1=theta1)
  after = np.square(pairs.x - rate.step * pairs.gradient_x).sum(1)
  assert (after <= rate.factor * away).all()
  assert rate.factor < 1
