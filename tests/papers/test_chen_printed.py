"""Where printed statements of Chen et al. fail, and corrected ones do not."""

import math

import numpy as np
import paper_runs
from papers.chen.statements import (
  constants,
  corollaries,
  gradients,
  loss_bounds,
  rates,
)
from papers.chen.statements.constants import Constants
import pytest

RUN = Constants(2**12, 2**8, 10**4, 0.01, 0.1, 1.0, 1.0, 2.0, clients=5)
WIDTH = 1e4
# Of `descend`: in one of 10^6 coordinates, of which the sketch loses none.
VALLEY = Constants(
  10**6, 10**6, 200_000, client_lr=200_000**-0.5, server_lr=0.2 * WIDTH,
  eps=200 * 200_000**-0.5 * WIDTH, smoothness=1.0, intrinsic_dimension=1.0,
  b1=0.0, noise=60 * WIDTH / math.log(2) ** 0.5,
)  # fmt: skip
LOSSLESS = lambda r, x: x
# The slope of width^2 log cosh(x / width).
valley = lambda width: lambda x: width * np.tanh(x / width)


def descend(run, slope, start, noise=None):
  """The mean squared gradient of SAFL on a line, without a sketch."""
  exact = lambda step, models: slope(models)
  run = paper_runs.safl(run, exact, LOSSLESS, [start], noise)
  return np.square(slope(run.params[:-1])).mean()


def test_noise_breaks_theorem_3_2_and_corollary_1():
  """Noise of +-60 G from the optimum on: 0.58 G^2 +- 0.04, bounds below 0.1."""
  signs = np.random.default_rng(0).choice([-1.0, 1.0], VALLEY.rounds)
  noise = lambda r, k: 60 * WIDTH * signs[r]
  mean = descend(VALLEY, valley(WIDTH), 0.0, noise)
  number = {'gap': 0.0, 'gradient_bound': WIDTH, 'delta': 1e-8}
  for bound in (rates.constant_rate, corollaries.asymptotic):
    assert bound(VALLEY, nu=10.0, form='printed', **number) < mean / 3
  assert rates.constant_rate(VALLEY, gradient_l1=WIDTH, **number) > mean


def test_noise_breaks_lemmas_3_4_and_3_5():
  """One round, one coordinate, noise of 100 G and a sketch that loses none."""
  run = VALLEY._replace(rounds=1, b1=0.9, client_lr=1.0, noise=120.0)
  exact = lambda step, models: np.ones_like(models)
  noise = lambda r, k: np.full((1, 1), 99.0)
  for lemma, eps in (('projection', 100.0), ('preconditioner', 0.1)):
    run = run._replace(eps=eps)
    trajectory = paper_runs.safl(run, exact, LOSSLESS, np.zeros(1), noise=noise)
    found = paper_runs.monitored(run, trajectory, np.ones((1, 1)))
    measured = found.projection
    if lemma == 'preconditioner':  # the next round's
      measured = math.sqrt(trajectory.second[0, 0]) + eps
    bound = getattr(constants, lemma)
    assert bound(run, 1.0, delta=0.01, form='printed') < measured / 1.5
    assert bound(run, 1.0, delta=0.01) > measured


def test_an_eigenvector_that_moves_breaks_lemma_3_4():
  """Along the step itself, by sqrt(d / b) = 128; of fixed axes it holds."""
  run = Constants(2**18, 16, 1, 0.1, 0.1, 100.0, 1.0, 2.0, b1=0.0)
  slope = np.ones((1, run.dimension)) / run.dimension**0.5
  matrix = np.random.default_rng(0).standard_normal((16, run.dimension)) / 4
  exact = lambda step, models: slope
  project = lambda r, x: matrix.T @ (matrix @ x)
  trajectory = paper_runs.safl(run, exact, project, np.zeros(run.dimension))
  (away,) = np.diff(trajectory.params, axis=0)
  basis = away[:, None] / np.linalg.norm(away)
  measured = paper_runs.monitored(run, trajectory, slope, basis).projection
  number = {'gradient_bound': 1.0, 'delta': 0.1}
  assert constants.projection(run, form='printed', **number) < measured
  # It holds with the length of this one in the l1 norm.
  spread = float(np.abs(basis).sum())
  bound = constants.projection(run, spread=spread, **number)
  assert measured < bound
  axes = paper_runs.monitored(run, trajectory, slope).projection
  assert axes < constants.projection(run, **number) < bound


def test_lemma_3_6_lacks_the_gradient():
  """On a slope of 10^10: the first sign alone exceeds the printed bound."""
  run = Constants(10**6, 10**6, 100, 1.0, 1.0, 1e20, 1.0, 1.0, noise=1.3e13)
  signs = np.random.default_rng(1).choice([-1.0, 1.0], run.rounds)
  slope = np.full((1, 1), 1e10)
  exact = lambda step, models: slope
  noise = lambda r, k: np.full((1, 1), 1e13 * signs[r])
  trajectory = paper_runs.safl(run, exact, LOSSLESS, np.zeros(1), noise=noise)
  measured = paper_runs.monitored(run, trajectory, slope).martingale
  number = {'gradient_bound': 1e10, 'delta': 1e-7}
  printed = constants.martingale(run, nu=10.0, form='printed', **number)
  assert printed < measured / 3
  assert measured < constants.martingale(run, **number)


