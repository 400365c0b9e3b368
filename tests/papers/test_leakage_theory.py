"""Song et al. on gradient leakage: theorems kept, and theorems broken."""

import math

import loss_conditions as conditions
import numpy as np
from papers.common import statements as catalog
from papers.song.statements import leakage
import pytest


def attack(slope, map_fn, at):
  """L(x) = |map(x) - map(at)|^2, for map f64[n, m] -> f64[n, equations]."""
  off = lambda x: map_fn(x) - map_fn(at[None])
  value = lambda x: np.square(off(x)).sum(1)
  gradient = lambda x: 2 * np.einsum('nem,ne->nm', slope(x), off(x))
  return conditions.Function(value, gradient)


def linear(matrix, at):
  slope = lambda x: np.broadcast_to(matrix, (len(x), *matrix.shape))
  return attack(slope, lambda x: x @ matrix.T, at)


def bent(inner, outer, at):
  """grad_w F = tanh(inner x), seen through `outer`."""
  scale = lambda x: 1 - np.tanh(x @ inner.T) ** 2
  slope = lambda x: np.einsum('oe,ne,em->nom', outer, scale(x), inner)
  return attack(slope, lambda x: np.tanh(x @ inner.T) @ outer.T, at)


singular = lambda matrix: np.linalg.svd(matrix, compute_uv=False)


def draw(seed, *shapes):
  rng = np.random.default_rng(seed)
  return [rng.normal(size=shape) for shape in shapes]


def allows(pairs, a, b, p):
  e, r2, mixed = conditions.gaps(pairs, p)
  return e <= (b * r2 + a * mixed) * (1 + 1e-9)


def test_constants_of_a_linear_gradient_and_those_that_are_printed():
  """J constant: beta = theta2. Printed b and theta are violated at once."""
  matrix, at = draw(0, (4, 7), (7,))
  *_, theta1 = sigma = singular(matrix)
  beta = theta2 = sigma[0]
  assert beta > 1
  best = np.linalg.svd(matrix)[2][0]
  x, y = draw(1, (500, 7), (500, 7))
  # Near the true inputs along the best direction, L is as steep as it gets.
  x, y = np.concatenate([x, at[None]]), np.concatenate([y, (at + best)[None]])
  pairs = conditions.at(linear(matrix, at), x, y)
  a, b, p, low, high = leakage.constants(beta, theta1, theta2)
  assert allows(pairs, a, b, p).all()
  assert allows(pairs, 0, b, p).all()
  measured = conditions.non_critical(pairs)
  assert low <= measured[0] < measured[1] <= high * (1 + 1e-9)

  a, b, p, low, high = leakage.constants(beta, theta1, theta2, form='printed')
  assert (a, b, p) == (2 * (beta + theta2), beta, 0.5)
  assert not allows(pairs, a, b, p).all()
  assert measured[1] > high


@pytest.mark.parametrize('seed', range(3))
def test_constants_of_a_sketched_nonlinear_gradient(seed):
  inner, sketch, at = draw(seed, (6, 9), (3, 6), (9,))
  f = bent(inner, sketch, at)
  x, step = draw(seed + 10, (2000, 9), (2000, 9))
  scale = 10.0 ** np.random.default_rng(seed).uniform(-3, 0, (2000, 1))
  x = at[None] + scale * x
  pairs = conditions.at(f, x, x + scale * step)
  beta = singular(inner)[0]
  gamma2, *_, gamma1 = singular(sketch)
  slopes = (1 - np.tanh(x @ inner.T) ** 2)[:, :, None] * inner[None]
  theta1 = np.linalg.svd(slopes, compute_uv=False)[:, -1].min()
  a, b, p = leakage.sketched_semi_smooth(beta, beta, gamma2, gamma2)
  assert allows(pairs, a, b, p).all()
  low, high = leakage.sketched_non_critical(theta1, beta, gamma1, gamma2)
  measured = conditions.non_critical(pairs)
  assert 0 < low <= measured[0] < measured[1] <= high
  # No formality: a thousandth of b alone is too little.
  assert not allows(pairs, 0, b * 1e-3, p).all()


@pytest.mark.parametrize('form', catalog.FORMS)
def test_the_attack_theorem_never_meets_its_own_constants(form):
  """Theorem 7.5 after 7.4, and after 7.6 and 7.7: 0 of 20 000 draws."""
  rng = np.random.default_rng(0)
  beta, low, high, tau, gamma = 10 ** rng.uniform(-3, 3, (5, 10_000))
  theta1, theta2 = np.sort(np.minimum([low, high], beta[None]), axis=0)
  gamma1, gamma2 = np.sort([gamma, tau], axis=0)
  plain = leakage.constants(beta, theta1, theta2, form=form)
  sketched = leakage.Constants(
    *leakage.sketched_semi_smooth(beta, theta2, tau, gamma2, form=form),
    *leakage.sketched_non_critical(theta1, theta2, gamma1, gamma2),
  )
  for drawn in plain, sketched:
    assert (leakage.margin(drawn) < 0).all()
  c = leakage.constants(2.0, 1.0, 1.0, form=form)
  with pytest.raises(ValueError, match='margin=-'):
    leakage.linear_decrease(c, form=form)
  # The plain argument is content with any of them.
  assert leakage.pl_decrease(smoothness=8.0, theta1=1.0).factor == 0.75


