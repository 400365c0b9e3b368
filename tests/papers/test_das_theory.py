"""Das et al.: schedules, identities, trade-offs, and lemmas on trajectories."""

import functools
import math

import das_problems
from das_problems import PROBLEMS, each_bound, each_problem, quadratics, square
from fedsketch_rounds import ends
import numpy as np
from papers.common import privacy_bounds as bounds
from papers.das.statements import lemmas, rates as das, tradeoffs
import pytest


def test_the_noise_is_that_of_theorem_1():
  """Any constant q does, as rho has it too."""
  spec = {'epsilon': 5.0, 'delta': 1e-5, 'population': 100, 'constant': 2.1}
  rho = bounds.das_rho(dimension=200, **spec)
  s = das.Schedule(2.0, 9.0, rho, 4, 50, 6.0)
  variance = lemmas.sigma_squared(clip_norm=36.0, rounds=50, **spec)
  assert s.noise_stddev(200) ** 2 == pytest.approx(variance)


@each_bound
@each_problem
def test_a_poisson_cohort_is_paid_for_round_by_round(problem, bound):
  """E|w+ - w*|^2 <= |w - w*|^2 - eta E left, but for the noise, exactly."""
  clients = PROBLEMS[problem]()
  rng, d = np.random.default_rng(0), len(clients.w_star)
  away = rng.standard_normal((300, d)) * np.geomspace(1e-2, 30, 300)[:, None]
  largest = clients.gaps.max()
  clip = 4 * math.sqrt(clients.smoothness * largest)
  for steps, extra in ((1, 0.0), (1, 1.0), (4, 0.0), (4, 1.0)):
    s = das.schedule(
      smoothness=clients.smoothness, clip=clip, rho=0.4 / steps,
      local_steps=steps, rounds=100, gamma=clip * 10 / steps,
      largest_gap=largest, cohort_variance=extra,
    )  # fmt: skip
    assert s.load == pytest.approx(0.5)
    w = clients.w_star + away
    run = das_problems.watch(clients, s, np.stack([w, w]))
    g = s.client_lr * das_problems.bounded(clients.update(w, s), s, bound)
    after = square(away - g.mean(1)) + extra * square(g).mean(1)
    lost = s.client_lr * steps * run.left(s, clients, bound)[0]
    assert (lost <= square(away) * (1 + 1e-9) - after).all()


@pytest.mark.parametrize(('mean_gap', 'best'), [(0.05, 10), (0.2, 1)])
def test_the_best_number_of_local_steps_is_found(mean_gap, best):
  spec = {'lipschitz': 3.0, 'distance': 5.0, 'smoothness': 1.0, 'rho': 0.05}
  spec |= {'mean_gap': mean_gap, 'curvature': 0.8}
  at = lambda e: tradeoffs.local_steps_bound(local_steps=e, **spec)
  assert min(range(1, 11), key=at) == best


def test_remark_1_holds_from_a_distance_on_and_not_at_the_optimum():
  """B < B2 for c >= 4, if the start is far; the other way round at w*."""
  for c in (4.0, 8.0, 16.0, 64.0):
    for rho, steps in ((1e-4, 1), (1e-4, 500), (1e-2, 5), (1e-2, 20), (0.2, 1)):
      x = rho * steps
      near = (0.5 + c * x / 4) * steps
      for distance in (near, 1.5 * near):
        b = tradeoffs.compare(c, distance, rho=rho, local_steps=steps)
        assert b.normalize < b.clip
        h, noise = b.normalize, 2 * distance * rho + x * c / 2
        solved = (2 - x**2) * h - x**2 - math.sqrt(2 * (h + 1)) * noise
        assert abs(solved) < 1e-9
      floor = tradeoffs.compare(c, 0.0, rho=rho, local_steps=steps)
      assert floor.normalize > floor.clip * (1 if c > 4 else 0.99)
      assert floor.normalize > 0.99 * x * c / math.sqrt(8)