def test_corollary_2_lacks_a_square():
  """On a slope whose loss is just used up, without noise or sketch."""
  g, count = 1e-4, 1000
  eps = math.sqrt(0.1 / count)
  run = Constants(10**8, 10**8, count, count**-0.5, 0.01, eps, 1.0, 1.0, b1=0.0)
  start = 0.01 * math.sqrt(count) * g / eps
  mean = descend(run, valley(g), start)
  gap = g * (start + g * (math.log1p(math.exp(-2 * start / g)) - math.log(2)))
  j3 = math.sqrt(2) * g + 0.1001
  number = {'gap': gap, 'gradient_bound': g, 'delta': 0.01}
  printed = corollaries.near_start(run, j3=j3, form='printed', **number)
  assert printed < mean / 1.5
  number['gradient_l1'] = g
  with pytest.raises(ValueError, match='rounds'):
    corollaries.near_start(run, j3=j3, **number)
  assert corollaries.near_start(run, j3=0.5, **number) > mean


def test_corollaries_are_not_what_theorem_3_2_gives():
  """Catches a print that was mended: it is less where eps > 1."""
  run = RUN._replace(smoothness=100.0, eps=10.0, server_lr=1e-6, b1=0.0)
  budget = rates.printed_budget(run, 0.0, 1.0, 0.01, 1.0)
  theorem = 2 * run.eps / run.server_lr / math.sqrt(run.rounds) * budget
  number = {'gap': 0.0, 'gradient_bound': 1.0, 'delta': 0.01, 'form': 'printed'}
  assert corollaries.asymptotic(run, **number) < theorem / 2


@pytest.mark.parametrize(('eps', 'most'), [(1e-2, 0.4), (1e-3, 0.04)])
def test_corollary_2_lacks_a_factor_on_a_slope(eps, most):
  """Its gradient stays 1, and no step uses up more than kappa eta / eps."""
  count = math.floor((2 - math.sqrt(2)) / eps**2)
  run = Constants(10**8, 10**8, count, count**-0.5, 0.01, eps, 1e-9, 1, b1=0.0)
  number = {'gap': count * run.server_lr * run.client_lr / eps, 'j3': 2.0}
  number |= {'gradient_bound': 1.0, 'delta': 0.01, 'form': 'printed'}
  assert corollaries.near_start(run, **number) < most


def test_the_near_start_bound_says_nothing_near_the_start():
  """With its factor it is above G^2 up to round 2.8 (G / eps)^2 and later."""
  g, eps, j3 = 1.0, 0.01, 20.0
  count = round(1.9 * g * j3 / eps**2)
  assert 2.8 * (g / eps) ** 2 < count < ((j3 - 2 * g) / eps) ** 2
  run = Constants(10**8, 10**8, count, count**-0.5, 1e-3, eps, 1e-9, 1, b1=0.0)
  budget = rates.printed_budget(run, 0.0, g, 0.01, 1.0)
  assert j3 / (run.server_lr * count) * budget > g**2


def test_tables_of_log_d_numbers_do_not_free_the_rate_of_d():
  """(1 + J2)^2 grows like log(d)^2; from `least_size` on it is at most 4."""
  run = Constants(42_000_000, 18, 100, 0.1, 0.1, 1e-3, 1, 1, clients=5)
  factor = lambda run: (1 + constants.distortion(run, 0.01, rounds=2)) ** 2
  logarithmic = lambda k: factor(run._replace(dimension=2**k, size=k))
  assert logarithmic(1000) / logarithmic(250) == pytest.approx(4**2, rel=0.3)
  factors = [factor(run._replace(size=b)) for b in (18, 400, 129_028, 400_000)]
  np.testing.assert_allclose(factors, [2083, 109.6, 2.33, 1.69], rtol=0.1)
  for d, count, least in ((42, 100, 129_028), (100, 25, 121_242)):
    model = run._replace(dimension=d * 10**6, rounds=count)
    assert corollaries.least_size(model, 0.01) == least


def test_the_corrected_bound_is_free_of_d_where_the_l1_norm_is():
  """Catches a row that says free of d whatever the gradients are."""
  number = {'gap': 1.0, 'gradient_bound': 1.0, 'delta': 0.1}
  run = Constants(2**8, 64, 10**6, 0.1, 1e-4, 0.5, 1.0, 1.6)
  wide = run._replace(dimension=2**20)
  bound = lambda run, l1: rates.constant_rate(run, gradient_l1=l1, **number)
  assert bound(wide, 1.0) < 1.2 * bound(run, 1.0)
  assert bound(wide, 2.0**20) > 200 * bound(run, 2.0**8)


