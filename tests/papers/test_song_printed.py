"""Song et al. as printed: counterexamples, and what else needs no run."""

import functools
import itertools
import math
import operator

from fl_sketch import accounting
from fl_sketch.algorithms import topology
import numpy as np
from papers.common import tails
from papers.song.statements import (
  communication,
  convergence as song,
  leakage,
  plans,
  textbook,
)
import pytest
from scipy import stats
from song_problems import ALIKE, CLIENTS, ROUND, D, accepted, player


def test_textbook_bounds_lack_factors():
  """B.1, B.4, B.7 and B.8 of coins, one sign and scalars."""
  coins = stats.binom.sf(10, 1000, 1e-3)
  for form in ('printed', 'corrected'):
    below = {'side': 'below', 'form': form}
    for true, bound in (
      (coins, textbook.chernoff(1, 10, form=form)),
      (1.0, textbook.khintchine(0.5, form=form)),
      (1.0, textbook.sub_exponential(0.5, 1, 1, form=form)),
      (coins, textbook.matrix_chernoff(1, 10, 1, 1, form=form)),
      (
        stats.binom.cdf(50, 10**6, 1e-4),
        textbook.matrix_chernoff(100, 0.5, 1, 1, **below),
      ),
    ):
      assert (true > bound) == (form == 'printed')


def test_the_bounds_of_hoeffding_and_bernstein_hold_for_coins():
  """Lemmas B.2 and B.3, and the second half of B.1."""
  for n, p in itertools.product((5, 100), (0.02, 0.5)):
    for t in np.linspace(0.5, n / 2, 9):
      upper = stats.binom.sf(math.ceil(n * p + t) - 1, n, p)
      lower = stats.binom.cdf(math.floor(n * p - t), n, p)
      assert upper + lower <= 2 * math.exp(-2 * t**2 / n)
      spread = n * p * (1 - p) + max(p, 1 - p) * t / 3
      strictly = stats.binom.sf(math.floor(n * p + t), n, p)
      assert strictly <= math.exp(-(t**2) / 2 / spread)
      assert lower <= math.exp(-(t**2) / (2 * n * p))


def test_four_wise_independent_signs_have_no_exponential_tails():
  """Of 2 n^2 sign vectors, (-1)^<word, (1, x, x^3)> over GF(n), one is 1."""
  cubes = 0, 1, 3, 4, 5, 6, 7, 2  # in GF(8)
  columns = [1 | x << 1 | cube << 4 for x, cube in enumerate(cubes)]
  for size in (1, 2, 3, 4):
    sets = itertools.combinations(columns, size)
    assert all(functools.reduce(operator.xor, s) for s in sets)
  n = 2**12
  for family, b in (('ams', 1), ('count_sketch', 2), ('sparse_embedding', 2)):
    printed = tails.tail(family, n, b, n**-3.0, form='printed')
    # |R g|^2 - 1 for g = (1, ..., 1) / sqrt(n), with probability 1 / (2 n^2).
    assert printed < n / b - 1 < tails.tail(family, n, b, 1 / (2 * n**2))


def test_definitions_c_1_and_c_3_name_two_things():
  """-x^2 has the bound above of C.1 for L = 0, and the distances of C.3."""
  x, y = np.random.default_rng(0).normal(size=(2, 100))
  tangent = -(x**2) - 2 * x * (y - x)
  assert (-(y**2) <= tangent).all()
  assert (abs(2 * x - 2 * y) > 1.9 * abs(x - y)).all()


def test_facts_c_4_and_c_5():
  """On log cosh (L = 1), and beside x^2 / 2 (mu = 1)."""
  x, y = np.random.default_rng(0).normal(scale=3, size=(2, 1000))
  f, slope = lambda u: np.logaddexp(u, -u) - np.log(2), np.tanh(x)
  least = slope * (y - x) + (np.tanh(y) - slope) ** 2 / 2
  assert (f(y) - f(x) >= least - 1e-12).all()
  assert (x**2 / 2 + f(x) <= (x + slope) ** 2 / 2).all()


def test_one_local_step_needs_no_sigma():
  """Less than Corollary 5.4 and Khaled et al., with or without a sketch."""
  problem = plans.Problem(64, 10, 2.0, 3.0, 5.0)
  for target in (1e-4, 1e-6):
    step = song.largest_step('E2', smoothness=2.0)
    rounds = math.ceil(problem.distance_squared / (target * step))
    floats = problem.clients * problem.dimension * rounds
    assert floats < communication.convex_floats(target, problem)
    theirs = communication.local_gradient_descent_floats(target, problem)
    assert floats < theirs / 60


