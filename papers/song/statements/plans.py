"""Plans for an accuracy by Song et al.: step sizes, rounds and floats.

Song, Wang, Yu and Zhang, arXiv:2210.08371: the choices in the proofs of
Corollaries F.8 and F.10. target is eps, a bound on f - f*.
"""

import math
from typing import NamedTuple

from ...common.conditions import Count, Form, NonNegative, Positive
from ...common.statements import statement
from . import convergence

FOREVER = 2**60  # rounds


class Problem(NamedTuple):
  """A learning problem and its clients, who all take part in every round.

  Smoothness and strong convexity are those of every client's loss.
  """

  dimension: Count
  clients: Count
  smoothness: Positive
  distance_squared: Positive
  heterogeneity: NonNegative = 0.0
  strong_convexity: float = 0.0


class Plan(NamedTuple):
  """A way to reach a target; floats: what all clients send up in all rounds."""

  rounds: int
  local_steps: int
  client_lr: float
  size: int
  floats: int


def check_convexity(problem: Problem) -> None:
  """Raises ValueError unless the problem is strongly convex."""
  convergence.check_convexity(problem.strong_convexity, problem.smoothness)


def _rounds(amount, each):
  """Their ratio, rounded up, where `each` may be 0 by underflow."""
  if not amount <= FOREVER * each:
    raise ValueError(f'rounds={amount}/{each} must be <= {FOREVER}.')
  return max(math.ceil(amount / each), 1)


def _plan(problem, rounds, local_steps, client_lr, size):
  floats = problem.clients * size * rounds
  return Plan(rounds, local_steps, client_lr, size, floats)


@statement('S0-F8', 'proof of Corollary F.8', printed='holds')
def convex_plan(
  target: Positive,
  problem: Problem,
  *,
  alpha: NonNegative,
  size: Count = 1,
  local_steps: Count = 1,
) -> Plan:
  """K eta = min(1/(8 (1+alpha) L), sqrt(eps/L)/(8 sigma)), T = 8W/(K eta eps).

  Both terms of `convergence.convex` are at most half the target. K is free.

  >>> convex_plan(0.5, Problem(4, 2, 1.0, 1.0), alpha=3.0).rounds
  512
  """
  smoothness = problem.smoothness
  travelled = local_steps * convergence.largest_step(
    'F7', smoothness=smoothness, alpha=alpha, local_steps=local_steps
  )
  if problem.heterogeneity:
    drift = math.sqrt(target / smoothness / problem.heterogeneity) / 8
    travelled = min(travelled, drift)
  rounds = _rounds(8 * problem.distance_squared / target, travelled)
  return _plan(problem, rounds, local_steps, travelled / local_steps, size)


@statement(
  'S0-F10', 'proof of Corollary F.10', printed='wrong', corrected='loose'
)
def strongly_convex_plan(
  target: Positive,
  problem: Problem,
  *,
  alpha: NonNegative,
  size: Count = 1,
  form: Form = 'corrected',
) -> Plan:
  """T = log(L W / eps) / (mu eta), K = 1, eta the smaller of two.

  1 / (8 (1 + alpha) L) and sqrt(mu eps / 2) / (2 L sigma): both terms of
  `convergence.strongly_convex` are then at most half the target. It is the
  first from eps = sigma^2 / (8 (1 + alpha)^2 mu) on; printed is half of that,
  and in between the bound exceeds the target.

  >>> problem = Problem(4, 2, 1.0, 1.0, strong_convexity=1.0)
  >>> strongly_convex_plan(0.5, problem, alpha=3.0).rounds
  23
  """
  check_convexity(problem)
  _, _, smoothness, distance, variance, mu = problem
  client_lr = convergence.largest_step('F9', smoothness=smoothness, alpha=alpha)
  number = 16 if form == 'printed' else 8
  if target * number * (1 + alpha) * (1 + alpha) * mu < variance:
    client_lr = math.sqrt(mu * target / 2 / variance) / (2 * smoothness)
  start = math.log(smoothness) + math.log(distance) - math.log(target)
  return _plan(problem, _rounds(start, mu * client_lr), 1, client_lr, size)