def test_absolute_values_of_lemma_3_6_add_up():
  """Of unit gradients along an axis, under a Gaussian sketch of 10^4 rows."""
  run = Constants(10**4, 10**4, 10**6, 1.0, 1.0, 1.0, 1.0, 1.0)
  squares = np.random.default_rng(0).chisquare(run.size, 10_000) / run.size
  printed = constants.martingale(run, 1.0, delta=0.01, nu=5.0, form='printed')
  assert run.rounds * np.abs(squares - 1).mean() > 1.4 * printed


def test_theorem_b_3_fails_in_one_round():
  """On a parabola, where log(T) is 0: its squared gradient is 1."""
  rate = constants.client_schedule(1, 0.0)(0)
  run = Constants(1, 1, 1, rate, 100.0, 1.0, 1.0, 1.0, b1=0.0)
  number = {'gap': 0.5, 'gradient_bound': 1.0, 'delta': 0.01}
  assert rates.decaying_rate(run, form='printed', **number) < 0.2
  assert rates.decaying_rate(run, gradient_l1=1.0, **number) > 1


def test_constants_of_lemma_4_3_depend_on_what_they_deny():
  """M3 on eta, and as printed M2 on G and M6 on kappa; M7 lacks L."""
  of = lambda form, g=1.0, **fields: loss_bounds.loss_constants(
    RUN._replace(**fields), gradient_squared=g, form=form, start_loss=1.0,
    delta=0.1, noise_bound=1.0,
  )  # fmt: skip
  base, printed = of('corrected'), of('printed')
  other = of('corrected', g=4.0, client_lr=0.02, server_lr=1.0)
  assert other.m3 - 2 == pytest.approx(2 * (base.m3 - 2))
  assert other._replace(m3=0) == base._replace(m3=0)
  assert of('printed', g=4.0).m2 > 1.9 * printed.m2
  assert of('printed', server_lr=1.0).m6 > printed.m6
  assert of('printed', smoothness=3.0).m7 == printed.m7 == base.m7
  assert of('corrected', smoothness=3.0).m7 == pytest.approx(3 * base.m7)


def parabola(**fields):
  """At a smoothness of 10^4 and the largest eta0 that Theorem 4.4 allows."""
  run = Constants(10**6, 10**6, 1, 1.0, 1.0, 1e-3, 1e4, 1.0, b1=0.0)
  run = run._replace(**fields)
  last = 1 + constants.distortion(run, 0.01, d=2, rounds=1)
  return run._replace(client_lr=run.eps / 600 / last / run.rounds**0.5)


@pytest.mark.parametrize(('count', 'most'), [(1, 1431), (100, 75), (10**4, 7)])
def test_the_mean_of_theorem_4_4_divides_by_l_twice(count, most):
  """On L x^2 / 2 from a loss of 1/2, with kappa, eta, G and M8 as printed."""
  run, number = parabola(rounds=count), {'delta': 0.01, 'form': 'printed'}
  g = loss_bounds.sufficient_gradient(run, start_loss=0.5, b2=0.999, **number)
  run = run._replace(server_lr=g**-0.5)
  number['gradient_squared'] = g
  m8 = loss_bounds.mean_factor(
    run, gradient_squared=g, noise_bound=0.0, delta=0.01
  )
  bound = gradients.bounded_gradients(run, m8=m8, **number).mean
  mean = descend(run, lambda x: run.smoothness * x, 0.01)
  assert bound < most < mean / 5
  assert bound * run.smoothness > mean


def test_g_of_theorem_4_4_is_too_small():
  """The proof's last bound is above G / (2 L), and for b2 = 0 at every G."""
  run = parabola(dimension=100, size=10, rounds=10**9)
  number = {'start_loss': 0.5, 'delta': 0.01, 'b2': 0.999, 'nu': 5.0}
  a, b, e = loss_bounds.last_bound(run, noise_bound=0.0, **number)
  for form, least, most in (('printed', 1.3, 2), ('corrected', 0.999, 1.001)):
    g = loss_bounds.sufficient_gradient(run, form=form, **number)
    right = a + b * math.sqrt(g) + e * g
    assert least < right * 2 * run.smoothness / g < most
  exact = parabola(dimension=100, size=10**12, rounds=10**9)
  with pytest.raises(ValueError, match='must be > 0'):
    loss_bounds.sufficient_gradient(exact, **(number | {'b2': 0.0}))


def test_lemma_c_2_takes_a_square_for_its_root():
  """In one round with gradient 0.1, so that G = 0.01."""
  run = Constants(10**6, 10**6, 1, 1e-3, 1.0, 1.0, 1.0, 1.0, b1=0.0)
  number = {'gradient_squared': 0.01, 'noise_bound': 0.0, 'delta': 0.01}
  moved = run.client_lr * 0.1
  measured = moved / (math.sqrt(0.001) * moved + run.eps)
  bound = loss_bounds.momentum_projection
  assert bound(run, form='printed', **number) < measured / 5
  assert bound(run, **number) > measured


def test_top_k_keeps_less_than_the_introduction_says():
  """Of lengths the error of equal entries is the root of 1 - b / d."""
  dropped = np.linalg.norm(np.ones(25)) / np.linalg.norm(np.ones(100))
  assert dropped == math.sqrt(1 - 75 / 100) > 1 - 75 / 100
