"""Song's corollaries: what an accuracy costs, and what the theorems promise."""

import functools
import math

from papers.song.statements import (
  communication,
  convergence as song,
  lemmas,
  plans,
)
from papers.song.statements.plans import Problem
import pytest

ALIKE = Problem(64, 10, 2.0, 3.0, 0.0, 0.1)
UNLIKE = ALIKE._replace(heterogeneity=5.0)
AMS = functools.partial(lemmas.alpha, 'ams', 64)
TARGETS = [10.0**-k for k in range(7)]


@pytest.mark.covers('S0-Cor5.4=F8')
@pytest.mark.parametrize('problem', [ALIKE, UNLIKE], ids=['alike', 'unlike'])
@pytest.mark.parametrize('target', [1.0, 1e-2, 1e-5])
def test_plans_split_the_target(problem, target):
  """In two terms of at most a half each."""
  _, _, smoothness, distance, variance, mu = problem
  number = {'alpha': AMS(4), 'smoothness': smoothness}
  number['distance_squared'] = distance
  strongly = functools.partial(song.strongly_convex, strong_convexity=mu)
  table = {'alpha': AMS(4), 'size': 4}
  for bound, plan in (
    (song.convex, plans.convex_plan(target, problem, local_steps=3, **table)),
    (strongly, plans.strongly_convex_plan(target, problem, **table)),
  ):
    number |= {'client_lr': plan.client_lr, 'local_steps': plan.local_steps}
    of = functools.partial(bound, plan.rounds, **number)
    first, whole = (of(heterogeneity=x) for x in (0.0, variance))
    assert 0.49 * target < first <= 0.5 * target * (1 + 1e-9)
    assert whole - first <= 0.5 * target * (1 + 1e-9)
    assert plan.floats == 10 * 4 * plan.rounds


@pytest.mark.covers('S0-Cor5.2=F10')
def test_printed_threshold_is_half_of_the_true_one():
  """Trap T16: in between, its larger step misses the target."""
  alpha = {'alpha': AMS(4)}
  edge = UNLIKE.heterogeneity / UNLIKE.strong_convexity / 8 / (1 + AMS(4)) ** 2
  number = alpha | dict(zip(UNLIKE._fields[2:], UNLIKE[2:], strict=True))

  def reached(target, form):
    plan = plans.strongly_convex_plan(target, UNLIKE, form=form, **alpha)
    lr = plan.client_lr
    return target >= song.strongly_convex(plan.rounds, client_lr=lr, **number)

  for form, parts in (
    ('printed', [True, False, False, True]),
    ('corrected', [True] * 4),
  ):
    assert [reached(edge * x, form) for x in (0.4, 0.6, 0.9, 1.1)] == parts


@pytest.mark.covers('S0-Cor5.4=F8', 'S0-Cor5.2=F10')
def test_plans_are_of_the_order_of_the_corollaries():
  """Tables of one number and one local step, at all accuracies."""
  for problem in (ALIKE, UNLIKE):
    convex = problem._replace(strong_convexity=0.0)
    for plan, floats, on, low, high in (
      (plans.convex_plan, communication.convex_floats, convex, 63, 129),
      (
        plans.strongly_convex_plan,
        communication.strongly_convex_floats, problem, 2.8, 8.1,
      ),
    ):  # fmt: skip
      ratios = [
        plan(t, on, alpha=AMS(1)).floats / floats(t, on) for t in TARGETS
      ]
      assert low < min(ratios) < max(ratios) < high


@pytest.mark.covers('S0-KMR19')
def test_sketching_saves_a_factor_d_only_where_clients_differ():
  ours = communication.convex_floats
  theirs = communication.local_gradient_descent_floats
  for target in TARGETS:
    assert theirs(target, ALIKE) == pytest.approx(ours(target, ALIKE))
  savings = [theirs(t, UNLIKE) / ours(t, UNLIKE) for t in TARGETS]
  assert savings == sorted(savings)
  assert theirs(1e-9, UNLIKE) / ours(1e-9, UNLIKE) == pytest.approx(64)


@pytest.mark.covers('S0-LinRate')
def test_rate_is_linear_down_to_its_target():
  """Floats over the logarithm are constant above it, and grow below."""
  edge = communication.linear_down_to(UNLIKE)
  per_decade = lambda target: (
    communication.strongly_convex_floats(target, UNLIKE) / math.log(6 / target)
  )
  assert per_decade(edge) == pytest.approx(per_decade(0.1))
  assert per_decade(edge / 16) == pytest.approx(4 * per_decade(edge))
  assert communication.linear_down_to(ALIKE) == 0