def test_fact_3_holds_to_a_thirtieth():
  for m in (1, 2, 10, 1000):
    for x in np.array([1e-6, 0.1, 0.25]) / m:
      exact = -np.expm1(m * np.log1p(-x)) / x
      bound = lemmas.geometric_sum_bound(x, m)
      assert exact * (1 - 1e-9) <= bound < 1.03 * exact


def test_heterogeneity_is_exact_and_numeric():
  clients = quadratics()
  losses = das_problems.separate(clients.value, clients.gradient, 3)
  gaps = lemmas.heterogeneity_gaps(losses, clients.w_star)
  np.testing.assert_allclose(gaps, clients.gaps[:3], atol=1e-8)
  assert clients.gaps.min() > 0.1


@pytest.mark.parametrize('low', [0.3, 0.9])
def test_proposition_1_holds(low):
  """No update is longer; some reach nine tenths of it."""
  clients, w = das_problems.bowls(low)
  eta, steps = 0.05, 10
  _, gradients = clients.path(w, eta, steps)
  curvature = lemmas.curvature(gradients[:-1], gradients[1:], client_lr=eta)
  assert low * (1 - 1e-9) <= curvature <= 1
  lipschitz = lemmas.lipschitz(gradients[0])
  spec = {'smoothness': 1, 'rho': 0.1, 'local_steps': 5}
  clip = tradeoffs.unclipped_threshold(lipschitz, curvature, **spec)
  longest = np.linalg.norm(np.sum(gradients[:5], 0), axis=-1).max()
  assert 0.9 * 5 * clip < longest <= 5 * clip


@functools.cache
def paths(problem, step, steps=6):
  """Local descent with eta L = `step`: clients, rates, the way."""
  clients = PROBLEMS[problem]()
  rng = np.random.default_rng(1)
  scale = np.geomspace(0.1, 30, 100)[:, None]
  w = clients.w_star + scale * rng.standard_normal((100, len(clients.w_star)))
  spec = {'client_lr': step / clients.smoothness}
  points, gradients = clients.path(w, spec['client_lr'], steps)
  spec['smoothness'] = clients.smoothness
  return clients, spec, points, np.array(gradients)


@each_problem
def test_lemma_1_holds(problem):
  clients, spec, points, gradients = paths(problem, 0.5)
  spec = spec | {'local_steps': 6}
  start, squares = square(points[0] - clients.w_star), square(gradients).sum(0)
  bound = lemmas.distance_bound(start, squares, clients.gaps, **spec)
  assert (square(points[6] - clients.w_star) <= bound).all()


@pytest.mark.parametrize('step', [0.1, 1.9])
@each_problem
def test_lemmas_2_and_3_hold(problem, step):
  clients, spec, points, gradients = paths(problem, step)
  start = clients.excess(points[0][:, 0]) + clients.gaps
  for steps in range(1, 7):
    moved, summed = lemmas.drift_bounds(start, local_steps=steps, **spec)
    assert (square(points[steps] - points[0]) <= moved).all()
    assert (square(gradients[:steps].sum(0)) <= summed).all()
  following = lemmas.next_gradient_bound(
    square(gradients[:-1]), square(np.diff(gradients, axis=0)), **spec
  )
  assert (square(gradients[1:]) <= following * (1 + 1e-9) + 1e-12).all()
  most = lemmas.gradient_square_bound(start, smoothness=clients.smoothness)
  assert (square(gradients[0]) <= most * (1 + 1e-9) + 1e-12).all()


@each_problem
def test_lemma_4_and_fact_2_hold(problem):
  _, spec, points, gradients = paths(problem, 1 / 12)
  norms, steps = np.sqrt(square(gradients[0])), np.arange(1, 7)[:, None, None]
  bound = lemmas.lipschitz_drift_bound(norms, steps, local_steps=6, **spec)
  moved = np.sqrt(square(np.array(points[1:]) - points[0]))
  assert (moved <= bound).all()
  assert (moved[0] > 0.49 * bound[0]).all()
  stack = np.moveaxis(gradients, 0, -2)
  assert (square(gradients.sum(0)) <= lemmas.sum_square_bound(stack)).all()


