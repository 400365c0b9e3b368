"""Tail bounds on inner products under a random operator, by family.

Of unit vectors g and h, n = `dimension`, b = `size`. The printed bounds are
those of Song et al., arXiv:2210.08371, appendix D, Property 3 of Chen et al.,
arXiv:2411.06770. The corrected ones have all constants and hold for operators
whose entries are as independent as their definitions say.
"""

import math
from typing import Annotated

from fl_sketch.utils import checks

from . import conditions
from .conditions import Count, Form, Fraction, NonNegative
from .statements import statement

# Those whose columns are not all orthogonal, of which `coherence` speaks.
OVERLAPPING = ('ams', 'count_sketch', 'gaussian', 'sparse_embedding', 'srht')
FAMILIES = (*OVERLAPPING, 'uniform_sampling')
Family = Annotated[str, conditions.choice(FAMILIES)]


@statement(
  'S0-LemD12..17', 'Lemmas D.12 to D.16, Remark D.17', printed='holds',
  corrected='holds',
)  # fmt: skip
def coordinate_wise(
  family: Family, dimension: Count, size: Count, *, form: Form = 'corrected'
) -> float:
  """Returns a in Var <R^T R g, h> <= a / b: 2; n - b for uniform sampling.

  Printed 3 for Gaussian and Count Sketch, n for uniform sampling, which attains
  n - b for a spike (Remark D.17).

  >>> coordinate_wise('srht', 64, 16)
  2.0
  """
  checks.at_most('size', size, dimension)
  printed = form == 'printed'
  if family == 'uniform_sampling':
    return float(dimension - (0 if printed else size))
  return 3.0 if printed and family in ('count_sketch', 'gaussian') else 2.0


@statement('S0-LemD26', 'Lemma D.26', printed='order', corrected='holds')
def chebyshev(
  size: Count,
  delta: Fraction,
  *,
  a: NonNegative = 2.0,
  form: Form = 'corrected',
) -> float:
  """Bounds the error by sqrt(a / (b delta)) with probability 1 - delta.

  By Chebyshev's inequality, a being the coordinate-wise constant; printed
  without a, for the Count Sketch, where a = 2 is the least.

  >>> chebyshev(32, 0.25)
  0.5
  """
  return math.sqrt((1.0 if form == 'printed' else a) / (size * delta))


@statement('S4-LemA1,A2', 'Lemmas A.1, A.2', printed='order', corrected='loose')
@statement('S4-LemA3', 'Lemma A.3', printed='order', corrected='holds')
@statement(
  'S0-LemD23,24', 'Lemmas D.23, D.24', printed='wrong', corrected='loose'
)
@statement('S0-LemD25', 'Lemma D.25', printed='wrong', corrected='holds')
@statement('S0-LemD27', 'Lemma D.27', printed='wrong', corrected='loose')
@statement('S0-LemD28', 'Lemma D.28', printed='holds', corrected='holds')
def tail(
  family: Family,
  dimension: Count,
  size: Count,
  delta: Fraction,
  *,
  sparsity: Count = 1,
  form: Form = 'corrected',
) -> float:
  r"""Bounds :math:`|g^T R^T R h - g^T h|` with probability 1 - delta.

  Printed, with probability 1 - Theta(delta): log(n / delta)^1.5 / sqrt(b) for
  SRHT, AMS and Gaussian, log(1 / delta) for the Count Sketch of two or more
  buckets (one bucket fails with probability near sqrt(delta)), log(n /
  delta)^1.5 / sqrt(s) for sparse embeddings of s entries a column, and always
  1 + n / b for uniform sampling. Signs that are 4-wise independent, which is
  all that AMS, Count Sketch and the second sparse embedding ask for, need not
  have the first three: one of 2 n^2 sign vectors may be constant. Corrected:
    gaussian: 2 sqrt(u / b) + 2 u / b with u = log(2 / delta), by Lemma 1 of
      Laurent and Massart (Ann. Statist. 2000).
    srht: 2 log(8 n / delta) sqrt(2 log(4 / delta) / b), by Hoeffding's
      inequality for H D g, H D h and the rows, n padded to a power of two; or,
      if less, `chebyshev` or the bound of uniform sampling.
    uniform_sampling: max(n / b - 1, 1), in every draw.
    any other: `chebyshev`, for which 4-wise independent signs suffice.

  >>> round(tail('gaussian', 4096, 1024, 1e-6), 3)
  0.266
  """
  n, b = dimension, size
  checks.at_most('size', b, n)
  if form == 'printed':
    return _printed_tail(family, n, b, delta, sparsity)
  if family == 'gaussian':
    u = math.log(2 / delta)
    return 2 * math.sqrt(u / b) + 2 * u / b
  if family == 'uniform_sampling':
    return max(n / b - 1, 1.0)
  if family != 'srht':
    return chebyshev(b, delta)
  n = _padded(n)
  entry = 2 * math.log(8 * n / delta)
  rows = entry * math.sqrt(2 * math.log(4 / delta) / b)
  return min(rows, chebyshev(b, delta), max(n / b - 1, 1.0))


