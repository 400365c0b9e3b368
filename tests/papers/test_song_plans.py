"""Song et al.: what an accuracy costs, and compositions known exactly."""

import functools
import math

import numpy as np
from papers.song.statements import (
  communication,
  convergence as song,
  lemmas,
  plans,
  privacy,
)
from papers.song.statements.plans import Problem
import pytest
from scipy import stats
from song_problems import accepted

ALIKE = Problem(64, 10, 2.0, 3.0, 0.0, 0.1)
UNLIKE = ALIKE._replace(heterogeneity=5.0)
AMS = functools.partial(lemmas.alpha, 'ams', 64)
TARGETS = [10.0**-k for k in range(7)]
each_problem = pytest.mark.parametrize('problem', [ALIKE, UNLIKE])


def promised(bound, problem, plan, **own):
  """What a bound is for a plan of tables of four numbers."""
  number = problem._asdict() | plan._asdict() | {'alpha': AMS(4)} | own
  return bound(**accepted(bound, number))


@each_problem
@pytest.mark.parametrize('target', [1.0, 1e-2, 1e-5])
def test_plans_split_the_target(problem, target):
  """In two terms of at most a half each."""
  table = {'alpha': AMS(4), 'size': 4}
  convex = plans.convex_plan(target, problem, local_steps=3, **table)
  strongly = plans.strongly_convex_plan(target, problem, **table)
  for bound, plan in (song.convex, convex), (song.strongly_convex, strongly):
    first = promised(bound, problem, plan, heterogeneity=0.0)
    whole = promised(bound, problem, plan)
    assert 0.49 * target < first <= 0.5 * target * (1 + 1e-9)
    assert whole - first <= 0.5 * target * (1 + 1e-9)
    assert plan.floats == 10 * 4 * plan.rounds


def test_printed_threshold_is_half_of_the_true_one():
  """Trap T16: in between, its larger step misses the target."""
  edge = UNLIKE.heterogeneity / UNLIKE.strong_convexity / 8 / (1 + AMS(4)) ** 2

  def reached(target, form):
    plan = plans.strongly_convex_plan(target, UNLIKE, form=form, alpha=AMS(4))
    return target >= promised(song.strongly_convex, UNLIKE, plan)

  for form, between in ('printed', False), ('corrected', True):
    found = [reached(edge * x, form) for x in (0.4, 0.6, 0.9, 1.1)]
    assert found == [True, between, between, True]


@pytest.mark.parametrize(
  ('kind', 'low', 'high'), [('convex', 63, 129), ('strongly_convex', 2.8, 8.1)]
)
@each_problem
def test_plans_are_of_the_order_of_the_corollaries(problem, kind, low, high):
  """Tables of one number and one local step, at all accuracies."""
  plan = getattr(plans, f'{kind}_plan')
  floats = getattr(communication, f'{kind}_floats')
  if kind == 'convex':
    problem = problem._replace(strong_convexity=0.0)
  sent = [plan(t, problem, alpha=AMS(1)).floats for t in TARGETS]
  ratios = np.divide(sent, [floats(t, problem) for t in TARGETS])
  assert low < min(ratios) < max(ratios) < high


def test_sketching_saves_a_factor_d_only_where_clients_differ():
  ours = communication.convex_floats
  theirs = communication.local_gradient_descent_floats
  for target in TARGETS:
    assert theirs(target, ALIKE) == pytest.approx(ours(target, ALIKE))
  savings = [theirs(t, UNLIKE) / ours(t, UNLIKE) for t in TARGETS]
  assert savings == sorted(savings)
  assert theirs(1e-9, UNLIKE) / ours(1e-9, UNLIKE) == pytest.approx(64)


def test_rate_is_linear_down_to_its_target():
  """Floats over the logarithm are constant above it, and grow below."""
  edge = communication.linear_down_to(UNLIKE)
  per_decade = lambda target: (
    communication.strongly_convex_floats(target, UNLIKE) / math.log(6 / target)
  )
  assert per_decade(edge) == pytest.approx(per_decade(0.1))
  assert per_decade(edge / 16) == pytest.approx(4 * per_decade(edge))
  assert communication.linear_down_to(ALIKE) == 0


def delta_of(epsilon_hat, steps, epsilon):
  """Of so many randomized responses, by their binomial privacy loss."""
  true = 1 / (1 + math.exp(-epsilon_hat))
  hits = np.arange(steps + 1)
  loss = epsilon_hat * (2 * hits - steps)
  chance = stats.binom.pmf(hits, steps, true)
  return float((chance * np.maximum(-np.expm1(epsilon - loss), 0)).sum())


@pytest.mark.parametrize('constant', [1, 3])
def test_no_constant_mends_theorems_6_1_and_6_2(constant):
  """Steps of epsilon 0.09 < 1 / sqrt(K), and 10^-12 more than they need."""
  for theorem, count in (
    (privacy.local_epsilon, (100,)), (privacy.total_epsilon, (5, 20)),
  ):  # fmt: skip
    of = functools.partial(theorem, 0.09, 1e-12, *count)
    claimed, delta = of(form='printed')
    assert delta_of(0.09, 100, constant * claimed) > 1e4 * delta
    enough, slack = of(delta_slack=1e-6)
    assert delta_of(0.09, 100, enough) <= slack


@pytest.mark.parametrize('batch', [1, 4])
def test_lemma_h_8_bounds_no_sensitivity(batch):
  """Catches a norm for a sensitivity: what one clipped sample moves at most."""
  lipschitz, rng = 0.5, np.random.default_rng(0)
  g = rng.standard_normal((500, 8))  # of the sample that goes
  g *= lipschitz / np.linalg.norm(g, axis=-1, keepdims=True)
  of = functools.partial(privacy.mean_sensitivity, lipschitz, batch)
  # The farthest of this length is the antipode.
  for relation, other in (('replace_one', -g), ('add_remove', 0 * g)):
    moved = np.linalg.norm((g - other) / batch, axis=-1)
    np.testing.assert_allclose(moved, of(relation=relation))
  assert (of() > of(form='printed')) == (batch == 1)
  # f_c = 0 is the mean of x and -x: without the one it has the slope 1 / 2.
  assert abs(np.mean([1, -1]) - 1 / 2) >= of(form='printed')
