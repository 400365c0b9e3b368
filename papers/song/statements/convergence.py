"""Convergence bounds of iterative sketching, by Song et al.

Song, Wang, Yu and Zhang, arXiv:2210.08371, sections 3 to 5 and appendices E to
G: client_lr is their eta_local, server_lr eta_global, local_steps K, rounds T,
smoothness L, strong_convexity mu, gap f(w^0) - f*, distance_squared
E||w^0 - w*||^2, heterogeneity sigma^2. A theorem without server_lr holds for 1;
those of one local step, E.1 to E.3, for client_lr times server_lr. Bounded are
expectations over the sketches. A step above the theorem's is a ValueError.
"""

import math
from typing import Annotated

from fl_sketch.utils import checks

from ...common import conditions
from ...common.conditions import Count, Form, NonNegative, Positive
from ...common.evaluation import formula
from ...common.statements import statement

# c, and whether alpha and K count, in 1 / (c (1 + alpha) L K).
_LARGEST = {
  'E1': (1, True, False), 'E2': (2, True, False), 'E3': (1, True, False),
  'F5': (8, False, True), 'F6': (4, False, False), 'F7': (8, True, True),
  'F9': (8, True, True), 'G1': (2, False, True), 'G2': (2, False, True),
}  # fmt: skip
Theorem = Annotated[str, conditions.choice(_LARGEST)]


@formula
def largest_step(
  theorem: Theorem,
  *,
  smoothness: Positive,
  alpha: NonNegative = 0.0,
  local_steps: Count = 1,
) -> float:
  """The largest step size of a theorem: 1 / (c (1 + alpha) L K).

  F5, F6, G1 and G2 do not depend on alpha, and E1 to E3 and F6 not on K.

  >>> largest_step('F9', smoothness=2.0, alpha=3.0, local_steps=4)
  0.00390625
  """
  number, sketched, local = _LARGEST[theorem]
  scale = (1 + alpha if sketched else 1) * (local_steps if local else 1)
  return 1 / (number * scale * smoothness)


def check_step(theorem: str, step: float, **setting) -> float:
  """The step; ValueError if it is above `largest_step`."""
  return checks.at_most('client_lr', step, largest_step(theorem, **setting))


def check_convexity(strong_convexity: float, smoothness: float) -> float:
  """Strong convexity as a float; ValueError unless it is in (0, L]."""
  mu = checks.positive('strong_convexity', strong_convexity)
  return checks.at_most('strong_convexity', mu, smoothness)


@statement('S0-E1', 'Theorem E.1', printed='holds')
def single_step_strongly_convex(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  strong_convexity: Positive,
  gap: NonNegative,
) -> float:
  """E f(w^T) - f* <= (1 - mu eta)^T gap, for K = 1.

  An equality at the largest step where all curvatures are the same.

  >>> number = {'alpha': 3.0, 'smoothness': 1.0, 'strong_convexity': 0.5}
  >>> single_step_strongly_convex(1, client_lr=0.25, gap=8.0, **number)
  7.0
  """
  eta = check_step('E1', client_lr, smoothness=smoothness, alpha=alpha)
  mu = check_convexity(strong_convexity, smoothness)
  return (1 - mu * eta) ** rounds * gap


@statement('S0-DPbound', 'section 8, on noise', corrected='holds')
def single_step_noisy(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  strong_convexity: Positive,
  gap: NonNegative,
  variance: NonNegative,
  dimension: Count,
  clients: Count,
) -> float:
  """Theorem E.1, and the floor of noise of this variance in each coordinate.

  The paper says that its analysis can include the noise, without doing so. For
  K = 1, E gap' <= (1 - mu eta) gap + L eta^2 (1 + alpha) d variance / (2 N).

  >>> number = {'alpha': 3.0, 'smoothness': 1.0, 'strong_convexity': 0.5}
  >>> number |= {'variance': 1.0, 'dimension': 64, 'clients': 4}
  >>> single_step_noisy(1, client_lr=0.25, gap=8.0, **number)
  9.0
  """
  number = {'client_lr': client_lr, 'alpha': alpha, 'smoothness': smoothness}
  number |= {'strong_convexity': strong_convexity, 'gap': gap}
  kept = single_step_strongly_convex(rounds, **number)
  once = smoothness * client_lr**2 * (1 + alpha) * dimension * variance / 2
  shrunk = strong_convexity * client_lr
  return kept + once / clients * (1 - (1 - shrunk) ** rounds) / shrunk


@statement('S0-E2', 'Theorem E.2', printed='holds')
def single_step_convex(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  distance_squared: NonNegative,
) -> float:
  """E f(mean of w^0 to w^T) - f* <= E||w^0 - w*||^2 / (eta (T + 1)), K = 1.

  >>> number = {'alpha': 3.0, 'smoothness': 1.0, 'distance_squared': 2.0}
  >>> single_step_convex(1, client_lr=0.125, **number)
  8.0
  """
  eta = check_step('E2', client_lr, smoothness=smoothness, alpha=alpha)
  return distance_squared / (eta * (rounds + 1))