def _printed_tail(family, n, b, delta, sparsity):
  if family == 'count_sketch':
    checks.at_least('size', b, 2)
    return math.log(1 / delta)
  if family == 'uniform_sampling':
    return 1 + n / b
  rows = sparsity if family == 'sparse_embedding' else b
  return math.log(n / delta) ** 1.5 / math.sqrt(rows)


@statement(
  'S0-LemD18..22', 'Lemmas D.18-D.22', printed='wrong', corrected='holds'
)
@statement(
  'S0-LemD18..22-count', 'the same for the Count Sketch', printed='holds',
  corrected='holds',
)  # fmt: skip
def coherence(
  family: Annotated[str, conditions.choice(OVERLAPPING)],
  dimension: Count,
  size: Count,
  delta: Fraction,
  *,
  sparsity: Count = 1,
  form: Form = 'corrected',
) -> float:
  r"""Bounds all |<R_i, R_j>| of two columns with probability 1 - delta.

  Printed sqrt(log(n / delta) / b) for Gaussian, SRHT and AMS, c sqrt(log(n /
  delta) / s) for sparse embeddings, where c is not named and 1 here (3 would
  do), and 1 for the Count Sketch. The first bounds a single pair: the largest
  of n^2 / 2 is near sqrt(4 log(n) / b).
  Corrected, by a union over all pairs with u = log(n^2 / delta):
    ams: sqrt(2 u / b), by Hoeffding's inequality.
    srht: sqrt(2 log(2 n / delta) / b), as a product depends on the exclusive or
      of i and j alone; n is padded.
    gaussian: sqrt(2 u / b) + u / b, as a product of normals is sub-gamma.
    sparse_embedding: u / (3 s) + sqrt((u / (3 s))^2 + 2 u / b), by Bernstein's
      inequality; at most 1. The Count Sketch has 1.

  >>> round(coherence('srht', 4096, 1024, 0.01), 3)
  0.163
  """
  n, b, s = dimension, size, sparsity
  checks.at_most('size', b, n)
  if family == 'count_sketch':
    return 1.0
  if form == 'printed':
    rows = s if family == 'sparse_embedding' else b
    return math.sqrt(math.log(n / delta) / rows)
  if family == 'srht':
    return math.sqrt(2 * math.log(2 * _padded(n) / delta) / b)
  u = math.log(n**2 / delta)
  if family == 'sparse_embedding':
    step = u / (3 * s)
    return min(step + math.sqrt(step**2 + 2 * u / b), 1.0)
  return math.sqrt(2 * u / b) + (u / b if family == 'gaussian' else 0.0)


@statement('S0-B6', 'Lemma B.6, of Laurent and Massart', printed='holds')
def chi_square_interval(degrees: Count, delta: Fraction) -> tuple[float, float]:
  """Returns an interval that holds a chi square with probability 1 - delta.

  Above k - 2 sqrt(k u) and below k + 2 sqrt(k u) + 2 u, for u = log(2 / delta).
  The Gaussian sketch of a unit vector has b ||R g||^2 of b degrees.

  >>> low, high = chi_square_interval(64, 0.01)
  >>> round(low, 1), round(high, 1)
  (27.2, 111.4)
  """
  u = math.log(2 / delta)
  spread = 2 * math.sqrt(degrees * u)
  return degrees - spread, degrees + spread + 2 * u


@statement('S4-Prop3', 'Property 3', printed='wrong', corrected='loose')
def bounded_products(
  family: Family,
  dimension: Count,
  size: Count,
  delta: Fraction,
  *,
  form: Form = 'corrected',
) -> float:
  """`tail`; printed log(d / delta)^1.5 / sqrt(b) for the Count Sketch as well.

  False: two equal coordinates collide with probability 1 / b, an error of 1,
  which exceeds the printed bound at delta = 1 / b^2 and large b.

  >>> bound = bounded_products('count_sketch', 2**20, 2**20, 2.0**-40)
  >>> bound > 2**9  # by Chebyshev; printed, it is below 1
  True
  """
  checks.at_most('size', size, dimension)
  if form == 'printed':
    return _printed_tail('srht', dimension, size, delta, 1)
  return tail(family, dimension, size, delta, form=form)


def _padded(n):
  return 1 << (n - 1).bit_length()
