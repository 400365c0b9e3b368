"""Gradient leakage: the theorems of Song et al., section 7.

The attacker descends L(x) = |R grad_w F(w, x) - R g|^2; g is the gradient at
the unknown inputs, R = I without sketching. J = d grad_w F / dx f64[d, m] is
the transpose of the pseudo-Hessian, K = J J^T, and F has the constants::

  beta: |grad_w F(w, x) - grad_w F(w, y)| <= beta |x - y|,
  theta1^2 I <= K <= theta2^2 I, so that theta2 <= beta,
  gamma1, gamma2: the least and the largest singular value of R^T,
  tau: |R (u - v)| <= tau |u - v|; gamma2 always does.

A small L says nothing about x: theta1 > 0 needs at most m equations, and
then a surface of inputs fits. `pseudo_hessian.spectrum` measures recovery.

Source: Song, Wang, Yu and Zhang, arXiv:2210.08371, section 7, appendices I-M.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks

from ...common import conditions
from ...common.conditions import Form, Fraction, NonNegative, Positive
from ...common.evaluation import formula
from ...common.statements import statement


class Constants(NamedTuple):
  """L is (a, b, p)-semi-smooth with (theta1, theta2)-non-critical points."""

  a: float
  b: float
  p: float
  theta1: float
  theta2: float


class Rate(NamedTuple):
  """A step size, and the contraction factor of one step."""

  step: float
  factor: float


@statement('S0-I9', 'Lemmas I.8 and I.9', printed='holds')
def semi_smooth(
  alpha: NonNegative, beta: NonNegative, p: conditions.Part
) -> tuple[float, float, float]:
  """(a, b, p) = (alpha, beta / 2, p / 2) of semi-smoothness.

  From an (alpha, beta, p)-semi-Lipschitz gradient (Lemma I.8: alpha = 0): L(y)
  <= L(x) + <grad L(x), y - x> + b |y - x|^2 + a |x - y|^(2-2p) L(x)^p.

  >>> semi_smooth(1.0, 3.0, 0.5)
  (1.0, 1.5, 0.25)
  """
  return alpha, beta / 2, p / 2


@statement('S0-7.6', 'Lemma M.3', printed='wrong', corrected='holds')
def sketched_semi_smooth(
  beta: NonNegative,
  theta2: NonNegative,
  tau: NonNegative,
  gamma2: NonNegative,
  *,
  form: Form = 'corrected',
) -> tuple[float, float, float]:
  """(a, b, p) = (2 tau beta + 2 theta2 gamma2, tau^2 beta^2, 1/2) of L.

  Printed b = tau^2 beta is too small where R = I, J is constant and beta > 1.

  >>> sketched_semi_smooth(3.0, 2.0, tau=1.0, gamma2=1.0)
  (10.0, 9.0, 0.5)
  """
  b = tau**2 * (beta if form == 'printed' else beta**2)
  return 2 * tau * beta + 2 * theta2 * gamma2, b, 0.5


@statement('S0-7.7', 'Lemma M.4', printed='holds')
def sketched_non_critical(
  theta1: NonNegative,
  theta2: NonNegative,
  gamma1: NonNegative,
  gamma2: NonNegative,
) -> tuple[float, float]:
  """(2 theta1 gamma1, 2 theta2 gamma2) of L, as grad L = 2 J^T R^T s.

  gamma2 of an unbiased sketch is about 1 + sqrt(d / b), not 1 as printed.

  >>> sketched_non_critical(1.0, 2.0, gamma1=0.5, gamma2=3.0)
  (1.0, 12.0)
  """
  checks.at_least('theta2', theta2, theta1)
  checks.at_least('gamma2', gamma2, gamma1)
  return 2 * theta1 * gamma1, 2 * theta2 * gamma2


@statement('S0-7.4', 'J.4 and J.5', printed='wrong', corrected='holds')
def constants(
  beta: NonNegative,
  theta1: NonNegative,
  theta2: NonNegative,
  *,
  form: Form = 'corrected',
) -> Constants:
  """The constants of L = |grad_w F - g|^2 from those of F.

  a = 2 (beta + theta2), b = beta^2, p = 1/2; 2 theta1 and 2 theta2. Printed are
  b = beta, theta1 and theta2.

  >>> constants(3.0, 1.0, 2.0)
  Constants(a=10.0, b=9.0, p=0.5, theta1=2.0, theta2=4.0)
  """
  a, b, p = sketched_semi_smooth(beta, theta2, 1.0, 1.0, form=form)
  low, high = sketched_non_critical(theta1, theta2, 1.0, 1.0)
  if form == 'printed':
    low, high = low / 2, high / 2
  return Constants(a, b, p, low, high)


@formula
def margin(c: Constants) -> float:
  """theta1^2 - a theta2^(2 - 2 p): Theorem 7.5 needs it to be positive.

  It never is for the constants of Theorem 7.4, nor for those of Lemmas 7.6 and
  7.7, in either form: a theta2 > theta1^2.

  >>> margin(constants(2.0, 2.0, 2.0)), margin(Constants(0, 4, 0.5, 2, 4))
  (-16.0, 4.0)
  """
  return c.theta1**2 - c.a * c.theta2 ** (2 - 2 * c.p)


@statement('S0-7.5', 'Theorem L.1', printed='wrong', corrected='holds')
@statement('S0-7.8', '7.5 of a sketch', printed='wrong', corrected='holds')
def linear_decrease(
  c: Constants, *, step: Positive | None = None, form: Form = 'corrected'
) -> Rate:
  """L(x - step grad L(x)) <= (1 - step margin(c) / 2) L(x).

  For step <= margin(c) / (2 b theta2^2), the default. Holds for p = 1/2, and
  for p < 1/2 with step <= 1, which the corrected form requires. False for p >
  1/2: on a fine zigzag nothing decreases. The paper's own constants never meet
  the premise; `pl_decrease` is what remains.

  >>> linear_decrease(Constants(a=0, b=4, p=0.5, theta1=2, theta2=4))
  Rate(step=0.03125, factor=0.9375)

  Raises:
    ValueError: the margin is not positive, the step or p too large, or the
      factor negative at the largest step, which no L has.
  """
  checks.at_least('theta2', c.theta2, checks.at_least('theta1', c.theta1, 0))
  checks.at_least('a', c.a, 0)
  p = conditions.at_most_one('p', c.p)
  gain = checks.positive('margin', margin(c))
  largest = gain / (2 * checks.positive('b', c.b) * c.theta2**2)
  if form == 'corrected':
    checks.at_most('p', p, 0.5)
    largest = largest if p == 0.5 else min(largest, 1.0)
  checks.at_most('margin largest step / 2', gain * largest / 2, 1)
  step = _step(step, largest)
  return Rate(step, 1 - step * gain / 2)


@statement('S0-7.5-PL', '7.5, by Polyak', corrected='holds')
def pl_decrease(
  *,
  smoothness: Positive,
  theta1: Positive,
  gamma1: Positive = 1.0,
  step: Positive | None = None,
) -> Rate:
  """L(x - step grad L(x)) <= (1 - 2 step theta1^2 gamma1^2) L(x), corrected.

  For grad L `smoothness`-Lipschitz on the sublevel set and step <= 1 /
  smoothness, the default. The least singular value of (R J)^T may replace
  theta1 gamma1. No L has 2 (theta1 gamma1)^2 > smoothness.

  >>> pl_decrease(smoothness=8.0, theta1=1.0)
  Rate(step=0.125, factor=0.75)
  """
  curvature = 2 * (theta1 * gamma1) ** 2
  checks.at_most('2 (theta1 gamma1)^2', curvature, smoothness)
  step = _step(step, 1 / smoothness)
  return Rate(step, 1 - step * curvature)


@statement('S0-K2', 'Theorem K.2', printed='wrong', corrected='holds')
def quadratic_growth(
  *,
  c: NonNegative,
  d: Positive,
  p: conditions.Part,
  theta1: Positive,
  form: Form = 'corrected',
) -> float:
  """The h of L(x) >= h |x - x*|^2, so that x* is the only minimum.

  h = d for (c, d, p)-semi-strong convexity and theta1 > 0; h = d - c at p = 0,
  as L(x*)^0 = 1. Printed is d at p = 0 too, and p = 1 is excluded instead.

  >>> quadratic_growth(c=5.0, d=2.0, p=0.5, theta1=1.0)
  2.0
  """
  del theta1
  if form == 'printed':
    return checks.positive('growth', d if p < 1 else 0.0)
  return checks.positive('growth', d if p else d - c)


@statement('S0-K3', 'Theorem K.3', printed='wrong', corrected='holds')
def recovery(
  *,
  alpha: NonNegative,
  beta: Positive,
  c: NonNegative,
  d: Positive,
  p: Fraction,
  theta1: Positive,
  step: Positive | None = None,
  form: Form = 'corrected',
) -> Rate:
  """|x+ - x*|^2 <= (1 - xi step / 2) |x - x*|^2 for x+ = x - step grad L(x).

  For step <= xi / (2 zeta), the default, where L has an (alpha, beta, p)-semi-
  Lipschitz gradient, is (c, d, p)-semi-strongly convex, |grad L|^2 >= theta1^2
  L, and::

    zeta = theta1 / (theta1 - alpha^(1/p)) (beta^2 +
      (alpha / theta1^p)^(1 / (1 - p))), so |grad L|^2 <= zeta |x - x*|^2,
    xi = 2 (d - c^(1 / 2p) zeta / theta1^2 - c^(1 / (2 - 2p))).

  Printed is |x+ - x*| <= (xi step / 2) |x - x*|, which its proof does not give.

  >>> recovery(alpha=0, beta=4.0, c=0, d=2.0, p=0.5, theta1=1.0)
  Rate(step=0.125, factor=0.75)

  Raises:
    ValueError: theta1 <= alpha^(1/p), xi <= 0, the step is too large, or d +
      xi / 2 > sqrt(zeta), which no L has.
  """
  lost = alpha ** (1 / p)
  if theta1 <= lost:
    raise ValueError(f'{theta1=} must be > alpha^(1/p)={lost}.')
  zeta = beta**2 + (alpha / theta1**p) ** (1 / (1 - p))
  zeta = checks.real('zeta', zeta * (theta1 / (theta1 - lost)))
  spent = c ** (1 / (2 * p)) * zeta / theta1**2 + c ** (1 / (2 - 2 * p))
  xi = checks.positive('xi', 2 * (d - spent))
  # As |grad L| r >= <grad L, x - x*> >= (d + xi / 2) r^2, where r = |x - x*|.
  checks.at_most('d + xi / 2', d + xi / 2, math.sqrt(zeta))
  step = _step(step, xi / (2 * zeta))
  fall = xi * step / 2
  return Rate(step, fall if form == 'printed' else 1 - fall)


def _step(step: float | None, largest: float) -> float:
  return largest if step is None else checks.at_most('step', step, largest)
