"""Tail bounds of textbooks as Song et al. print them, in their appendix B.

Song, Wang, Yu and Zhang, arXiv:2210.08371. Each returns a bound of a
probability, which may exceed 1.
"""

import math
from typing import Annotated

from ...common import conditions
from ...common.conditions import Count, Form, Positive
from ...common.statements import statement


@statement(
  'S0-B1', 'Lemma B.1, of Chernoff', printed='wrong', corrected='holds'
)
def chernoff(mean: Positive, x: Positive, *, form: Form = 'corrected') -> float:
  """Bound Pr[Y >= (1 + x) mean] of a sum Y of independent coins.

  exp(-x^2 mean / (2 + x)); printed exp(-x^2 mean / 3), also for x > 1, where it
  is false.

  >>> chernoff(1.0, 10.0, form='printed') < 1e-14 < chernoff(1.0, 10.0)
  True
  """
  return math.exp(-(x**2) * mean / (3 if form == 'printed' else 2 + x))


@statement(
  'S0-B4', 'Lemma B.4, of Khintchine', printed='wrong', corrected='holds'
)
def khintchine(
  t: Positive, *, constant: Positive = 0.5, form: Form = 'corrected'
) -> float:
  """Bound Pr[|sum of z_i sigma_i| >= t |z|] of independent signs sigma_i.

  2 exp(-t^2 / 2); printed exp(-constant t^2), which is below 1 at each t > 0,
  while a single sign exceeds every t < 1.

  >>> khintchine(0.5, form='printed') < 1 < khintchine(0.5)
  True
  """
  if form == 'printed':
    return math.exp(-constant * t**2)
  return 2 * math.exp(-(t**2) / 2)


@statement(
  'S0-B7', 'Lemma B.7, of sub-exponential variables', printed='wrong',
  corrected='holds',
)  # fmt: skip
def sub_exponential(
  t: Positive, sigma: Positive, alpha: Positive, *, form: Form = 'corrected'
) -> float:
  """Bound Pr[|X - mean| >= t] for E exp(s (X - mean)) <= exp(s^2 sigma^2 / 2).

  For |s| < 1 / alpha: 2 exp(-min(t^2 / sigma^2, t / alpha) / 2); printed
  without the 2, and with X in place of X - mean.

  >>> sub_exponential(1.0, 1.0, 1.0) / sub_exponential(1, 1, 1, form='printed')
  2.0
  """
  sides = 1 if form == 'printed' else 2
  return sides * math.exp(-min((t / sigma) ** 2, t / alpha) / 2)


@statement(
  'S0-B8', 'Lemma B.8, of Chernoff for matrices', printed='wrong',
  corrected='holds',
)  # fmt: skip
def matrix_chernoff(
  mean: Positive,
  x: Positive,
  largest: Positive,
  dimension: Count,
  *,
  side: Annotated[str, conditions.choice(('above', 'below'))] = 'above',
  form: Form = 'corrected',
) -> float:
  """Bound Pr[largest eigenvalue of a sum >= (1 + x) mean], or least, below.

  d exp(-x^2 mean / ((2 + x) largest)), and d exp(-x^2 mean / (2 largest)) for
  Pr[least eigenvalue <= (1 - x) mean], x < 1; `largest` bounds the eigenvalues
  of each matrix. Printed have 4 and 1 in place of 2 + x and 2.

  >>> matrix_chernoff(8.0, 0.5, 1.0, 1, side='below') == math.exp(-1)
  True
  """
  if form == 'printed':
    number = 4 if side == 'above' else 1
  else:
    number = 2 + x if side == 'above' else 2
  return dimension * math.exp(-(x**2) * mean / (number * largest))
