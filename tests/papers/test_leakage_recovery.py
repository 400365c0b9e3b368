"""Theorems K.2 and K.3 of Song et al.: that the inputs themselves are found."""

import loss_conditions as conditions
from loss_conditions import (
  non_critical,
  semi_lipschitz_gradient,
  semi_strongly_convex,
)
import numpy as np
from papers.song.statements import leakage
import pytest


def rippled(size, count):
  """x^2 (1 + size sin(count log|x|)) in a period, and pairs of x with 0."""
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
