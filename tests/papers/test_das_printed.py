"""Das et al. as printed: counterexamples, and what else needs no run."""

import functools
import math

import das_problems
from das_problems import square
from fedsketch_rounds import ends
from fl_sketch import accounting
from fl_sketch.data import partitions
import numpy as np
from papers.das.statements import lemmas, rates as das, tradeoffs
from papers.das.studies import grid
import pytest

schedule = functools.partial(das.schedule, smoothness=1.0)


@pytest.mark.parametrize('problem', ['bowls', 'logistic'])
def test_no_function_has_both_parts_of_assumption_1(problem):
  """Steps backwards lengthen a gradient by a factor, or lambda falls to 0."""
  bowls = das_problems.bowls(0.3)[0]
  clients = bowls if problem == 'bowls' else das_problems.logistic()
  eta = 0.4 / clients.smoothness
  w = clients.start(1.0) + np.zeros((len(clients.gaps), 1))
  norms, curvatures = [], []
  for _ in range(600):
    after, start = clients.gradient(w), w
    for _ in range(40):  # to w - eta grad f(w) = start, as eta L < 1
      w = start + eta * clients.gradient(w)
    before = clients.gradient(w)
    norms.append(np.sqrt(square(before)).min())
    curvatures.append(lemmas.curvature(before, after, client_lr=eta))
  if problem == 'bowls':
    factor = 1 / math.sqrt(1 - 0.4 * min(curvatures) ** 2 * (2 - 0.4))
    assert norms[-1] > norms[0] * factor**599 > 1e6 * norms[0]
  else:
    assert norms[-1] <= clients.lipschitz
    assert curvatures[-1] < 1e-3 * curvatures[0]


def test_lemma_3_needs_convexity():
  """f = -w^2 / 2 is smooth with L = 1; from w = 1 it goes to w = 3/2."""
  bound = lemmas.next_gradient_bound(1, 0.25, client_lr=0.5, smoothness=1.0)
  assert bound == 0.25 < 1.5**2


def test_theorem_4_fails_with_poisson_cohorts():
  """On |w|, smoothed near 0, whose updates have two lengths, 0 aside."""
  gradient = lambda w: np.broadcast_to(np.clip(w, -1, 1), (*w.shape[:-2], 4, 1))
  one = lambda w: np.where(abs(w) < 1, w**2 / 2, abs(w) - 0.5)[..., 0]
  value = lambda w: np.broadcast_to(one(w), (*w.shape[:-2], 4))
  clients = das_problems.Clients(value, gradient, 1.0, np.zeros(1), np.zeros(4))
  s = schedule(
    clip=4000.0, rho=0.01, local_steps=1, rounds=500, gamma=100.0,
    largest_gap=0.0, cohort_variance=0.75,
  )  # fmt: skip
  assert s.alpha == pytest.approx(1)
  run = das_problems.play(clients, s, np.ones(1), 'normalize', 1)
  left = lambda form: run.left(s, clients, 'normalize', form).mean(0)
  assert ends(left('corrected'), 1) < das.right(s, 1) == pytest.approx(4000.4)
  assert ends(left('printed'), -1) > 10 * das.right(s, 1)


@pytest.mark.parametrize(('rounds', 'times'), [(60, 6.0), (500, 7.5)])
def test_noise_of_each_client_costs_six_to_eight_times_the_epsilon(
  rounds, times
):
  """Of a fifth of the clients, where the server sees who takes part."""
  z = accounting.calibrate_noise_multiplier(
    epsilon=5, delta=1e-5, steps=rounds, sampling_probability=0.2
  )
  seen = accounting.gaussian_epsilon(z, 1e-5, rounds)
  assert seen == pytest.approx(times * 5, rel=0.01)


def test_the_signal_of_normalising_may_be_lower():
  """Each update is at least as long as clipped; the mean need not be."""
  u = np.array([[10.0, 0.0], [-1.0, 0.0]])
  norms = np.linalg.norm(u, axis=1, keepdims=True)
  clip, normal = u * np.minimum(1, 10 / norms), u * 10 / norms
  assert (square(normal) >= square(clip)).all()
  assert np.abs(clip.mean(0)).tolist() == [4.5, 0]
  assert np.abs(normal.mean(0)).tolist() == [0, 0]


def test_the_bias_of_clipping_may_grow_with_the_threshold():
  """Catches a row that calls the bias monotone in C."""
  bias = lambda c: abs(np.clip([4.0, -3.0, -1.0], -c, c).mean())
  assert bias(0.5) < bias(1) == pytest.approx(1 / 3)
  assert bias(4) == 0


