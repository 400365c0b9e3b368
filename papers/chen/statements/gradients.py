r"""Bounds on gradient norms that Chen et al. derive rather than assume.

Chen, Li and Banerjee, arXiv:2411.06770, section 4 and appendix C; losses are
not negative there. The printed Theorem 4.4 takes G and M8 of `loss_bounds` from
the caller. The corrected one needs neither; its proof is in the README.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks

from ...common.conditions import Count, Form, Fraction, NonNegative, Positive
from ...common.statements import statement
from ...das.statements import lemmas as das_lemmas
from . import constants, rates
from .constants import Constants

_HOPELESS = 1e12  # times L(x_0)


@statement('S4-Lem4.1', 'Lemma 4.1', printed='holds')
def squared_gradient(loss: NonNegative, *, smoothness: Positive) -> float:
  """||grad L(x)||^2 <= 2 L L(x), of a smooth loss that is never negative.

  Fact 1 of Das et al., and an equality at x of L ||x||^2 / 2.

  >>> squared_gradient(0.5, smoothness=2.0)
  2.0
  """
  return das_lemmas.gradient_square_bound(loss, smoothness=smoothness)


@statement('S4-Lem4.2', 'Lemma 4.2 = C.1', printed='holds')
def local_gradient(
  loss: NonNegative,
  *,
  smoothness: Positive,
  client_lr: Positive,
  local_steps: Count,
  noise_bound: NonNegative,
  delta: Fraction,
) -> float:
  """Bounds ||grad L^c|| at all K local points, from L^c at their start.

  s + sqrt(s^2 + 4 L loss + Delta^2) with s = Delta sqrt(2 log(2 / delta)). The
  noise of no gradient is longer than Delta, and eta <= 1 / (2 L sqrt(K)). It
  fails with probability K delta; of the clients' mean norm, with C K delta.

  >>> number = {'smoothness': 2.0, 'client_lr': 0.1, 'local_steps': 4}
  >>> local_gradient(0.5, noise_bound=0.0, delta=0.1, **number)
  2.0
  """
  most = 0.5 / (smoothness * math.sqrt(local_steps))
  checks.at_most('client_lr', client_lr, most)
  s = noise_bound * math.sqrt(2 * math.log(2 / delta))
  return s + math.sqrt(s**2 + 4 * smoothness * loss + noise_bound**2)


class Bounded(NamedTuple):
  """Bounds along a whole run, with probability 1 - delta."""

  gradient_squared: float  # G >= ||grad L(x_t)||^2 for all t <= T
  mean: float  # of ||grad L(x_t)||^2 over the rounds


@statement('S4-Thm4.4', 'Theorem 4.4', printed='wrong', corrected='holds')
def bounded_gradients(
  run: Constants,
  *,
  delta: Fraction,
  start_loss: float = 0.0,
  root_trace: NonNegative | None = None,
  gradient_squared: float = 0.0,
  m8: float = 0.0,
  form: Form = 'corrected',
) -> Bounded:
  """G and the mean of Theorem 4.4; corrected, from L(x_0) alone.

  Printed, for kappa = 1 / sqrt(G) and eta = eta0 / sqrt(T), the mean is at most
  G (eta K M8 + eps) / (2 kappa eta0 L^2 sqrt(T)), where the proof leaves L K in
  place of L^2. Corrected, G = 2 L B for the least B that bounds itself, at any
  kappa and eta that have one.

  >>> run = Constants(256, 64, 10**6, 0.001, 1e-3, 0.5, 1, 1.6)
  >>> bound = bounded_gradients(run, delta=0.1, start_loss=1.0, root_trace=5.0)
  >>> round(bound.gradient_squared, 2)
  2.01

  Args:
    run: its smoothness and intrinsic_dimension are those of A.
    delta: the probability of failure.
    start_loss: corrected only: L(x_0).
    root_trace: corrected only: the sum of sqrt(A_ii), at most sqrt(d L I).
    gradient_squared: printed only: G, of `loss_bounds`.
    m8: printed only: M8, of `loss_bounds`.
    form: printed, eta0 is at most eps / (6 sqrt(L) (1 + l)), eps (1 - b1) /
      (4 b1 L (1 + l)) and sqrt(T) / (2 L sqrt(K)), where l is log(C K T d^2 /
      delta)^1.5 / sqrt(b).
  """
  if form == 'printed':
    return _printed(run, gradient_squared, m8, delta)
  loss = checks.positive('start_loss', start_loss)
  trace = run.smoothness * run.intrinsic_dimension
  if root_trace is None:
    root_trace = math.sqrt(run.dimension * trace)
  growth = (1 + run.client_lr * run.smoothness) ** (run.local_steps - 1)
  lag = run.b1 / (1 - run.b1) * run.server_lr / run.eps * math.sqrt(trace / 2)
  while loss < _HOPELESS * start_loss:
    length = math.sqrt(2 * run.smoothness * loss)
    longest = growth * run.longest(length, delta / 4)
    m, budget = rates.corrected_budget(
      run, start_loss, longest, delta, root_trace * math.sqrt(2 * loss)
    )
    implied = (math.sqrt(budget) + lag * (m - run.eps)) ** 2
    if implied <= loss:
      scale = run.server_lr * run.moved(run.rounds)
      return Bounded(2 * run.smoothness * loss, m / scale * budget)
    loss = implied * (1 + 1e-6)
  steps = f'server_lr={run.server_lr} and client_lr={run.client_lr}'
  raise ValueError(f'No loss bounds itself at {steps}.')


def _printed(run, gradient_squared, m8, delta):
  g = checks.positive('gradient_squared', gradient_squared)
  rates.check_rate(run, g**-0.5, 'server_lr')
  twice = constants.distortion(run, delta, d=2, rounds=1)
  root, smoothness = math.sqrt(run.rounds), run.smoothness
  eta0, shrunk = run.client_lr * root, run.eps / (1 + twice)
  checks.at_most('eta0', eta0, shrunk / (6 * math.sqrt(smoothness)))
  if run.b1:
    most = shrunk * (1 - run.b1) / (4 * run.b1 * smoothness)
    checks.at_most('eta0', eta0, most)
  checks.at_most('eta0', eta0, root / (2 * smoothness * run.local_steps**0.5))
  divisor = run.moved(checks.positive('m8', m8)) + run.eps
  mean = g * divisor / (2 * run.server_lr * eta0 * smoothness**2 * root)
  return Bounded(g, mean)
