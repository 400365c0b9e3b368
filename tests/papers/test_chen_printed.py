"""Where printed statements of Chen et al. fail, and corrected ones do not."""

import math

import numpy as np
import paper_runs
from papers.chen.statements import constants, corollaries, gradients, rates
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


def descend(run, width, x, noises):
  """The mean squared gradient of SAFL from x on width^2 log cosh(x / width)."""
  v, squares = 0.0, []
  for noise in noises:
    gradient = width * math.tanh(x / width)
    squares.append(gradient**2)
    estimate = run.client_lr * (gradient + noise)
    v = max(v, 0.999 * v + 0.001 * estimate**2)
    x -= run.server_lr * estimate / (math.sqrt(v) + run.eps)
  return sum(squares) / run.rounds


@pytest.mark.covers('S4-Thm3.2', 'S4-Cor1')
def test_noise_breaks_theorem_3_2_and_corollary_1():
  """Noise of +-60 G from the optimum on: 0.58 G^2 +- 0.04, bounds below 0.1."""
  signs = np.random.default_rng(0).choice([-1.0, 1.0], VALLEY.rounds)
  mean = descend(VALLEY, WIDTH, 0.0, (60 * WIDTH * signs).tolist())
  number = {'gap': 0.0, 'gradient_bound': WIDTH, 'delta': 1e-8}
  for bound in (rates.constant_rate, corollaries.asymptotic):
    assert bound(VALLEY, nu=10.0, form='printed', **number) < mean / 3
  assert rates.constant_rate(VALLEY, gradient_l1=WIDTH, **number) > mean


@pytest.mark.covers('S4-Lem3.5')
def test_noise_breaks_lemmas_3_4_and_3_5():
  """One round, one coordinate, noise of 100 G and a sketch that loses none."""
  run = VALLEY._replace(rounds=1, b1=0.9, client_lr=1.0, noise=120.0)
  exact = lambda step, models: np.ones_like(models)
  noise = lambda r, k: np.full((1, 1), 99.0)
  for lemma, eps in (('projection', 100.0), ('preconditioner', 0.1)):
    run = run._replace(eps=eps)
    trajectory = paper_runs.safl(run, exact, LOSSLESS, np.zeros(1), noise=noise)
    measured = getattr(
      paper_runs.monitored(run, trajectory, np.ones((1, 1))), lemma
    )
    if lemma == 'preconditioner':  # the next round's
      measured = math.sqrt(trajectory.second[0, 0]) + eps
    bound = getattr(constants, lemma)
    assert bound(run, 1.0, delta=0.01, form='printed') < measured / 1.5
    assert bound(run, 1.0, delta=0.01) > measured


@pytest.mark.covers('S4-Lem3.4=B2=C2')
def test_an_eigenvector_that_moves_breaks_lemma_3_4():
  """Catches the lemma of fixed axes where the eigenvector follows the step.

  Of a steep wall around where the last step has led. What is projected is
  sqrt(d / b) = 128 times what moved, times the root of a chi square of 16
  degrees over 16, which is below the 0.13 that is asked for with 1e-9.
  """
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
  # Of fixed axes it holds, and of this one with its length in the l1 norm.
  spread = float(np.abs(basis).sum())
  bound = constants.projection(run, spread=spread, **number)
  assert measured < bound
  axes = paper_runs.monitored(run, trajectory, slope).projection
  assert axes < constants.projection(run, **number) < bound


@pytest.mark.covers('S4-Lem3.6')
def test_lemma_3_6_lacks_the_gradient():
  """On a slope of 10^10: the first sign alone exceeds the printed bound."""
  run = Constants(10**6, 10**6, 100, 1.0, 1.0, 1e20, 1.0, 1.0, noise=1.3e13)
  signs = np.random.default_rng(1).choice([-1.0, 1.0], run.rounds)
  slope = np.full((1, 1), 1e10)
  exact = lambda step, models: slope
  noise = lambda r, k: np.full((1, 1), 1e13 * signs[r])
  trajectory = paper_runs.safl(run, exact, LOSSLESS, np.zeros(1), noise=noise)
  steep = np.full((run.rounds, 1), 1e10)
  measured = paper_runs.monitored(run, trajectory, steep).martingale
  number = {'gradient_bound': 1e10, 'delta': 1e-7}
  printed = constants.martingale(run, nu=10.0, form='printed', **number)
  assert printed < measured / 3
  assert measured < constants.martingale(run, **number)


@pytest.mark.covers('S4-Cor2')
def test_corollary_2_lacks_a_square():
  """On a slope whose loss is just used up, without noise or sketch."""
  g, count = 1e-4, 1000
  eps = math.sqrt(0.1 / count)
  run = Constants(10**8, 10**8, count, count**-0.5, 0.01, eps, 1.0, 1.0, b1=0.0)
  start = 0.01 * math.sqrt(count) * g / eps
  mean = descend(run, g, start, [0.0] * count)
  gap = g * (start + g * (math.log1p(math.exp(-2 * start / g)) - math.log(2)))
  j3 = math.sqrt(2) * g + 0.1001
  number = {'gap': gap, 'gradient_bound': g, 'delta': 0.01}
  printed = corollaries.near_start(run, j3=j3, form='printed', **number)
  assert printed < mean / 1.5
  number['gradient_l1'] = g
  with pytest.raises(ValueError, match='rounds'):
    corollaries.near_start(run, j3=j3, **number)
  assert corollaries.near_start(run, j3=0.5, **number) > mean


@pytest.mark.covers('S4-Lem4.3, M1..M8')
def test_lemma_4_3_depends_on_eta():
  """Which it denies."""
  of = lambda lr: gradients.loss_constants(
    RUN._replace(client_lr=lr), start_loss=1.0, delta=0.1
  )
  assert of(0.02).m3 - 2 == pytest.approx(2 * (of(0.01).m3 - 2))
  assert of(0.02)._replace(m3=0) == of(0.01)._replace(m3=0)
