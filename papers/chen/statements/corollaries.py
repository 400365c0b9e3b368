"""Corollaries of Chen et al., and their comparison of methods.

Chen, Li and Banerjee, arXiv:2411.06770, section 3, remarks and Table 1.
"""

import math

from fl_sketch.utils import checks, markdown

from ...common import conditions, tails
from ...common.conditions import Count, Form, Fraction, NonNegative, Positive
from ...common.evaluation import formula
from ...common.statements import statement
from . import constants, rates
from .constants import Constants


@statement('S4-Cor1', 'Corollary 1', printed='wrong', corrected='holds')
def asymptotic(
  run: Constants,
  *,
  gap: NonNegative,
  gradient_bound: NonNegative,
  delta: Fraction,
  gradient_l1: NonNegative | None = None,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  r"""O(1 / sqrt(T)): `constant_rate` at eta = 1 / (K sqrt(T)), M <= 2 epsilon.

  Printed, of T >= (G / epsilon)^2 and with J2 of `distortion`:

  .. math:: \frac{4 (1 + J_2)^2 (4 \kappa I L + G) G^2}{\sqrt T (1 - \beta_1)^2
     \epsilon} + \frac{2 gap \epsilon}{\kappa \sqrt T} + \frac{2 L G^2}{\epsilon
     \sqrt T} + \frac{2 \nu}{\sqrt T} (J_2 G^2 + \sigma \log(2 T /
     \delta)^{1/2})

  Theorem 3.2 gives 2 L G^2 / sqrt(T) there, and G / K^2 beside 4 kappa I L; and
  M <= 2 epsilon takes T >= ((1 + tail) (G + noise) / epsilon)^2.

  >>> run = Constants(256, 64, 10**8, 1e-4, 0.01, 1e-2, 1, 1.6)
  >>> number = {'gap': 1.0, 'gradient_bound': 1.0, 'delta': 0.1}
  >>> round(asymptotic(run, gradient_l1=1.0, **number), 3)
  0.041
  """
  run = _paced(run)
  root = math.sqrt(run.rounds)
  if form == 'printed':
    checks.at_least('rounds', run.rounds, (gradient_bound / run.eps) ** 2)
    j2 = constants.distortion(run, delta, rounds=2)
    terms = _printed_terms(run, gap, gradient_bound, delta, nu, j2)
    return 2 * sum(terms) / root
  m, budget = rates.corrected_budget(
    run, gap, gradient_bound, delta, gradient_l1
  )
  checks.at_least('rounds', run.rounds, run.rounds * (m / run.eps - 1) ** 2)
  return 2 * run.eps / (run.server_lr * root) * budget


def _printed_terms(run, gap, g, delta, nu, j2):
  """The terms that both corollaries print, over 2 / sqrt(T) and J3 / T."""
  noise = run.noise * math.sqrt(math.log(2 * run.rounds / delta))
  curved = 4 * run.server_lr * run.intrinsic_dimension * run.smoothness + g
  return (
    gap * run.eps / run.server_lr,
    run.smoothness * g**2 / run.eps,
    nu * (j2 * g**2 + noise),
    2 * (1 + j2) ** 2 * curved * g**2 / ((1 - run.b1) ** 2 * run.eps),
  )


@statement('S4-Cor2', 'Corollary 2', printed='wrong', corrected='holds')
def near_start(
  run: Constants,
  *,
  j3: Positive,
  gap: NonNegative,
  gradient_bound: NonNegative,
  delta: Fraction,
  gradient_l1: NonNegative | None = None,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  r"""O(1 / T): `constant_rate` at eta = 1 / (K sqrt(T)), M <= J3 / sqrt(T).

  For b >= `least_size` and T <= ((J3 - sqrt(2) G) / epsilon)^2; printed without
  the square, which is more if J3 - sqrt(2) G < 1, and

  .. math:: \frac{J_3}T \Bigl[\frac{gap \epsilon}\kappa + \frac{L G^2}\epsilon +
     \nu (G^2 + \sigma \log(2 T / \delta)^{1/2}) + \frac{8 (4 \kappa I L + G)
     G^2}{(1 - \beta_1)^2 \epsilon}\Bigr]

  whose terms lack 1 / epsilon, except the second. With it the last alone is
  below G^2 only for T > 8 G J3 / ((1 - b1) epsilon)^2 > 11 (G / epsilon)^2, or
  2.8 (G / epsilon)^2 if the sketch loses nothing: in the regime of Corollary 1.
  Corrected, for a tail of at most 1 and 2 (G + noise) in place of sqrt(2) G.

  >>> run = Constants(10**6, 10**5, 10**4, 0.01, 1e-3, 1e-3, 1, 1.6)
  >>> number = {'gap': 0.1, 'gradient_bound': 0.1, 'delta': 0.1}
  >>> round(near_start(run, j3=0.5, gradient_l1=0.1, **number), 3)
  0.061
  """
  run = _paced(run)
  if form == 'printed':
    checks.at_least('size', run.size, least_size(run, delta))
    length = math.sqrt(2) * gradient_bound
    terms = _printed_terms(run, gap, gradient_bound, delta, nu, 1.0)
    budget = run.server_lr * sum(terms)
  else:
    entry = run.entry(delta / 4)
    if entry > 2:
      raise ValueError(f'The tail of {entry - 1} must be <= 1 at {run.size=}.')
    length = 2 * run.longest(gradient_bound, delta / 4)
    _, budget = rates.corrected_budget(
      run, gap, gradient_bound, delta, gradient_l1
    )
  most = _largest_rounds(j3, length, run.eps, form)
  if run.rounds > most:
    raise ValueError(f'rounds={run.rounds} must be <= {most}.')
  return j3 / (run.server_lr * run.rounds) * budget


@formula
def least_size(run: Constants, delta: Fraction) -> int:
  """The b of Corollary 2, log(C K d^2 T^2 / delta)^3; not that of the run.

  >>> least_size(Constants(42_000_000, 1, 100, 1, 1, 1, 1, 1, clients=5), 0.01)
  129028
  """
  one = run._replace(size=1)
  return math.ceil(constants.distortion(one, delta, d=2, rounds=2) ** 2)


def _largest_rounds(j3, length, eps, form):
  """The T at which epsilon + length / sqrt(T) <= J3 / sqrt(T)."""
  if j3 <= length:
    raise ValueError(f'{j3=} must be > {length}.')
  left = (j3 - length) / eps
  return left / eps if form == 'printed' else left**2


def _paced(run):
  """Returns the run; ValueError unless its client_lr is 1 / (K sqrt(T))."""
  rates.check_rate(run, 1 / (run.local_steps * math.sqrt(run.rounds)))
  return run


@statement('S4-Rem3.4', 'Remark 3.4', corrected='holds')
def curvature(
  *,
  smoothness: Positive,
  intrinsic_dimension: conditions.AtLeastOne,
  size: Count,
  a: NonNegative = 2.0,
) -> float:
  r"""The most that :math:`E (R^T R g)^T A R^T R g` is, for a unit g.

  L (1 + a I / b), with the operator's coordinate-wise constant a.

  >>> curvature(smoothness=2.0, intrinsic_dimension=4.0, size=8)
  4.0
  """
  return smoothness * (1 + a * intrinsic_dimension / size)


@statement('S4-Tab1', 'Table 1', printed='order')
def comparison(
  dimension: Count, size: Count, *, rounds: Count, clients: Count
) -> str:
  """Table 1 in Markdown, with its numbers: bits of a client a round, rates.

  Constants and logarithms are 1, a number has 32 bits, MARINA's omega is d /
  b - 1. The rate of FetchSGD supposes heavy hitters (T^-1/3 else), that of SAFL
  an intrinsic dimension of O(1). CD-Adam is that of arXiv:2111.00705.

  >>> print(comparison(10**6, 10**4, rounds=100, clients=5).splitlines()[-1])
  | SAFL | ~O(1) = 3.2e+05 | 1/sqrt(T) = 0.1 | 1/sqrt(T) = 0.1 |
  """
  d, b, t, c = dimension, size, rounds, clients
  omega = tails.coordinate_wise('uniform_sampling', d, b) / b
  marina = 1 / (1 + math.sqrt(omega * (d - b) / (b * c)))
  floats, root = ('O(1)', 32 * b), ('1/sqrt(T)', t**-0.5)
  like_sgd = ('~O(1)', 32 * b), root, root
  rows = {
    'FetchSGD': like_sgd,
    'CocktailSGD': (
      floats,
      ('1/(sqrt(T)+T^(1/3)d^2+d^3)', 1 / (t**0.5 + t ** (1 / 3) * d**2 + d**3)),
      ('1/sqrt(T)+d^2/T^(2/3)', t**-0.5 + d**2 / t ** (2 / 3)),
    ),
    'CD-Adam': (
      floats, ('1/sqrt(d)', d**-0.5), ('sqrt(d/T)', math.sqrt(d / t)),
    ),
    '1-bit Adam': (('O(d)', d), root, root),
    'MARINA': (
      floats, ('1/(1+sqrt(w(d-b)/(bC)))', marina),
      ('sqrt(w/C (d/b-1))/T', math.sqrt(omega / c * (d / b - 1)) / t),
    ),
    'SAFL': like_sgd,
  }  # fmt: skip
  head = ['method', 'bits', 'learning rate', 'rate']
  text = lambda cells: (f'{symbol} = {number:.3g}' for symbol, number in cells)
  lines = ([name, *text(cells)] for name, cells in rows.items())
  return markdown.table(head, lines).removesuffix('\n')
