"""Das et al.: constants of a problem, Proposition 1; lemmas on trajectories."""

import functools

import das_problems
from das_problems import PROBLEMS, each_problem, quadratics, square
import numpy as np
from papers.das.statements import lemmas, tradeoffs
import pytest


@pytest.mark.covers('S1-Fact1-3')
def test_fact_3_holds_to_a_thirtieth():
  for m in (1, 2, 10, 1000):
    for x in np.array([1e-6, 0.1, 0.25]) / m:
      exact = -np.expm1(m * np.log1p(-x)) / x
      bound = lemmas.geometric_sum_bound(x, m)
      assert exact * (1 - 1e-9) <= bound < 1.03 * exact


@pytest.mark.covers('S1-Def1')
def test_heterogeneity_is_exact_and_numeric():
  clients = quadratics()
  losses = das_problems.separate(clients.value, clients.gradient, 3)
  gaps = lemmas.heterogeneity_gaps(losses, clients.w_star)
  np.testing.assert_allclose(gaps, clients.gaps[:3], atol=1e-8)
  assert clients.gaps.min() > 0.1


@pytest.mark.covers('S1-Asm1', 'S1-Prop1')
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
def paths(problem, step):
  """Six steps of descent with eta L = `step`: clients, points, gradients."""
  clients = PROBLEMS[problem]()
  rng = np.random.default_rng(1)
  scale = np.geomspace(0.1, 30, 100)[:, None]
  w = clients.w_star + scale * rng.standard_normal((100, len(clients.w_star)))
  points, gradients = clients.path(w, step / clients.smoothness, 6)
  return clients, points, np.array(gradients)


def rates(clients, step):
  smoothness = clients.smoothness
  return {'client_lr': step / smoothness, 'smoothness': smoothness}


@pytest.mark.covers('S1-Lem1')
@each_problem
def test_lemma_1_holds(problem):
  clients, points, gradients = paths(problem, 0.5)
  spec = rates(clients, 0.5) | {'local_steps': 6}
  start, squares = square(points[0] - clients.w_star), square(gradients).sum(0)
  bound = lemmas.distance_bound(start, squares, clients.gaps, **spec)
  assert (square(points[6] - clients.w_star) <= bound).all()


@pytest.mark.covers('S1-Lem2', 'S1-Lem3', 'S1-Fact1-3')
@pytest.mark.parametrize('step', [0.1, 1.9])
@each_problem
def test_lemmas_2_and_3_hold(problem, step):
  clients, points, gradients = paths(problem, step)
  spec = rates(clients, step)
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


@pytest.mark.covers('S1-Lem4', 'S1-Fact1-3')
@each_problem
def test_lemma_4_and_fact_2_hold(problem):
  clients, points, gradients = paths(problem, 1 / 12)
  spec = rates(clients, 1 / 12) | {'local_steps': 6}
  norms, steps = np.sqrt(square(gradients[0])), np.arange(1, 7)[:, None, None]
  bound = lemmas.lipschitz_drift_bound(norms, steps, **spec)
  moved = np.sqrt(square(np.array(points[1:]) - points[0]))
  assert (moved <= bound).all()
  assert (moved[0] > 0.49 * bound[0]).all()
  stack = np.moveaxis(gradients, 0, -2)
  assert (square(gradients.sum(0)) <= lemmas.sum_square_bound(stack)).all()


@pytest.mark.covers('S1-Def3,4', 'S1-Asm1')
@each_problem
def test_constants_are_between_what_is_known(problem):
  clients, points, gradients = paths(problem, 0.5)
  client_lr, most = 0.5 / clients.smoothness, clients.smoothness * (1 + 1e-9)
  assert 0 < lemmas.smoothness(points[1][:, 0], gradients[1][:, 0]) <= most
  least = lemmas.curvature(gradients[:-1], gradients[1:], client_lr=client_lr)
  assert 0 <= least <= most
  assert lemmas.lipschitz(gradients) <= clients.lipschitz