@statement('S0-E3', 'Theorem E.3', printed='holds')
def single_step_nonconvex(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  gap: NonNegative,
) -> float:
  """The least E||grad f(w^t)||^2, t <= T, is <= 2 gap / (eta (T + 1)); K = 1.

  >>> number = {'alpha': 3.0, 'smoothness': 1.0, 'gap': 2.0}
  >>> single_step_nonconvex(1, client_lr=0.25, **number)
  8.0
  """
  eta = check_step('E3', client_lr, smoothness=smoothness, alpha=alpha)
  return 2 * gap / (eta * (rounds + 1))


@statement('S0-RemE4', 'Remark E.4', printed='holds')
def slowdown(alpha: NonNegative) -> float:
  """1 + alpha: the rounds of E1 to E3 over those without a sketch.

  Both at the largest step.

  >>> slowdown(3.0)
  4.0
  """
  return 1 + alpha


@statement('S0-Thm5.3', 'Theorem 5.3 = F.7', printed='holds')
def convex(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  distance_squared: NonNegative,
  heterogeneity: NonNegative,
  local_steps: Count = 1,
) -> float:
  """E f(mean model) - f* <= 4 W / (eta K T) + 32 eta^2 L K^2 sigma^2.

  W is distance_squared; the mean is over all clients, local steps and rounds,
  and server_lr is 1.

  >>> number = {'smoothness': 1.0, 'distance_squared': 2.0, 'alpha': 3.0}
  >>> convex(64, client_lr=1 / 32, heterogeneity=0.0, **number)
  4.0
  """
  travelled = local_steps * check_step(
    'F7', client_lr, smoothness=smoothness, alpha=alpha, local_steps=local_steps
  )
  drift = 32 * travelled**2 * smoothness * heterogeneity
  return 4 * distance_squared / (travelled * rounds) + drift


@statement('S0-Thm5.1', 'Theorem 5.1 = F.9', printed='loose')
def strongly_convex(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  strong_convexity: Positive,
  distance_squared: NonNegative,
  heterogeneity: NonNegative,
  local_steps: Count = 1,
) -> float:
  """E f - f* <= (L / 2) W exp(-mu eta T) + 4 eta^2 L^2 K^3 sigma^2 / mu.

  After T rounds, W being distance_squared and server_lr 1. The K steps of a
  round contract as one does.

  >>> number = {'smoothness': 1.0, 'strong_convexity': 1.0, 'alpha': 0.0}
  >>> number |= {'distance_squared': 2.0, 'heterogeneity': 0.0}
  >>> round(strongly_convex(8, client_lr=1 / 8, **number), 3)
  0.368
  """
  eta = check_step(
    'F9', client_lr, smoothness=smoothness, alpha=alpha, local_steps=local_steps
  )
  mu = check_convexity(strong_convexity, smoothness)
  drift = 4 * eta**2 * smoothness**2 * local_steps**3 * heterogeneity / mu
  start = smoothness / 2 * distance_squared
  return start * math.exp(-mu * eta * rounds) + drift


@statement('S0-G1', 'Lemma G.1', printed='wrong', corrected='holds')
def nonconvex_step(
  gradient_squared: NonNegative,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  gradient_bound: NonNegative,
  local_steps: Count = 1,
  server_lr: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  """E f(w^{t+1}) - f(w^t) <= eta K (N - ||grad f(w^t)||^2).

  eta is client_lr * server_lr and N = L K G^2 (client_lr + eta (1 + alpha) / 2)
  with G the gradient_bound of every client. The printed factor of the squared
  gradient, server_lr, is too large if client_lr * K < 1.

  >>> number = {'alpha': 0.0, 'smoothness': 1.0, 'gradient_bound': 1.0}
  >>> round(nonconvex_step(1.0, client_lr=0.1, **number), 3)
  -0.085
  """
  noise, descent, printed = _nonconvex(
    'G1', client_lr, alpha, smoothness, gradient_bound, local_steps, server_lr
  )
  factor = printed if form == 'printed' else descent
  return descent * noise - factor * gradient_squared


@statement('S0-G2', 'Theorem G.2', printed='wrong', corrected='holds')
def nonconvex(
  rounds: Count,
  *,
  client_lr: Positive,
  alpha: NonNegative,
  smoothness: Positive,
  gap: NonNegative,
  gradient_bound: NonNegative,
  local_steps: Count = 1,
  server_lr: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  """The mean E||grad f(w^t)||^2, t <= T, is <= gap / ((T + 1) eta K) + N.

  The sum of `nonconvex_step` over rounds. Printed has server_lr for eta K.

  >>> number = {'alpha': 0.0, 'smoothness': 1.0, 'gradient_bound': 1.0}
  >>> round(nonconvex(9, client_lr=0.1, gap=1.0, **number), 3)
  1.15
  """
  noise, descent, printed = _nonconvex(
    'G2', client_lr, alpha, smoothness, gradient_bound, local_steps, server_lr
  )
  factor = printed if form == 'printed' else descent
  return (gap / (rounds + 1) + descent * noise) / factor


def _nonconvex(theorem, lr, alpha, smoothness, bound, steps, server_lr):
  """N, and what multiplies ||grad f||^2, corrected and printed."""
  check_step(theorem, lr, smoothness=smoothness, local_steps=steps)
  eta = lr * server_lr
  noise = smoothness * steps * bound**2 * (lr + eta * (1 + alpha) / 2)
  return noise, eta * steps, server_lr
