"""FedSKETCH: the compression constants of PRIVIX and HEAPRIX.

Haddadpour, Karimi, Li and Li, arXiv:2008.04975, section 2. An unbiased C is in
U(Delta) if E|C(x)|^2 <= Delta |x|^2, of variance omega = Delta - 1; any C is in
C(Delta) if E|x - C(x)|^2 <= (1 - 1 / Delta) |x|^2. Their alpha in the latter is
1 here: of an unbiased C, no other helps.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks
import numpy as np
import numpy.typing as npt
from scipy import stats

from ...common import conditions, privacy_bounds
from ...common.conditions import AtLeastOne, Count, Form, Positive
from ...common.statements import statement

privacy = statement(
  'S2-Thm1', 'Theorem 1 (Definition 2, Assumption 1)', printed='wrong'
)(privacy_bounds.count_sketch_heuristic_epsilon)


@statement('S2-Asm7', 'Assumption 7', printed='wrong', corrected='holds')
def decoding_gap(
  together: npt.ArrayLike, apart: npt.ArrayLike, *, form: Form = 'corrected'
) -> float:
  """Return |D(mean_j S_j) - mean_j D(S_j)|^2; f[d] and D(S_j) f[clients, d].

  Printed G_q = 0, which holds for decoding by the mean over the rows. With the
  median the variates c_j of FedSKETCHGATE do not add up to 0, and it stops
  where the gradient does not vanish. The paper bounds the mean of
  |mean_j D(S_j)|^2 - |D(mean_j S_j)|^2, which may have either sign.

  >>> decoding_gap([1.0, 0.0], [[1.0, 1.0], [1.0, 1.0]])
  1.0
  """
  if form == 'printed':
    return 0.0
  away = np.asarray(together, float) - np.asarray(apart, float).mean(0)
  return float(away @ away)


@statement('S2-Def1', 'Definition 1', printed='holds')
def unbiased_constant(
  x: npt.ArrayLike, draws: npt.ArrayLike
) -> tuple[float, float]:
  """Return mean |C(x)|^2 / |x|^2 and its standard error: an estimate of Delta.

  From x [d] and draws of C(x), [count, d].

  >>> unbiased_constant([1.0, 0.0], [[1.0, 1.0], [1.0, -1.0]])
  (2.0, 0.0)
  """
  return _ratio(np.asarray(draws, float), x)


@statement('S2-Def3', 'Definition 3', printed='holds')
def contraction_error(
  x: npt.ArrayLike, draws: npt.ArrayLike
) -> tuple[float, float]:
  """Return mean |x - C(x)|^2 / |x|^2 and its standard error: 1 - 1 / Delta.

  >>> contraction_error([1.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
  (0.5, 0.0)
  """
  return _ratio(np.asarray(x, float)[None] - np.asarray(draws, float), x)


def _ratio(vectors, x):
  squares = (vectors**2).sum(1) / np.sum(np.square(x))
  return float(squares.mean()), float(squares.std() / math.sqrt(len(squares)))


@statement(
  'S2-Prop1', 'Property 1 and Remark 2', printed='loose', corrected='holds'
)
def privix_variance(
  dimension: Count, cols: Count, *, form: Form = 'corrected'
) -> float:
  """Return omega of a count sketch of any number of rows, read by PRIVIX.

  Printed mu^2 d with cols = e / mu^2. Corrected (d - 1) / cols, exact for one
  row and an upper bound for more; t rows have about 1.2 / t of it. Remark 2
  (Delta goes to 2 as cols goes to d) needs cols = 1 / mu^2.

  >>> privix_variance(101, 25)
  4.0
  >>> round(privix_variance(101, 25, form='printed'), 2)
  10.98
  """
  if form == 'printed':
    return dimension * (math.e / cols)
  return (dimension - 1) / cols


class Contraction(NamedTuple):
  """A contraction: E|x - scale C(x)|^2 <= error |x|^2, error = 1 - 1 / Delta.

  With exact values from the clients, by a second uplink, or from the sketch.
  """

  scale: float
  error: float
  exact: bool = False


@statement('S2-Lem1', 'Lemma 1', printed='wrong', corrected='holds')
def scaled(delta: AtLeastOne, *, form: Form = 'corrected') -> Contraction:
  """Return how C of U(Delta) is in C(Delta): scaled by 1 / Delta.

  The paper does not scale, and the error is then Delta - 1 >= 1 - 1 / Delta.

  >>> scaled(4.0)
  Contraction(scale=0.25, error=0.75, exact=False)
  """
  inverse = 1 / delta
  return Contraction(1.0 if form == 'printed' else inverse, 1 - inverse)


@statement('S2-Lem2', 'Lemma 2', printed='wrong', corrected='holds')
def heavymix(
  dimension: Count,
  k: Count,
  *,
  rows: Count,
  cols: Count,
  form: Form = 'corrected',
) -> Contraction:
  r"""Return the error of HEAVYMIX of k coordinates: 1 - k / d of |x|^2.

  Printed for Theta(k log(d / delta)) numbers whose values are read from the
  sketch; those expand, and a small table takes collisions for heavy. With exact
  values the error is at most

  .. math:: 1 - (1 - \delta) k / d, \quad
     \delta = d\, T(1 / (m a^2)) + T(8 / m),

  where T(p) is the chance of half of the rows or more at p each, m = cols and
  a = 1 / sqrt(2 k) - 1 / sqrt(d). A single row promises no more than any
  support: an error of 1.

  >>> round(heavymix(64, 4, rows=9, cols=512).error, 4)
  0.9375
  >>> heavymix(64, 4, rows=1, cols=4)
  Contraction(scale=1.0, error=1.0, exact=True)
  """
  if k > dimension:
    raise ValueError(f'{k=} must be <= {dimension=}.')
  chance = 1.0
  if form == 'corrected' and k < dimension:
    chance = _chance(dimension, k, rows, cols)
  return Contraction(1.0, 1 - chance * k / dimension, form == 'corrected')


def _chance(d, k, rows, cols):
  """Lower bound on the probability that a coordinate taken as heavy is so."""
  if d <= 2 * k:
    return 0.0
  half = math.ceil(rows / 2) - 1
  tail = lambda p: float(stats.binom.sf(half, rows, min(1.0, p)))
  margin = 1 / math.sqrt(2 * k) - 1 / math.sqrt(d)
  return max(0.0, 1 - d * tail(1 / (cols * margin**2)) - tail(8 / cols))


@statement(
  'S2-Lem3', 'Lemma 3 and Remark 3', printed='wrong', corrected='holds'
)
def induced(
  delta_1: Positive, delta_2: AtLeastOne, *, form: Form = 'corrected'
) -> float:
  """Return Delta_2 + (1 - Delta_2) / Delta_1, of C_1(x) + C_2(x - C_1(x)).

  For C_1 in C(Delta_1), C_2 in U(Delta_2) independent of it. Remark 3 prints
  Delta_1 <= 1, where the result would be below 1.

  >>> induced(4.0, 5.0)
  4.0
  """
  if form == 'corrected':
    checks.at_least('delta_1', delta_1, 1)
  elif delta_1 > 1:
    raise ValueError(f'{delta_1=} must be <= 1.')
  return delta_2 + (1 - delta_2) / delta_1


@statement(
  'S2-Cor1', 'Corollary 1 and Remark 4', printed='wrong', corrected='holds'
)
def heaprix_variance(
  dimension: Count,
  cols: Count,
  *,
  error: conditions.Part = 1.0,
  form: Form = 'corrected',
) -> float:
  """Return omega of HEAPRIX: exact values, then fresh hashes for the rest.

  error (d - 1) / cols by Lemma 3, exact for one row; error is of `heavymix`, at
  most 1. Printed mu^2 d - 1 with 1 / mu^2 = cols = k, by Lemma 2 and with equal
  hashes, which make HEAPRIX biased.

  >>> heaprix_variance(101, 25, error=0.5)
  2.0
  >>> heaprix_variance(100, 25, form='printed')
  3.0
  """
  if form == 'printed':
    return max(0.0, dimension * (1 / cols) - 1)
  return error * privix_variance(dimension, cols)