def test_the_attack_theorem_is_false_for_p_1():
  """A zigzag has slope everywhere and 4 a b = slope^2, and L never falls."""
  slope, a = 1.0, 0.5
  b = slope**2 / (4 * a) * 1.01
  width = 1e-4  # of a tooth: L is between 1 and 1 + slope width
  c = leakage.Constants(a, b, 1.0, slope / math.sqrt(1 + width), slope)
  step, factor = leakage.linear_decrease(c, form='printed')
  teeth = round(step * slope / (2 * width))
  width = step * slope / (2 * teeth)

  zigzag = conditions.Function(
    lambda x: 1 + slope * abs((x[:, 0] + width) % (2 * width) - width),
    lambda x: slope * np.where((x % (2 * width)) < width, 1.0, -1.0),
  )
  rng = np.random.default_rng(0)
  x = rng.uniform(-3, 3, (50_000, 1))
  y = x + 10 ** rng.uniform(-6, 0.5, x.shape) * rng.choice([-1, 1], x.shape)
  pairs = conditions.at(zigzag, x, y)
  assert allows(pairs, a, b, 1.0).all()
  low, high = conditions.non_critical(pairs)
  assert c.theta1 <= low < high <= c.theta2
  after = zigzag.value(x - step * pairs.gradient_x)
  assert factor < 0.95
  np.testing.assert_allclose(after, pairs.value_x, rtol=1e-9)


def descend(f, start, step, count):
  """L along gradient descent, and the points."""
  points = [start[None]]
  for _ in range(count):
    points.append(points[-1] - step * f.gradient(points[-1]))
  return np.array([f.value(x)[0] for x in points]), np.concatenate(points)


@pytest.mark.parametrize('sketched', [False, True])
def test_both_rates_hold_for_a_linear_gradient(sketched):
  """a = 0 and b = the largest eigenvalue, measured; L falls, x goes astray."""
  matrix, sketch, at, start = draw(4, (6, 9), (4, 6), (9,), (9,))
  observed = sketch @ matrix if sketched else matrix
  f = linear(observed, at)
  sigma = singular(observed)
  c = leakage.Constants(0, sigma[0] ** 2, 0.5, 2 * sigma[-1], 2 * sigma[0])
  slow = leakage.linear_decrease(c)
  fast = leakage.pl_decrease(smoothness=2 * sigma[0] ** 2, theta1=sigma[-1])
  for rate in (slow, fast):
    values, points = descend(f, start, rate.step, 400)
    assert (values[1:] <= values[:-1] * rate.factor + 1e-25).all()
    assert rate.factor < 1
  assert fast.step > slow.step
  # The slowest direction shrinks by (1 - 2 step sigma^2)^2: no rate is better
  # than twice the promised one.
  slowest = np.linalg.svd(observed)[2][len(observed) - 1]
  values, _ = descend(f, at + slowest, fast.step, 5)
  fall = 1 - values[1:] / values[:-1]
  assert (fall <= 2 * (1 - fast.factor)).all()
  # Fewer equations than unknowns: L is all but 0 far from the true inputs.
  assert f.value(points[-1:])[0] < 1e-3 * f.value(start[None])[0]
  assert np.linalg.norm(points[-1] - at) > 0.3 * np.linalg.norm(start - at)


@pytest.mark.parametrize('form', catalog.FORMS)
def test_linear_decrease_holds_where_its_margin_is_met(form):
  """p = 1/2: x + sin(x) / 20 bends by at most r / 10. p = 0: a parabola."""
  small, at = 0.05, np.array([1.0, -2.0])
  slope = lambda x: np.eye(2)[None] * (1 + small * np.cos(x))[:, :, None]
  wavy = attack(slope, lambda x: x + small * np.sin(x), at)
  low, high = 2 - 2 * small, 2 + 2 * small
  bent = leakage.Constants(4 * small, high**2 / 4, 0.5, low, high)
  x, y = draw(0, (2000, 2), (2000, 2))
  plain = linear(np.eye(2), at), leakage.Constants(0.4, 0.7, 0.0, 2, 2)
  for f, c in (plain, (wavy, bent)):
    pairs = conditions.at(f, x, y)
    assert allows(pairs, *c[:3]).all()
    assert c.theta1 <= conditions.non_critical(pairs)[0] * (1 + 1e-9)
    rate = leakage.linear_decrease(c, form=form)
    values, _ = descend(f, np.array([4.0, 3.0]), rate.step, 20)
    assert (values[1:] <= values[:-1] * rate.factor).all()
    assert rate.factor < 0.9


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
  assert (conditions.semi_strongly_convex(pairs) > 0) == convex
  d = conditions.semi_strongly_convex(pairs, c, p)
  beta = conditions.semi_lipschitz_gradient(pairs, alpha, p)
  assert beta < conditions.semi_lipschitz_gradient(pairs)
  theta1, _ = conditions.non_critical(pairs)
  growth = leakage.quadratic_growth(c=c, d=d, p=p, theta1=theta1)
  away = np.square(pairs.x).sum(1)
  assert growth > 0.1
  assert (pairs.value_x >= growth * away).all()
  rate = leakage.recovery(alpha=alpha, beta=beta, c=c, d=d, p=p, theta1=theta1)
  after = np.square(pairs.x - rate.step * pairs.gradient_x).sum(1)
  assert (after <= rate.factor * away).all()
  assert rate.factor < 1