def test_a_multiplicative_second_moment_has_no_floor():
  """E w^2 of w^2 / 2, at the same second moment at the start w = 1."""
  ours, theirs, alpha, eta = 1.0, 1.0, 7.0, 0.125
  for _ in range(400):
    ours *= (1 - eta) ** 2 + eta**2 * alpha
    theirs = (1 - eta) ** 2 * theirs + eta**2 * alpha
  assert ours < 1e-12 < 0.4 < theirs


def test_the_decoder_of_the_next_round_ascends():
  """Line 9 of Algorithm 1 and 2 decodes R_t w by R_{t+1}, unrelated to it."""
  rng = np.random.default_rng(0)
  for printed, low, high in ((True, 1.0, np.inf), (False, 0, 1e-6)):
    w = np.ones((32, D))
    sketch = rng.normal(size=(32, 4, D)) / 2
    for _ in range(300):
      sent = sketch @ w[..., None]
      fresh = rng.normal(size=(32, 4, D)) / 2
      decoder = fresh if printed else sketch
      w = w - 4 / D / 2 * (decoder.swapaxes(1, 2) @ sent)[..., 0]
      sketch = fresh
    assert low < np.square(w).sum(1).mean() / D < high


def test_noise_has_the_floor_that_theorem_e_1_gives_it():
  """Attained by equal curvatures, and no less than what runs have."""
  rng, this = np.random.default_rng(0), player('gaussian')
  for problem in (ROUND, ALIKE):
    slopes, lr = problem.gradients, this.step('E1', problem)
    disturbed = lambda t, u, g=slopes: g(t, u) + rng.normal(0, 0.5, u.shape)
    run = this.play(problem._replace(gradients=disturbed), lr, 300)
    measured = problem.value(run.params)[200:].mean()
    number = accepted(song.single_step_noisy, problem.constants())
    number |= {'alpha': this.alpha, 'dimension': D, 'clients': CLIENTS}
    bound = song.single_step_noisy(300, client_lr=lr, variance=0.25, **number)
    assert measured < 1.05 * bound
    assert problem is ALIKE or measured > 0.9 * bound


def test_theorem_6_2_is_false_where_one_sample_moves_twice_the_bound():
  """Noise by Lemma H.7 for a batch of one, and the exact epsilon of it."""
  for hat, claimed, true in ((0.01, 0.316, 0.354), (0.1, 3.16, 4.56)):
    sigma = math.sqrt(2 * math.log(1.25 / 1e-8)) / hat  # over l_c
    exact = accounting.gaussian_epsilon(sigma / 2, 1e-5, 1000)
    assert math.sqrt(1000) * hat == pytest.approx(claimed, rel=2e-3)
    assert exact == pytest.approx(true, rel=5e-3)


def test_theorems_k_2_and_k_3_are_false_as_printed():
  """x_1^2 is convex, so that (1, 1, 0) suits, and its minima are a line."""
  spec = {'c': 1.0, 'd': 1.0, 'p': 0.0, 'theta1': 2.0}
  assert leakage.quadratic_growth(**spec, form='printed') > 0
  with pytest.raises(ValueError, match='growth'):
    leakage.quadratic_growth(**spec)
  # x^2 from x = 1: beta = theta1 = 2, d = 1, and a step of 1/8 keeps 3/4.
  spec = {'alpha': 0, 'beta': 2.0, 'c': 0, 'd': 1.0, 'p': 0.5, 'theta1': 2.0}
  printed = leakage.recovery(**spec, step=0.125, form='printed')
  assert printed.factor < 0.75 <= leakage.recovery(**spec, step=0.125).factor


def test_flooding_takes_as_many_hops_as_the_diameter():
  """Catches a count of hops that is not O(diam), as section 3 says."""
  for graph, diameter in (
    (topology.ring(8), 4), (topology.grid(4, 4), 6), (topology.complete(5), 1),
  ):  # fmt: skip
    knows, hops = np.eye(len(graph), dtype=bool), 0
    while not knows.all():
      knows, hops = knows | ((graph.astype(int) @ knows) > 0), hops + 1
    assert hops == diameter
