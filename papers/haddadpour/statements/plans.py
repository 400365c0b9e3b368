"""FedSKETCH and FedSKETCHGATE: step sizes, rounds and floats for an accuracy.

Haddadpour, Karimi, Li and Li, arXiv:2008.04975, Theorems 2 and 3: three kinds
of loss, of clients that are alike (FedSKETCH) or not (FedSKETCHGATE, where all
of them take part). PRIVIX and HEAPRIX differ by their omega alone. Names are
those of `haddadpour`.
"""

import math
from typing import Annotated

from fl_sketch.utils import checks

from ...common import conditions
from ...common.conditions import Count, Form, Fraction, NonNegative, Positive
from ...common.statements import statement
from . import lemmas, rates
from .lemmas import Constants

OBJECTIVES = ('nonconvex', 'pl', 'convex')
Objective = Annotated[str, conditions.choice(OBJECTIVES)]


def _step(objective, smoothness, b, k, tau, rounds, server_lr):
  """Eta; b is of `lemmas.spread`."""
  scale = smoothness * server_lr
  if objective == 'nonconvex':
    return math.sqrt(k / (rounds * tau * b)) / scale
  return 1 / (2 * scale * b * tau)


@statement('S2-Thm2', 'Theorem 2', printed='wrong', corrected='order')
def fedsketch(
  objective: Objective,
  *,
  omega: NonNegative,
  clients: Count,
  smoothness: Positive,
  variance: NonNegative,
  accuracy: Fraction,
  server_lr: Positive,
  pl_constant: Positive | None = None,
  hashes: lemmas.Hashes = 'shared',
  form: Form = 'corrected',
) -> Constants:
  r"""Return the run that reaches accuracy epsilon, times the factor below.

  With b of `lemmas.spread`, kappa = L / mu and server_lr >= k, rounded up:

  * 'nonconvex': tau = (omega + 1) / (k b eps), R = 4 b k tau. Mean
    |grad f|^2 <= (L gap + sigma^2) eps.
  * 'pl': the same tau, R = 2 b kappa ln(1 / eps). f - f* <=
    (gap + sigma^2 / (2 mu)) eps.
  * 'convex', on the loss of `rates.convex_bound`, whose L is phi larger:
    tau = ((omega + 1) / (b eps))^2 / k, R = 2 b L sqrt(k tau) ln(1 / eps).
    f - f* <= (gap + (sigma^2 + |x*|^2) / 2) eps.

  Printed, with b = omega / k + 1 and constants of 1: 'nonconvex' has R = 1 /
  eps and tau = (omega + 1) / (k eps), against equation (16); 'convex' R = L b
  ln(1 / eps) / eps, short by (omega + 1) / b; 'pl' needs independent hashes.

  >>> spec = {'omega': 7.0, 'clients': 4, 'smoothness': 1.0, 'variance': 1.0}
  >>> run = fedsketch('nonconvex', accuracy=0.0625, server_lr=4.0, **spec)
  >>> run.local_steps, run.rounds, rates.condition(run) <= 1
  (4, 512, True)
  """
  if (pl_constant is None) == (objective == 'pl'):
    message = f"{pl_constant=} has no effect unless objective='pl'."
    raise checks.ChoiceError(message)
  b = lemmas.spread(omega, clients, hashes, form=form)
  checks.at_least('server_lr', server_lr, clients)
  size = _corrected if form == 'corrected' else _printed
  kappa = 1.0 if pl_constant is None else smoothness / pl_constant
  tau, rounds, smoothness = size(
    objective, omega + 1, b, clients, smoothness, kappa, accuracy
  )
  eta = _step(objective, smoothness, b, clients, tau, rounds, server_lr)
  numbers = omega, clients, smoothness, variance, tau, rounds, eta, server_lr
  return Constants(*numbers, hashes)


def _corrected(objective, delta, b, k, smoothness, kappa, eps):
  if objective == 'convex':
    tau = checks.ceil((delta / (b * eps)) ** 2 / k)
    smoothness += rates.regularizer(k, tau)
    decay = 2 * b * smoothness * math.sqrt(k * tau)
    return tau, checks.ceil(decay * -math.log(eps)), smoothness
  tau = checks.ceil(delta / (k * b * eps))
  if objective == 'nonconvex':
    return tau, 4 * checks.ceil(b * k * tau), smoothness
  return tau, checks.ceil(2 * b * kappa * -math.log(eps)), smoothness


def _printed(objective, delta, b, k, smoothness, kappa, eps):
  log = -math.log(eps)
  tau, rounds = {
    'nonconvex': (delta / (k * eps), 1 / eps),
    'pl': (delta / (k * b * eps), b * kappa * log),
    'convex': ((delta / (b * eps)) ** 2 / k, smoothness * b / eps * log),
  }[objective]
  return checks.ceil(tau), checks.ceil(rounds), smoothness


