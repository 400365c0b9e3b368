"""Estimates the constants of Song et al.'s assumptions from sampled points.

With e = L(y) - L(x) - <grad L(x), y - x> and r = |x - y|, for all x, y::

  semi-smooth                 e <= b r^2 + a r^(2-2p) |L(x)|^p,
  semi-Lipschitz gradient     |grad L(x) - grad L(y)|^2 <=
                                beta^2 r^2 + alpha^2 r^(2-2p) |L(x)|^p,
  semi-strongly convex        e >= d r^2 - c r^(2-2p) |L(x)|^p, d > 0,
  non-critical point          theta1^2 L(x) <= |grad L(x)|^2 <= theta2^2 L(x),
                                theta1 > 0,
  smooth                      e <= b r^2 (no 1/2),
  Lipschitz                   |L(x) - L(y)| <= beta r.

Points are f64[n, dimension]. Where L < 0 a power of it has no meaning in the
paper; we take that of |L|, which asks less.

Source: Song et al., arXiv:2210.08371, Definitions I.2 to I.6 and K.1.
"""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch.utils import checks
import numpy as np

from ...common import conditions

# Differences this much smaller than what they are of may be rounding.
_ROUNDING = 16 * np.finfo(float).eps


class Function(NamedTuple):
  """A function of points f64[n, dimension], and its domain, with their names.

  `fold` maps any points to points of the domain, and those onto themselves; the
  gradient is a subgradient at kinks.
  """

  name: str
  domain: str
  dimension: int
  value: Callable[[np.ndarray], np.ndarray]
  gradient: Callable[[np.ndarray], np.ndarray]
  fold: Callable[[np.ndarray], np.ndarray] = lambda x: x


class Pairs(NamedTuple):
  """L and its gradient at n pairs of points; `at` makes them."""

  x: np.ndarray
  y: np.ndarray
  value_x: np.ndarray
  value_y: np.ndarray
  gradient_x: np.ndarray
  gradient_y: np.ndarray


def at(function: Function, x: np.ndarray, y: np.ndarray) -> Pairs:
  """Evaluates a function at pairs of points of its domain.

  >>> square = Function('x^2', '', 1, lambda x: x[:, 0] ** 2, lambda x: 2 * x)
  >>> at(square, np.array([[1.0]]), np.array([[3.0]])).value_y
  array([9.])
  """
  value, gradient = function.value, function.gradient
  return Pairs(x, y, value(x), value(y), gradient(x), gradient(y))


def lipschitz(
  x: np.ndarray, y: np.ndarray, f_x: np.ndarray, f_y: np.ndarray
) -> float:
  """The least beta with |f(x) - f(y)| <= beta |x - y|, for f_x f64[n, k].

  >>> lipschitz(np.zeros((1, 2)), np.ones((1, 2)), np.zeros(1), np.full(1, 2.0))
  1.4142135623730951
  """
  rows = lambda v: v.reshape(len(v), -1)
  ratio = _ratio(_square(rows(f_x - f_y)), _square(rows(x - y)))
  return float(np.sqrt(ratio.max(initial=0)))


def needed(pairs: Pairs, name: str, p: float = 1.0) -> np.ndarray:
  """Computes the least t >= 0 for which each pair has the property.

  t is each of a, b, alpha^2, beta^2, c, 1 / d, theta2^2 and 1 / theta1^2 (of a
  Lipschitz function, beta). A pair that allows some allows more, so that there
  are constants for all pairs if and only if t is bounded. What may be rounding
  is left out of account.

  >>> square = Function('x^2', '', 1, lambda x: x[:, 0] ** 2, lambda x: 2 * x)
  >>> pairs = at(square, np.array([[0.0]]), np.array([[3.0]]))
  >>> needed(pairs, 'smooth').round(9), needed(pairs, 'Lipschitz').round(9)
  (array([1.]), array([3.]))

  Args:
    pairs: n of them.
    name: of the property, in `NAMES`.
    p: of the semi-properties, in [0, 1].

  Returns:
    f64[n], infinite where no constants will do.
  """
  checks.choice('name', name, NAMES)
  conditions.at_most_one('p', p)
  return np.maximum(_NEEDED[name](pairs, p), 0)


def _square(vectors):
  return np.square(vectors).sum(1)


def _ratio(excess, allowed):
  """The least t with excess <= t allowed, which may be infinite."""
  out = np.where(excess > 0, np.inf, -np.inf)
  return np.divide(excess, allowed, out=out, where=allowed > 0)


def _gap(pairs):
  """r^2, e, and how much of e may be rounding."""
  step = pairs.y - pairs.x
  r2 = _square(step)
  e = pairs.value_y - pairs.value_x - (pairs.gradient_x * step).sum(1)
  size = abs(pairs.value_x) + abs(pairs.value_y)
  size += np.sqrt(_square(pairs.gradient_x) * r2)
  return r2, e, _ROUNDING * size


def _mixed(pairs, p):
  return _square(pairs.x - pairs.y) ** (1 - p) * abs(pairs.value_x) ** p


def _need_smooth(pairs, p):
  r2, e, rounding = _gap(pairs)
  return _ratio(e - rounding, r2)


def _need_lipschitz(pairs, p):
  moved = abs(pairs.value_x - pairs.value_y)
  moved -= _ROUNDING * (abs(pairs.value_x) + abs(pairs.value_y))
  return _ratio(moved, np.sqrt(_square(pairs.x - pairs.y)))


def _need_semi_smooth(pairs, p):
  r2, e, rounding = _gap(pairs)
  return _ratio(e - rounding, r2 + _mixed(pairs, p))


def _need_semi_lipschitz_gradient(pairs, p):
  norm = lambda v: np.sqrt(_square(v))
  size = norm(pairs.gradient_x) + norm(pairs.gradient_y)
  moved = norm(pairs.gradient_x - pairs.gradient_y) - _ROUNDING * size
  r2 = _square(pairs.x - pairs.y)
  return _ratio(np.maximum(moved, 0) ** 2, r2 + _mixed(pairs, p))


def _need_semi_strongly_convex(pairs, p):
  """Returns the positive root t of r^2 / t - t r^(2-2p) |L|^p = e."""
  r2, e, rounding = _gap(pairs)
  e, mixed = e + rounding, _mixed(pairs, p)
  root = np.hypot(e, 2 * np.sqrt(mixed * r2))
  return np.where(e >= 0, _ratio(2 * r2, e + root), _ratio(root - e, 2 * mixed))


def _need_non_critical(pairs, p):
  square, value = _square(pairs.gradient_x), pairs.value_x
  return np.maximum(_ratio(value, square), _above(square, value))


def _above(square, value):
  """The least theta2^2 of each point; L < 0 has none."""
  return np.where(value < 0, np.inf, _ratio(square, value))


_NEEDED: dict[str, Callable[[Pairs, float], np.ndarray]] = {
  'semi-smooth': _need_semi_smooth,
  'semi-Lipschitz gradient': _need_semi_lipschitz_gradient,
  'semi-strongly convex': _need_semi_strongly_convex,
  'non-critical point': _need_non_critical,
  'smooth': _need_smooth,
  'Lipschitz': _need_lipschitz,
}
NAMES = tuple(_NEEDED)
