"""Communication cost of an accuracy, up to a constant: Song et al.

Song, Wang, Yu and Zhang, arXiv:2210.08371, section 5. Floats are those that all
clients send up in all rounds, 32 bits each; the broadcasts are as long. The
constants that the paper does not name are 1 here; `plans` has them.
"""

import math

from ...common.conditions import Positive
from ...common.statements import statement
from . import plans
from .plans import Problem


def _drift(target, problem):
  """The second rate, sigma sqrt(L) / eps^1.5."""
  return math.sqrt(problem.heterogeneity * problem.smoothness / target) / target


@statement('S0-Cor5.4', 'Corollary 5.4 = F.8', printed='order')
def convex_floats(target: Positive, problem: Problem) -> float:
  """O(W N max(L d / eps, sigma sqrt(L) / eps^1.5)), of tables of O(1) numbers.

  >>> convex_floats(0.5, Problem(9, 2, 1.0, 1.0))
  36.0
  """
  each = problem.smoothness * problem.dimension / target
  each = max(each, _drift(target, problem))
  return problem.distance_squared * problem.clients * each


@statement('S0-KMR19', 'section 5, on Khaled et al.', printed='order')
def local_gradient_descent_floats(target: Positive, problem: Problem) -> float:
  """O(W N d max(L / eps, sigma sqrt(L) / eps^1.5)): no sketch, else convex.

  Up to d times those with a sketch where clients differ. arXiv:1909.04715.

  >>> local_gradient_descent_floats(0.25, Problem(9, 2, 1.0, 1.0, 4.0))
  288.0
  """
  each = max(problem.smoothness / target, _drift(target, problem))
  everyone = problem.clients * problem.dimension
  return problem.distance_squared * everyone * each


@statement('S0-Cor5.2', 'Corollary 5.2 = F.10', printed='order')
def strongly_convex_floats(target: Positive, problem: Problem) -> float:
  """O((L N / mu) max(d, sqrt(sigma^2 / (mu eps))) log(L W / eps)), K = 1.

  >>> problem = Problem(9, 2, 2.0, 1.0, strong_convexity=1.0)
  >>> strongly_convex_floats(2 / math.e, problem)
  36.0
  """
  plans.check_convexity(problem)
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
  plans.check_convexity(problem)
  variance = problem.heterogeneity / problem.strong_convexity
  return variance / problem.dimension**2