def test_the_left_side_of_16_may_be_the_smaller():
  """Clients (w - 1)^2 / 2 and (w + 1)^2 / 2 at w = 0.99, near the former's."""
  w, clip, x = 0.99, 16.0, 0.5
  u = np.array([w - 1, w + 1])
  excess = u**2 / 2 - 0.5
  assert excess.mean() > 0
  normal = ((2 - x**2) * clip / abs(u) * excess).mean()
  assert normal < 0 < (2 - x - x**2) * excess.mean()


def test_many_rounds_do_not_bring_normalising_ahead():
  """Two clients on a line, at the rates of the theorems, alpha 1 and 4."""
  curved, optima = np.array([1.0, 0.1]), np.array([1.0, -1.0])
  w_star = np.array([curved @ optima / curved.sum()])
  value = lambda w: curved * (w[..., 0] - optima) ** 2 / 2
  gradient = lambda w: (curved * (w[..., 0] - optima))[..., None]
  gaps = value(w_star[None])
  clients = das_problems.Clients(value, gradient, 1.0, w_star, gaps)
  for rounds in (4444, 17_778):
    s = schedule(
      clip=2.0, rho=0.03, local_steps=1, rounds=rounds, gamma=4.0,
      largest_gap=gaps.max(),
    )  # fmt: skip
    play = functools.partial(das_problems.play, clients, s, w_star - 4)
    clip, normal = (play(b, draws=100) for b in das_problems.BOUNDS)
    assert ends(normal.mean_excess(), -1) > 1.6 * ends(clip.mean_excess(), 1)


def test_local_steps_shrink_the_bound_and_not_the_loss():
  """With like clients, where (11) holds and asks for many: E = 25 is best."""
  clients, losses, bounds = das_problems.bowls(0.9)[0], [], []
  for steps in (1, 25):
    rates = {'smoothness': 1.0, 'rho': 0.02, 'local_steps': steps}
    clip = tradeoffs.unclipped_threshold(6.0, 0.9, **rates)
    s = das_problems.schedule(distance=3.0, clip=clip, **rates)
    run = das_problems.play(clients, s, clients.start(3.0), draws=100)
    assert clients.steepness(run.w).max() < 6.0
    assert run.norms.max() <= s.clip_norm
    losses.append(run.mean_excess())
    bounds.append(tradeoffs.local_steps_bound(6.0, 3.0, 0.0, 0.9, **rates))
    assert ends(losses[-1], 1) < bounds[-1]
  assert bounds[1] < 0.95 * bounds[0]
  assert ends(losses[1], -1) > ends(losses[0], 1)


def test_what_the_rates_depend_on():
  """Terms of (6), (15) and (17), and K, over alpha, E and c."""
  for alpha in (1, 4, 16):
    k = round(alpha * 2 * 10 / (4.0 * 5 * 0.1**2))
    s = schedule(
      clip=4.0, rho=0.1, local_steps=5, rounds=k, gamma=10.0, largest_gap=1.0
    )
    assert s.load == pytest.approx(0.5 / alpha)
    assert das.right(s, 10.0) == pytest.approx(8.0)
    assert 2 - s.load - s.load**2 >= 1.25 - 1e-9
  clip = functools.partial(
    tradeoffs.unclipped_threshold, 1.0, 0.9, smoothness=1.0, rho=0.1
  )
  longest = [clip(local_steps=steps) * steps for steps in range(1, 6)]
  assert longest == sorted(longest)  # K has it in the denominator
  gaps = np.random.default_rng(0).random((100, 7))
  for c in (4, 8):
    assert (c**2 / 2 * gaps.max(1) > 1.5 * c**2 / 3 * gaps.mean(1)).all()


def test_theorems_2_and_4_do_not_cover_figures_1_to_3():
  """Catches a least C of the theorems that the figures' C reach."""
  for seed in range(3):
    clients = das_problems.quadratics(seed, 100, 200, 20)
    least = 4 * 20 * math.sqrt(clients.smoothness * clients.gaps.max())
    assert max(grid.CLIPS) < 230 < least


def test_five_shards_have_five_classes_at_the_sizes_of_the_paper():
  """Catches shards with several classes at a size of the paper."""
  for n, images, classes in ((3000, 60_000, 10), (5000, 50_000, 100)):
    labels = np.arange(images) % classes
    options = {'shards_per_client': 5}
    p = partitions.partition('label_shards', labels, n, 0, **options)
    assert max(len(np.unique(labels[p.client(i)])) for i in range(n)) == 5
