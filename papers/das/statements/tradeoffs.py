"""Das et al.: the best number of local steps; clipping against normalising.

Das, Hashemi, Sanghavi and Dhillon, arXiv:2106.07094, sections 4 and 5. Names
are those of `das`; distance D is |w_0 - w*|, mean_gap the mean Delta_i*.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common import conditions
from ...common.conditions import Count, Fraction, NonNegative, Positive
from ...common.statements import statement
from . import lemmas, rates


@statement('S1-Eq8', 'equation (8)', printed='holds')
def lipschitz_bound(
  s: rates.Schedule, distance: NonNegative, mean_gap: NonNegative
) -> float:
  """Return 4/5 (`rates.right` + 3/2 rho E / alpha mean_gap), above f(w) - f*.

  Where nothing is clipped: f_i is clip-Lipschitz, or clip as of Proposition 1.

  >>> s = rates.Schedule(1.0, 4.0, 0.125, 4, 16, 2.0)  # alpha = 1, x = 1/2
  >>> lipschitz_bound(s, distance=2.0, mean_gap=1.0)
  2.2
  """
  return 0.8 * (rates.right(s, distance) + 1.5 * s.load * mean_gap)


@statement('S1-Prop1', 'Proposition 1', printed='holds')
def unclipped_threshold(
  lipschitz: Positive,
  curvature: NonNegative,
  *,
  smoothness: Positive,
  rho: Fraction,
  local_steps: Count,
) -> float:
  """Return C^ = G (1 - 11 (E - 1) rho (lambda / L)^2 / 64): |u| <= E C^.

  If eta = rho / (2 L), which is alpha = 1, and E <= 1 / (2 rho).

  >>> spec = {'smoothness': 1.0, 'rho': 0.125, 'local_steps': 4}
  >>> unclipped_threshold(64.0, 1.0, **spec)
  59.875
  """
  decay = 3 * rho / 8 * _ratio(curvature, smoothness) ** 2
  _check_steps(local_steps, rho)
  mean = lemmas.geometric_sum_bound(decay, local_steps) / local_steps
  return lipschitz * mean


@statement('S1-Eq11', 'equation (11)', printed='holds')
def local_steps_bound(
  lipschitz: Positive,
  distance: Positive,
  mean_gap: NonNegative,
  curvature: NonNegative,
  *,
  smoothness: Positive,
  rho: Fraction,
  local_steps: Count,
) -> float:
  """Return (2 G D + 6 E / 5 (mean_gap - 11 G D rho (lambda / L)^2 / 48)) rho.

  Bounds f(w) - f*, with gamma = L D, alpha = 1 and the clip of Proposition 1.
  Least at E = 1 / (2 rho) if mean_gap < 11 G D rho (lambda / L)^2 / 48, else at
  1. The loss need not follow: with like clients it grew with E in a test.

  >>> spec = {'smoothness': 1.0, 'rho': 0.125, 'local_steps': 4}
  >>> local_steps_bound(48.0, 1.0, 1.375, 1.0, **spec)
  12.0
  """
  _check_steps(local_steps, rho)
  reach = lipschitz * (distance * rho)
  slope = mean_gap - 11 * reach / 48 * _ratio(curvature, smoothness) ** 2
  return (2 * lipschitz * distance + 1.2 * local_steps * slope) * rho


def _ratio(curvature, smoothness):
  ratio = curvature / smoothness
  if ratio > 1 + 1e-9:
    raise ValueError(f'{curvature=} must be <= {smoothness=}.')
  return ratio


def _check_steps(local_steps, rho):
  if 2 * rho * local_steps > 1 + 1e-9:
    raise ValueError(f'{local_steps=} must be <= 1 / (2 rho), {rho=}.')


class Comparison(NamedTuple):
  """Bounds of both rates on f_i(w) - f_i(w*), in units of Delta*: B, B2."""

  normalize: float
  clip: float


@statement(
  'S1-Rem1', 'Remark 1, section 5.1, equations (15) to (17)', corrected='order'
)
def compare(
  ratio: Annotated[float, conditions.at_least(4)],
  distance: NonNegative,
  *,
  rho: Fraction,
  local_steps: Count,
  alpha: Positive = 1.0,
) -> Comparison:
  r"""Return the two rates, solved for the suboptimality h of like clients.

  With :math:`\hat C = c \sqrt{L \Delta^*}`, gamma = L D, all unclipped, and
  :math:`\|u\|^2 \leq 2 L E^2 (h + \Delta^*)`, in units of Delta*: clipping
  leaves :math:`(2 c D \rho + 3 x / 2) / (2 - x - x^2)`, normalisation the h of
  :math:`(2 - x^2) h - x^2 = \sqrt{2 (h + 1)} (2 D \rho + x c / 2)`. Ratio is c;
  D is in units of sqrt(Delta* / L). Our reconstruction: normalisation is better
  from about D = (1/2 + c x / 4) E on; at the optimum it leaves x c / sqrt(8).
  ValueError where h + 1 > c^2 / 2, as an update may then be clipped.

  >>> b = compare(ratio=4.0, distance=10.0, rho=0.001, local_steps=5)
  >>> round(b.normalize, 4), round(b.clip, 4)
  (0.0215, 0.0439)
  """
  c, noise, x = ratio, 2 * distance * rho, rho * local_steps / alpha
  if x > 0.5 * (1 + 1e-9):
    raise ValueError(f'{local_steps=} must be <= {alpha / (2 * rho)}.')
  clip = (c * noise + 1.5 * x) / (2 - x - x**2)
  slope, a = 2 - x**2, math.sqrt(2) * (noise + x * c / 2)
  root = (a + math.sqrt(a**2 + 8 * slope)) / (2 * slope)
  comparison = Comparison(root**2 - 1, clip)
  if max(comparison) > c**2 / 2 - 1:
    raise ValueError(f'{comparison} must be <= {c**2 / 2 - 1}.')
  return comparison


@statement('S1-Clow', 'section 5', printed='holds')
def lowest_clip_norm(norms: npt.ArrayLike) -> float:
  """Return min |u_i|: for C at most that, clipping is normalisation.

  >>> lowest_clip_norm([3.0, 1.5])
  1.5
  """
  return float(np.min(norms))
