r"""Convergence bounds of sketched adaptive learning, by Chen et al.

Chen, Li and Banerjee, arXiv:2411.06770, section 3. All bound a mean of
:math:`\|\nabla L(x_t)\|^2` over the rounds, with probability 1 - delta.
gradient_bound is G, of every client and of their mean; gap is L(x_0) less the
least loss. Corrected forms alone take gradient_l1, the sum over coordinates of
the largest |gradient| along the run (default d G); printed ones alone nu of
`constants.martingale`. papers/chen/README.md has the corrected proof.
"""

import math

from fl_sketch.utils import checks
import numpy as np

from ...common.conditions import Form, Fraction, NonNegative, Positive
from ...common.statements import statement
from . import constants
from .constants import Constants


@statement('S4-Thm3.2', 'Theorem 3.2', printed='wrong', corrected='holds')
def constant_rate(
  run: Constants,
  *,
  gap: NonNegative,
  gradient_bound: NonNegative,
  delta: Fraction,
  gradient_l1: NonNegative | None = None,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  r"""Bounds the mean ||grad L(x_t)||^2 over T rounds at a constant eta.

  Printed, with J1 of `preconditioner`, M of `martingale`, l of the three counts
  of `distortion`:

  .. math:: \frac1{\kappa \eta J_1 K T} \Bigl[gap + \frac{\kappa \eta^2 L K^2
     G^2 T}\epsilon + M + \frac{\eta^2 \kappa T (1 + l)^2 (8 \kappa I L K^2 + 2
     G) G^2}{(1 - \beta_1)^2 \epsilon^2}\Bigr]

  which ignores the noise at second order; 2 G lacks K^2. The corrected bound is
  vacuous for families without a logarithmic tail in `tails`.

  >>> run = Constants(256, 64, 10**6, 0.1, 1e-4, 0.5, 1, 1.6)
  >>> number = {'gap': 1.0, 'gradient_bound': 1.0, 'delta': 0.1}
  >>> round(constant_rate(run, gradient_l1=1.0, **number), 3)
  0.103
  """
  scale = run.server_lr * run.moved(run.rounds)
  if form == 'printed':
    m = constants.preconditioner(run, gradient_bound, delta=delta, form=form)
    return m / scale * printed_budget(run, gap, gradient_bound, delta, nu)
  m, budget = corrected_budget(run, gap, gradient_bound, delta, gradient_l1)
  return m / scale * budget


@statement('S4-ThmB3', 'Theorem B.3', printed='wrong', corrected='holds')
def decaying_rate(
  run: Constants,
  *,
  gap: NonNegative,
  gradient_bound: NonNegative,
  delta: Fraction,
  gradient_l1: NonNegative | None = None,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  r"""Bounds the mean ||grad L(x_t)||^2, weighted by eta_t of `client_schedule`.

  O(log(T) / sqrt(T)), corrected as `constant_rate` is. The client_lr of the run
  is the first, 1 / (K sqrt(1 + T0)). Printed, with J of `momentum_factor`, j of
  C K d^2 T^2 and l and l' as in `constant_rate`, it is (sqrt(1 + j) eta_1 J K G
  + epsilon) / (kappa times the sum of eta_t) times

  .. math:: gap + \kappa \log T \Bigl[\frac{L G^2}\epsilon + \nu \frac{l G^2 +
     \sigma \log(2 T / \delta)^{1/2}}\epsilon + \kappa (1 + l')^2 \frac{8 I L
     G^2}{(1 - \beta_1)^2 \epsilon^2}\Bigr]

  which has no noise at second order and nothing of what its proof calls the
  l1 norms of preconditioners; for T = 1 it is `gap` alone.

  >>> run = Constants(256, 64, 10**6, 1 / 7**0.5, 1e-3, 10.0, 1, 1.6)
  >>> number = {'gap': 1.0, 'gradient_bound': 1.0, 'delta': 0.1}
  >>> round(decaying_rate(run, gradient_l1=1.0, **number), 3)
  5.579
  """
  rate = constants.client_schedule(run.local_steps, run.b1)
  check_rate(run, rate(0))
  rates = rate(np.arange(run.rounds))
  if form == 'printed':
    total = run.server_lr * float(rates.sum())
    return _printed_decay(run, gap, gradient_bound, delta, nu) / total
  squares = float(np.sum((rates / rates[:1]) ** 2))
  numbers = run, gap, gradient_bound, delta, gradient_l1
  j = constants.momentum_factor(run.b1)
  m, budget = corrected_budget(*numbers, squares=squares, j=j)
  return m / (run.server_lr * run.local_steps * float(rates.sum())) * budget


def _printed_decay(run, gap, g, delta, nu):
  """The right side of Theorem B.3 over the factor of the first round."""
  j = constants.distortion(run, delta, d=2, rounds=2)
  moved = constants.momentum_factor(run.b1) * run.moved(g)
  noise = run.noise * math.sqrt(math.log(2 * run.rounds / delta))
  spread = nu * (constants.distortion(run, delta, rounds=1) * g**2 + noise)
  second = (1 + constants.distortion(run, delta, rounds=2)) * g / (1 - run.b1)
  second = 8 * run.intrinsic_dimension * run.smoothness * second**2
  grown = run.smoothness * g**2 + spread + run.server_lr * second / run.eps
  budget = gap + run.server_lr * math.log(run.rounds) * grown / run.eps
  return (math.sqrt(1 + j) * moved + run.eps) * budget


def corrected_budget(
  run: Constants,
  gap: float,
  g: float,
  delta: float,
  gradient_l1: float | None,
  *,
  squares: float | None = None,
  j: float = 1.0,
) -> tuple[float, float]:
  """(M, B): the sum of kappa eta_t K ||grad L(x_t)||^2 is at most M B.

  `squares` is the sum of (eta_t / eta_0)^2, and j of `momentum_factor`: m_{t-1}
  is at most (j - 1 + b1) / b1 times the bound on the estimates of round t.

  >>> run = Constants(256, 64, 10**6, 0.1, 1e-4, 0.5, 1, 1.6)
  >>> m, budget = corrected_budget(run, 1.0, 1.0, 0.1, gradient_l1=1.0)
  >>> round(m, 3), round(budget, 3)
  (0.796, 1.288)
  """
  kappa, eps, l1 = run.server_lr, run.eps, gradient_l1
  m = constants.preconditioner(run, g, delta=delta / 2)
  largest, past = m - eps, (j - 1 + run.b1) / (1 - run.b1)
  squares = run.rounds if squares is None else squares
  l1 = run.dimension * g if l1 is None else l1
  stale = kappa * l1 * (1 + past) * largest**2 / (eps * m)
  away = run.smoothness * run.moved(run.client_lr * (run.local_steps - 1)) / 2
  drift = kappa * g / eps * away * run.longest(g, delta / 4)
  spread = kappa * constants.martingale(run, g, delta=delta / 2)
  step = 1 + past * largest / m
  second = run.smoothness * run.intrinsic_dimension
  second *= (past * step + step**2 / 2) * (kappa * largest / eps) ** 2
  spread *= math.sqrt(squares / run.rounds)
  return m, gap + stale + spread + (drift + second) * squares


def printed_budget(
  run: Constants, gap: float, g: float, delta: float, nu: float
) -> float:
  """B of Theorem 3.2, whose M is that of `preconditioner`.

  >>> run = Constants(256, 64, 10**6, 0.1, 1e-4, 0.5, 1, 1.6)
  >>> round(printed_budget(run, 1.0, 1.0, 0.1, nu=1.0))
  601687
  """
  kappa, eps, rounds = run.server_lr, run.eps, run.rounds
  drift = kappa * run.moved(g) ** 2 * run.smoothness * rounds / eps
  spread = constants.martingale(run, g, delta=delta, nu=nu, form='printed')
  factor = (1 + constants.distortion(run, delta, rounds=2)) ** 2
  second = 8 * kappa * run.intrinsic_dimension * run.smoothness
  second = second * run.local_steps**2 + 2 * g
  second *= kappa * rounds * (run.client_lr * g / eps / (1 - run.b1)) ** 2
  return gap + drift + kappa * spread + factor * second


def check_rate(run: Constants, rate: float, name: str = 'client_lr') -> None:
  """Raises ValueError unless `rate` is the run's client_lr, or what is named.

  >>> check_rate(Constants(256, 64, 100, 0.1, 1e-4, 0.5, 1, 1.6), 0.1)
  """
  value, rate = getattr(run, name), checks.real(name, rate)
  if not math.isclose(value, rate, rel_tol=1e-6):
    raise ValueError(f'{name}={value} must be {rate}.')
