"""Das et al.: conditions, identities and trade-offs."""

import math

import das_problems
from das_problems import PROBLEMS, each_bound, each_problem
import numpy as np
from papers.common import privacy_bounds as bounds
from papers.das.statements import lemmas, rates as das, tradeoffs
import pytest

GOOD = {
  'smoothness': 2.0, 'clip': 9.0, 'rho': 0.1, 'local_steps': 4, 'rounds': 50,
  'gamma': 6.0, 'largest_gap': 1.0,
}  # fmt: skip
TRADE = {'lipschitz': 3.0, 'distance': 5.0, 'smoothness': 1.0, 'rho': 0.05}


@pytest.mark.covers('S1-Thm2=Thm5')
def test_the_schedule_is_that_of_the_theorems():
  rounds = math.ceil(2 * 2 * 6 / (9 * 4 * 0.1**2))  # of an alpha of 2
  s = das.schedule(**GOOD | {'rounds': rounds})
  assert 2 <= s.alpha < 2 * 67 / 66
  assert s.client_lr == pytest.approx(6 / (9 * 2 * 4 * rounds * 0.1))
  assert s.load == pytest.approx(2 * s.client_lr * 2 * 4)
  assert s.clip_norm == 36


@pytest.mark.covers('S1-Thm1', 'S1-Def5')
def test_the_noise_is_that_of_theorem_1():
  """Any constant q does, as rho has it too."""
  spec = {'epsilon': 5.0, 'delta': 1e-5, 'population': 100, 'constant': 2.1}
  rho = bounds.das_rho(dimension=200, **spec)
  s = das.schedule(**GOOD | {'rho': rho, 'rounds': 50})
  variance = lemmas.sigma_squared(clip_norm=36.0, rounds=50, **spec)
  assert s.noise_stddev(200) ** 2 == pytest.approx(variance)


@each_bound
@each_problem
def test_a_poisson_cohort_is_paid_for_round_by_round(problem, bound):
  """E|w+ - w*|^2 <= |w - w*|^2 - eta E left, but for the noise, exactly."""
  clients = PROBLEMS[problem]()
  rng, d = np.random.default_rng(0), len(clients.w_star)
  away = rng.standard_normal((300, d)) * np.geomspace(1e-2, 30, 300)[:, None]
  largest, square = clients.gaps.max(), das_problems.square
  clip = 4 * math.sqrt(clients.smoothness * largest)
  spec = {'smoothness': clients.smoothness, 'clip': clip, 'rounds': 100}
  for steps, extra in ((1, 0.0), (1, 1.0), (4, 0.0), (4, 1.0)):
    spec |= {'rho': 0.4 / steps, 'gamma': clip * 10 / steps}
    s = das.schedule(
      local_steps=steps, largest_gap=largest, cohort_variance=extra, **spec
    )
    assert s.load == pytest.approx(0.5)
    w = clients.w_star + away
    run = das_problems.watch(clients, s, np.stack([w, w]))
    g = das_problems.bounded(clients.update(w, s), s, bound)
    after = square(away - s.client_lr * g.mean(1))
    after += s.client_lr**2 * extra * square(g).mean(1)
    lost = s.client_lr * steps * run.left(s, clients, bound)[0]
    assert (lost <= square(away) * (1 + 1e-9) - after).all()


@pytest.mark.covers('S1-Eq11')
@pytest.mark.parametrize(('mean_gap', 'best'), [(0.05, 10), (0.2, 1)])
def test_the_best_number_of_local_steps_is_found(mean_gap, best):
  spec = TRADE | {'mean_gap': mean_gap, 'curvature': 0.8}
  at = lambda e: tradeoffs.local_steps_bound(local_steps=e, **spec)
  assert min(range(1, 11), key=at) == best


@pytest.mark.covers('S1-Rem1, 5.1, Eq15-17')
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
