r"""Bounds on gradient norms that Chen et al. derive rather than assume.

Chen, Li and Banerjee, arXiv:2411.06770, section 4 and appendix C; losses are
not negative there. M1 to M8 and G follow from the run; the printed Theorem 4.4
takes G and M8 from the caller. The corrected one needs neither;
papers/chen/README.md has its proof.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks

from ...common import conditions
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


def _unit_noise(count: float, delta: float) -> float:
  """1 + sqrt(2 ln(2 count / delta)), which multiplies Delta in section 4."""
  return 1 + math.sqrt(2 * math.log(2 * count / delta))


class LossConstants(NamedTuple):
  """M1 to M7 of `loss_constants`."""

  m1: float
  m2: float
  m3: float
  m4: float
  m5: float
  m6: float
  m7: float


@statement('S4-Lem4.3', 'Lemma 4.3', printed='wrong', corrected='order')
def loss_constants(
  run: Constants,
  *,
  start_loss: NonNegative,
  delta: Fraction,
  gradient_squared: NonNegative = 0.0,
  noise_bound: NonNegative = 0.0,
  b2: conditions.Share = 0.99,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> LossConstants:
  """Returns M1 to M7, against the lemma, which says that none depends on eta.

  With l = log(C K T d / delta)^1.5 / sqrt(b), l' that of d^2, D = Delta (1 +
  sqrt(2 ln(2 C K / delta))) and s = sqrt(2 (1 - b2)) (1 + l')^1.5 / eps^2:

  M1 = 2 sqrt(2) nu l K / eps, M3 = 2 L(z_1) + 8 eta b1 / ((1 - b1) eps),
  M4 = 4 s, M2 = 4 nu l K D / eps + 2 nu K Delta / eps,
  M5 = 2 sqrt(2) K^2 L / eps + 8 sqrt(2) s D, M6 = 4 K^2 L D / eps + 8 s D^2,
  M7 = 4 (8 + (1 + b1)^2) I L (1 + l')^2 K^2 / ((1 - b1) eps)^2, l' without T.

  Printed, M2 has 2 sqrt(2) sqrt(G) times its first term, M5 lacks its second,
  M6 has 4 eta^2 kappa s ln(2 C K / delta) there, and M7 lacks L. The corrected
  ones are those of the last lines of the proof, with (x + y)^2 multiplied out.

  >>> run = Constants(2**20, 2**16, 100, 0.1, 0.1, 1.0, 1, 2)
  >>> round(loss_constants(run, start_loss=1.0, delta=0.1).m3, 2)
  9.2
  """
  once = constants.distortion(run, delta, rounds=1)
  last = constants.distortion(run, delta, d=2, rounds=1)
  twice = constants.distortion(run, delta, d=2)
  steps, left = run.local_steps, (1 - run.b1) * run.eps
  count = run.clients * steps
  noise = noise_bound * _unit_noise(count, delta)
  adaptive = math.sqrt(2 * (1 - b2)) * (1 + last) ** 1.5 / run.eps**2
  drift = steps**2 * run.smoothness / run.eps
  sketched = 4 * nu * once * steps * noise / run.eps
  fifth, sixth = 8 * math.sqrt(2) * adaptive * noise, 8 * adaptive * noise**2
  scale = run.smoothness
  if form == 'printed':
    sketched *= 2 * math.sqrt(2 * gradient_squared)
    scale, fifth = 1.0, 0.0
    sixth = 4 * run.client_lr**2 * run.server_lr * adaptive
    sixth *= math.log(2 * count / delta)
  quadratic = 4 * (8 + (1 + run.b1) ** 2) * run.intrinsic_dimension * scale
  return LossConstants(
    m1=2 * math.sqrt(2) * nu * once * steps / run.eps,
    m2=sketched + 2 * nu * steps * noise_bound / run.eps,
    m3=2 * start_loss + 8 * run.client_lr * run.b1 / left,
    m4=4 * adaptive,
    m5=2 * math.sqrt(2) * drift + fifth,
    m6=4 * drift * noise + sixth,
    m7=quadratic * ((1 + twice) * steps / left) ** 2,
  )


@statement('S4-LemC.2', 'Lemma C.2', printed='wrong', corrected='holds')
def momentum_projection(
  run: Constants,
  *,
  gradient_squared: NonNegative,
  noise_bound: NonNegative,
  delta: Fraction,
  form: Form = 'corrected',
) -> float:
  r"""Bounds :math:`|(\hat V_t^{-1/2} m_t)_i|` while L(x_t) <= G / (2 L).

  Printed (1 + log(C K d / delta)^1.5 / sqrt(b)) eta K G / epsilon, of every
  eigenvector, where G bounds a square. Its proof has what the corrected form
  has in place of G, sqrt(2 G) + 2 Delta (1 + sqrt(2 ln(2 C K / delta))), which
  is for coordinate axes, with 1 + tail.

  >>> run = Constants(2**20, 2**16, 100, 0.1, 0.1, 1e-2, 1, 2)
  >>> number = {'gradient_squared': 0.01, 'noise_bound': 0.0, 'delta': 0.1}
  >>> round(momentum_projection(run, form='printed', **number), 3)
  0.125
  """
  scale = run.moved(1.0) / run.eps
  if form == 'printed':
    return (1 + constants.distortion(run, delta)) * scale * gradient_squared
  count = run.clients * run.local_steps * run.rounds
  noise = 2 * noise_bound * _unit_noise(count, delta / 2)
  length = math.sqrt(2 * gradient_squared) + noise
  return run.entry(delta / 2) * scale * length


@statement('S4-M8', 'M8 of Theorem 4.4', printed='order')
def mean_factor(
  run: Constants,
  *,
  gradient_squared: NonNegative,
  noise_bound: NonNegative,
  delta: Fraction,
) -> float:
  """M8, sqrt(1 + l) (sqrt(2 G) + 2 Delta (1 + sqrt(2 ln(2 / delta)))).

  l = log(C K d^2 T^2 / delta)^1.5 / sqrt(b).

  >>> run = Constants(2**20, 2**20, 100, 0.1, 0.1, 1e-2, 1, 2)
  >>> number = {'gradient_squared': 2.0, 'noise_bound': 0.0, 'delta': 0.1}
  >>> round(mean_factor(run, **number), 2)
  2.23
  """
  twice = constants.distortion(run, delta, d=2, rounds=2)
  noise = 2 * noise_bound * _unit_noise(1, delta)
  return math.sqrt(1 + twice) * (math.sqrt(2 * gradient_squared) + noise)


@statement(
  'S4-Thm4.4-G', 'G of Theorem 4.4', printed='wrong', corrected='holds'
)
def sufficient_gradient(
  run: Constants,
  *,
  start_loss: NonNegative,
  delta: Fraction,
  noise_bound: NonNegative = 0.0,
  b2: conditions.Share = 0.99,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  """The G at which the proof's last bound on a loss is at most G / (2 L).

  That bound is A + B sqrt(G) + E G (`last_bound`), eta0 = eta sqrt(T). Printed,
  equation (4), G = max(2 D^2, 512 (eta0^2 K^2 L^2 / eps + l eta0 nu K / eps)^2
  + 16 L A) with D of `loss_constants`: its second summand lacks L, and E must
  be at most 3 / (16 L), which takes b2 >= 0.911 at the largest eta0. Corrected
  by the root of the quadratic. Where E >= 1 / (2 L), there is no such G.

  >>> run = Constants(2**20, 2**20, 100, 1e-3, 0.1, 1.0, 1, 2)
  >>> round(sufficient_gradient(run, start_loss=0.5, delta=0.1), 2)
  4.84
  """
  a, b, e = last_bound(run, start_loss, delta, noise_bound, b2, nu)
  noise = noise_bound * _unit_noise(run.clients * run.local_steps, delta)
  if form == 'printed':
    drift, martingale = _summands(run, delta, nu)
    bracket = drift * run.smoothness + martingale
    return max(2 * noise**2, 512 * bracket**2 + 16 * run.smoothness * a)
  left = 0.5 / run.smoothness - e
  checks.positive('1 / (2 L) - E', left)
  root = (b + math.sqrt(b**2 + 4 * left * a)) / (2 * left)
  return max(2 * noise**2, root**2)


def last_bound(
  run: Constants,
  start_loss: float,
  delta: float,
  noise_bound: float,
  b2: float,
  nu: float,
) -> tuple[float, float, float]:
  """(A, B, E) of A + B sqrt(G) + E G, the last bound on a loss in appendix C.

  >>> run = Constants(2**20, 2**20, 100, 1e-3, 0.1, 1.0, 1, 2)
  >>> last_bound(run, 0.5, 0.1, 0.0, 0.99, 1.0)[0] > 2 * 0.5
  True
  """
  eta0 = run.client_lr * math.sqrt(run.rounds)
  last = 1 + constants.distortion(run, delta, d=2, rounds=1)
  left = (1 - run.b1) * run.eps
  quadratic = (8 + (1 + run.b1) ** 2) * (last * eta0 * run.local_steps) ** 2
  quadratic *= 4 * run.smoothness * run.intrinsic_dimension / left**2
  noise = 2 * eta0 * nu * run.local_steps * noise_bound / run.eps
  start = 2 * start_loss + 8 * run.client_lr * run.b1 / left
  adaptive = eta0**2 * math.sqrt(2 * (1 - b2)) * last**1.5 / run.eps**2
  drift, martingale = _summands(run, delta, nu)
  linear = 4 * math.sqrt(2) * (drift + martingale)
  return start + noise + quadratic, linear, 16 * adaptive


def _summands(run, delta, nu):
  """eta0^2 K^2 L / eps and l eta0 nu K / eps."""
  moved = run.moved(math.sqrt(run.rounds))
  once = constants.distortion(run, delta, rounds=1)
  return moved**2 * run.smoothness / run.eps, once * nu * moved / run.eps


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
    gradient_squared: printed only: G, of `sufficient_gradient`.
    m8: printed only: M8, of `mean_factor`.
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
