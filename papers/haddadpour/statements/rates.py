"""FedSKETCH: the convergence bounds of Haddadpour et al.

Haddadpour, Karimi, Li and Li, arXiv:2008.04975, appendices: Algorithm 5 on
losses that are alike, L-smooth, their stochastic gradients of variance sigma^2.
Averages of k independently sketched and decoded updates have omega / k, which
the paper prints; its algorithms average tables with shared `hashes`: omega.
"""

import math

from ...common.conditions import Count, Form, NonNegative, Positive
from ...common.evaluation import formula
from ...common.statements import statement
from . import lemmas
from .lemmas import Constants


@statement('S2-Eq16', 'equation (16)', printed='wrong', corrected='holds')
def condition(run: Constants, *, form: Form = 'corrected') -> float:
  """Return tau^2 L^2 eta^2 + b eta gamma L tau, which must be 1 at most.

  >>> condition(Constants(8.0, 4, 1.0, 1.0, 2, 1, 0.05, 1.0))
  0.91
  """
  z = run.local_steps * run.smoothness * run.client_lr
  return z**2 + lemmas.spread_of(run, form=form) * z * run.server_lr


@statement(
  'S2-Rem7', 'Remark 7 and equation (23)', printed='wrong', corrected='holds'
)
def largest_client_lr(run: Constants, *, form: Form = 'corrected') -> float:
  """Return (sqrt(b^2 gamma^2 + 4) - b gamma) / (2 L tau): `condition` is 1.

  >>> run = Constants(0.5, 1, 1.0, 1.0, 2, 1, 0.1, 1.0)  # client_lr is not read
  >>> largest_client_lr(run)
  0.25
  """
  scaled = lemmas.spread_of(run, form=form) * run.server_lr
  root = 4 / (math.sqrt(scaled**2 + 4) + scaled)
  return root / (2 * run.smoothness * run.local_steps)


@statement(
  'S2-Eq24', 'equations (24) and (25)', printed='wrong', corrected='holds'
)
def least_rounds(run: Constants, *, form: Form = 'corrected') -> float:
  """Return the least R for eta = sqrt(k / (R tau (omega + 1))) / (L gamma).

  tau k / ((omega + 1) gamma^2 z^2), z = L tau `largest_client_lr`: `condition`
  is 1. gamma z is at most 1 / b, so that R is b^2 tau k / (omega + 1) or more,
  about b^2 / eps for the tau of Theorem 2. (24) has 2 z for z, and (25) puts an
  upper bound of its square, 5, in its place: about 1 / eps.

  >>> run = Constants(8.0, 4, 1.0, 1.0, 45, 1, 0.1, 4.0)
  >>> round(least_rounds(run)), least_rounds(run, form='printed')
  (1622, 4.0)
  """
  tau, k = run.local_steps, run.clients
  square = 5.0
  if form == 'corrected':
    z = run.smoothness * tau * largest_client_lr(run)
    square = (run.server_lr * z) ** 2
  return tau * k / ((run.omega + 1) * square)


def _meets(run, form):
  value = condition(run, form=form)
  if value > 1 + 1e-9:
    raise ValueError(f'condition={value:.4g} must be <= 1.')
  return run.client_lr * run.server_lr


@statement('S2-Thm5', 'Theorem 5', printed='wrong', corrected='order')
def nonconvex_bound(
  run: Constants, gap: NonNegative, *, form: Form = 'corrected'
) -> float:
  """Return a bound on E of the mean over the rounds of |grad f(x)|^2.

  2 gap / (eta gamma tau R) + L eta gamma (omega + 1) sigma^2 / k
  + L^2 eta^2 tau sigma^2, if `condition` <= 1, the only place of
  form and hashes.
  gap is f(x_0) - f*. Where `second_moment` is not proven, this is measured; it
  is proven with (omega + 1) / k and, in the condition, b twice as large.

  >>> nonconvex_bound(Constants(0.5, 1, 1.0, 1.0, 2, 100, 0.25, 1.0), gap=1.0)
  0.54
  """
  step = _meets(run, form)
  first = 2 * gap / (step * run.local_steps * run.rounds)
  return first + 2 * _noise(run)


def _noise(run):
  """Returns the term of |grad f|^2 / 2 from gradient noise."""
  step = run.client_lr * run.server_lr * run.smoothness
  sketched = step * (run.omega + 1) / run.clients
  local = (run.smoothness * run.client_lr) ** 2 * run.local_steps
  return (sketched + local) * run.variance / 2


@statement('S2-Thm6', 'Theorem 6', printed='wrong', corrected='order')
def pl_bound(
  run: Constants,
  gap: NonNegative,
  pl_constant: Positive,
  *,
  form: Form = 'corrected',
) -> float:
  """Return a bound on E f(x_R) - f*, if |grad f|^2 >= 2 mu (f - f*).

  (1 - eta gamma mu tau)^R gap + (L^2 tau eta^2 + (omega + 1) gamma eta L / k)
  sigma^2 / (2 mu), if `condition` <= 1; proven as `nonconvex_bound` is.

  >>> run = Constants(0.5, 1, 1.0, 1.0, 2, 100, 0.25, 1.0)
  >>> round(pl_bound(run, gap=1.0, pl_constant=1.0), 6)
  0.25
  """
  step, mu = _meets(run, form), pl_constant
  if mu > run.smoothness * (1 + 1e-9):
    raise ValueError(f'{pl_constant=} must be <= {run.smoothness=}.')
  rate = 1 - step * mu * run.local_steps
  return rate**run.rounds * gap + _noise(run) / mu


@statement('S2-Thm7', 'Theorem 7', printed='wrong', corrected='holds')
def convex_bound(
  run: Constants,
  gap: NonNegative,
  norm: NonNegative,
  *,
  form: Form = 'corrected',
) -> float:
  """Return a bound on E f(x_R) - f*, of a run on f + phi |x|^2 / 2.

  `pl_bound` with mu = phi = 1 / sqrt(k tau), plus phi |x*|^2 / 2 (the paper's m
  is k). L and gap are those of the regularised loss.

  >>> run = Constants(0.5, 1, 1.0, 0.0, 4, 1000, 0.125, 1.0)
  >>> convex_bound(run, gap=1.0, norm=2.0)
  1.0
  """
  phi = regularizer(run.clients, run.local_steps)
  return pl_bound(run, gap, phi, form=form) + phi * norm**2 / 2


@formula
def regularizer(clients: Count, local_steps: Count) -> float:
  """Return phi = 1 / sqrt(k tau).

  >>> regularizer(4, 25)
  0.1
  """
  return 1 / math.sqrt(clients * local_steps)
