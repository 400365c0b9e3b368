r"""The constants M1 to M8 and G of Chen et al.'s bound on a loss.

Chen, Li and Banerjee, arXiv:2411.06770, section 4 and appendix C. They follow
from the run; `gradients.bounded_gradients` takes G and M8 in its printed form.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks

from ...common import conditions
from ...common.conditions import Form, Fraction, NonNegative, Positive
from ...common.statements import statement
from . import constants
from .constants import Constants


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