@each_problem
def test_updates_per_step_shrink_with_the_steps_but_not_far(problem):
  """Equation (65), and the remark (c) after Theorem 2, at eta L E = 1/4."""
  _, spec, _, gradients = paths(problem, 1 / 80, 20)
  summed = np.sqrt(square(np.cumsum(gradients, 0)))
  assert (np.diff(summed / np.arange(1, 21)[:, None, None], axis=0) <= 0).all()
  least = lemmas.least_update_norm(summed[0], local_steps=20, **spec)
  assert (summed[-1] >= least).all()


@each_problem
def test_constants_are_between_what_is_known(problem):
  clients, spec, points, gradients = paths(problem, 0.5)
  client_lr, most = spec['client_lr'], clients.smoothness * (1 + 1e-9)
  assert 0 < lemmas.smoothness(points[1][:, 0], gradients[1][:, 0]) <= most
  least = lemmas.curvature(gradients[:-1], gradients[1:], client_lr=client_lr)
  assert 0 <= least <= most
  assert lemmas.lipschitz(gradients) <= clients.lipschitz


def far(clients, distance=14.0, **options):
  """A schedule with alpha about 1, and a start at this distance."""
  smoothness, largest = clients.smoothness, clients.gaps.max()
  spec = {'rho': 0.1, 'local_steps': 4, 'largest_gap': largest} | options
  spec['clip'] = 4 * np.sqrt(smoothness * largest)
  s = das_problems.schedule(smoothness, distance, **spec)
  return s, clients.start(distance)


@pytest.mark.parametrize('cohort', [None, 2], ids=['all', 'poisson'])
@each_bound
@each_problem
def test_rates_hold(problem, bound, cohort):
  """Theorems 2 and 4; the former is within a factor of ten of the truth."""
  clients = PROBLEMS[problem]()
  extra = 1 / cohort - 1 / len(clients.gaps) if cohort else 0
  s, start = far(clients, cohort_variance=extra)
  run = das_problems.play(clients, s, start, bound, cohort)
  left, right = run.left(s, clients, bound).mean(0), das.right(s, 14)
  assert ends(left, 1) < right
  if bound == 'clip' and cohort is None:
    assert ends(left, -1) > 0.1 * right
  if problem == 'quadratics':
    assert 0 < np.mean(run.norms > s.clip_norm) < 1


def test_theorem_3_has_a_constant_of_one_for_one_reading():
  """f_i* is f_i(w*); with min f_i the left side does not shrink with rho."""
  clients = quadratics()
  for rho, distance in ((0.1, 14.0), (0.01, 0.5)):
    s, start = far(clients, rho=rho, local_steps=5, distance=distance)
    run = das_problems.play(clients, s, start, draws=40)
    steep = clients.steepness(run.w[:-1]) * s.clip / s.smoothness
    excess, mean_gap = run.excess[:-1], clients.gaps.mean()
    bound = das.simplified_bound(
      s.clip, distance, mean_gap, rho=rho, local_steps=s.local_steps
    )
    left = np.minimum(excess, steep).mean((0, 2))
    assert ends(left, 1) < bound
    other = np.minimum(excess + clients.gaps, steep).mean((0, 2))
  assert ends(other, -1) > 5 * bound


@pytest.mark.parametrize('cohort', [None, 2], ids=['all', 'poisson'])
def test_the_lipschitz_case_holds(cohort):
  """Equations 8 and 11: nothing is clipped, and f goes down."""
  clients = das_problems.logistic()
  spec = {'rho': 0.1, 'local_steps': 4, 'smoothness': clients.smoothness}
  clip, mean_gap = clients.lipschitz, clients.gaps.mean()
  s = das_problems.schedule(distance=14, clip=clip, **spec)
  run = das_problems.play(clients, s, clients.start(14), cohort=cohort)
  assert run.norms.max() <= s.clip_norm
  bound = tradeoffs.lipschitz_bound(s, 14, mean_gap)
  assert 0.05 * bound < ends(run.mean_excess(), 1) < bound
  assert bound < tradeoffs.local_steps_bound(clip, 14, mean_gap, 0, **spec)