@statement('S2-Thm3', 'Theorems 3 and 9', printed='wrong', corrected='order')
def fedsketchgate(
  objective: Objective,
  *,
  omega: NonNegative,
  clients: Count,
  smoothness: Positive,
  variance: NonNegative,
  accuracy: Fraction,
  server_lr: Positive,
  pl_constant: Positive | None = None,
  form: Form = 'corrected',
) -> Constants:
  """Return the run for an accuracy of order epsilon, heterogeneous clients.

  That of `fedsketch` for shared hashes: tau = 1 / (p eps), squared eps where
  convex; R is (omega + 1) over eps, or kappa ln(1 / eps) times it, or
  L ln(1 / eps) / eps times it, up to constants. Printed, these are 1; and
  Theorem 9 has omega / p + 1 in the step of 'pl' and 'convex', which shared
  hashes do not allow, where Theorem 3 has omega + 1. server_lr must be at least
  p and sqrt(p tau).

  >>> spec = {'omega': 7.0, 'clients': 4, 'smoothness': 1.0, 'variance': 1.0}
  >>> run = fedsketchgate('nonconvex', accuracy=0.0625, server_lr=4.0, **spec)
  >>> run.local_steps, run.rounds
  (4, 512)
  """
  run = fedsketch(
    objective, omega=omega, clients=clients, smoothness=smoothness,
    variance=variance, accuracy=accuracy, server_lr=server_lr,
    pl_constant=pl_constant,
  )  # fmt: skip
  if form == 'printed':
    run = _printed_gate(objective, run, accuracy, smoothness, pl_constant)
  checks.at_least('server_lr', server_lr, math.sqrt(clients * run.local_steps))
  return run


def _printed_gate(objective, run, eps, smoothness, mu):
  delta, p = run.omega + 1, run.clients
  tau = checks.ceil(1 / (p * eps ** (2 if objective == 'convex' else 1)))
  rounds = delta / eps
  if objective != 'nonconvex':
    rounds = delta * smoothness / (mu or eps) * -math.log(eps)
  rounds = checks.ceil(rounds)
  factor = delta if objective == 'nonconvex' else run.omega / p + 1
  eta = _step(objective, smoothness, factor, p, tau, rounds, run.server_lr)
  return run._replace(
    local_steps=tau, rounds=rounds, client_lr=eta, smoothness=smoothness
  )


@statement('S2-Thm8', 'Theorem 8', printed='wrong', corrected='order')
def fedcom(
  objective: Objective,
  *,
  omega: NonNegative,
  clients: Count,
  smoothness: Positive,
  variance: NonNegative,
  accuracy: Fraction,
  server_lr: Positive,
  pl_constant: Positive | None = None,
  form: Form = 'corrected',
) -> Constants:
  """Return FedCOM's run for an accuracy of order epsilon, homogeneous clients.

  That of `fedsketch` for independent compressors. Printed, with b = omega / p +
  1, tau is b / (p eps) where nonconvex, 1 / (p eps) for 'pl' and 1 / (p eps^2)
  where convex: short by (omega + 1) / b of what Theorem 2 prints, squared where
  convex. Rounds and steps are those that Theorem 2 prints.

  >>> spec = {'omega': 7.0, 'clients': 4, 'smoothness': 1.0, 'variance': 1.0}
  >>> spec |= {'accuracy': 0.0625, 'server_lr': 4.0}
  >>> run = fedcom('nonconvex', form='printed', **spec)
  >>> run.local_steps, run.rounds
  (11, 16)
  """
  run = fedsketch(
    objective, omega=omega, clients=clients, smoothness=smoothness,
    variance=variance, accuracy=accuracy, server_lr=server_lr,
    pl_constant=pl_constant, hashes='independent', form=form,
  )  # fmt: skip
  if form == 'corrected':
    return run
  b = lemmas.spread_of(run)
  power = 2 if objective == 'convex' else 1
  steps = (b if objective == 'nonconvex' else 1) / (clients * accuracy**power)
  tau = checks.ceil(steps)
  scale = smoothness, b, clients, tau, run.rounds, server_lr
  return run._replace(local_steps=tau, client_lr=_step(objective, *scale))


@statement('S2-Cor4', 'Corollaries 4 and 5', corrected='order')
def linear_speedup(
  *,
  clients: Count,
  smoothness: Positive,
  variance: NonNegative,
  local_steps: Count,
  rounds: Count,
  gap: NonNegative,
  server_lr: Positive = 1.0,
  omega: NonNegative = 0.0,
) -> float:
  """Return Theorem 5 at eta = sqrt(k / (R tau (omega + 1))) / (L gamma).

  sqrt((omega + 1) / (k R tau)) (2 L gap + sigma^2) + k sigma^2 / ((omega + 1)
  gamma^2 R), for R above about k tau (omega + 1) (`rates.condition`). Corollary
  5 is local SGD: gamma = 1, omega = 0.

  >>> spec = {'smoothness': 1.0, 'variance': 1.0, 'gap': 1.0}
  >>> linear_speedup(clients=4, local_steps=1, rounds=64, **spec)
  0.25
  """
  length = clients, local_steps, rounds
  eta = _step('nonconvex', smoothness, omega + 1, *length, server_lr)
  numbers = omega, clients, smoothness, variance, local_steps, rounds, eta
  return rates.nonconvex_bound(Constants(*numbers, server_lr), gap)
