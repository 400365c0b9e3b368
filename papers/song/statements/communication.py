"""Communication cost of an accuracy, up to a constant: Song et al.

Song, Wang, Yu and Zhang, arXiv:2210.08371, section 5. Floats are those that all
clients send up in all rounds, 32 bits each; the broadcasts are as long. The
constants that the paper does not name are 1 here; `plans` has them.
"""

from collections.abc import Sequence
import functools
import math

from fl_sketch.utils import markdown

from ...common.statements import statement
from . import lemmas, plans
from .plans import Problem


def _drift(target, problem):
  """The second rate, sigma sqrt(L) / eps^1.5."""
  return math.sqrt(problem.heterogeneity * problem.smoothness / target) / target


@statement('S0-Cor5.4', 'Corollary 5.4 = F.8', printed='order')
def convex_floats(target: float, problem: Problem) -> float:
  """O(W N max(L d / eps, sigma sqrt(L) / eps^1.5)), of tables of O(1) numbers.

  >>> convex_floats(0.5, Problem(9, 2, 1.0, 1.0))
  36.0
  """
  plans.check(target, problem)
  each = problem.smoothness * problem.dimension / target
  each = max(each, _drift(target, problem))
  return problem.distance_squared * problem.clients * each


@statement('S0-KMR19', 'section 5, on Khaled et al.', printed='order')
def local_gradient_descent_floats(target: float, problem: Problem) -> float:
  """O(W N d max(L / eps, sigma sqrt(L) / eps^1.5)): no sketch, else convex.

  As many as with a sketch if the clients are alike, up to d times if not.
  Khaled, Mishchenko and Richtarik, arXiv:1909.04746.

  >>> local_gradient_descent_floats(0.25, Problem(9, 2, 1.0, 1.0, 4.0))
  288.0
  """
  plans.check(target, problem)
  each = max(problem.smoothness / target, _drift(target, problem))
  everyone = problem.clients * problem.dimension
  return problem.distance_squared * everyone * each


@statement('S0-Cor5.2', 'Corollary 5.2 = F.10', printed='order')
def strongly_convex_floats(target: float, problem: Problem) -> float:
  """O((L N / mu) max(d, sqrt(sigma^2 / (mu eps))) log(L W / eps)), K = 1.

  >>> problem = Problem(9, 2, 2.0, 1.0, strong_convexity=1.0)
  >>> strongly_convex_floats(2 / math.e, problem)
  36.0
  """
  plans.check(target, problem, strongly=True)
  d, clients, smoothness, distance, variance, mu = problem
  condition = smoothness / mu
  size = max(d, math.sqrt(variance / (mu * target)))
  return condition * clients * size * math.log(smoothness * distance / target)


@statement('S0-LinRate', 'after Corollary 5.2', printed='order')
def linear_down_to(problem: Problem) -> float:
  """sigma^2 / (mu d^2): the target down to which floats grow as a logarithm.

  >>> linear_down_to(Problem(2, 1, 1.0, 1.0, 8.0, strong_convexity=0.5))
  4.0
  """
  plans.check(1.0, problem, strongly=True)
  variance = problem.heterogeneity / problem.strong_convexity
  return variance / problem.dimension**2


def communication_table(
  targets: Sequence[float],
  problem: Problem,
  *,
  operator: str = 'srht',
  sizes: Sequence[int] = (1,),
  steps: Sequence[int] = (1,),
) -> str:
  """Returns a Markdown table of floats for each target, by corollary and plan.

  >>> print(communication_table([0.1], Problem(16, 2, 1.0, 1.0)))
  | floats to f - f* = | 0.1 |
  | --- | --- |
  | sketch, convex: order | 320 |
  | no sketch, convex: order | 320 |
  | sketch, convex: promised | 1.024e+04 |
  <BLANKLINE>

  Args:
    targets: a column for each.
    problem: what is to be learned; strongly convex rows need its constant.
    operator: of `lemmas.OPERATORS`.
    sizes: of tables, for `plans.cheapest` to choose from.
    steps: local steps, likewise.
  """
  alpha = functools.partial(lemmas.alpha, operator, problem.dimension)
  promised = lambda target, problem: (
    plans.cheapest(
      target, problem, alpha=alpha, sizes=sizes, steps=steps
    ).floats
  )
  convex = problem._replace(strong_convexity=0.0)
  rows = [
    ('sketch, convex: order', convex_floats, convex),
    ('no sketch, convex: order', local_gradient_descent_floats, convex),
    ('sketch, convex: promised', promised, convex),
  ]
  if problem.strong_convexity:
    rows += [
      ('sketch, strongly convex: order', strongly_convex_floats, problem),
      ('sketch, strongly convex: promised', promised, problem),
    ]
  head = ['floats to f - f* =', *(f'{t:g}' for t in targets)]
  lines = (
    [name, *(f'{floats(t, of):.4g}' for t in targets)]
    for name, floats, of in rows
  )
  return markdown.table(head, lines)
