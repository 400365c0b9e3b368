"""Constants of Song et al.'s conditions on a loss, measured on pairs of points.

With e = L(y) - L(x) - <grad L(x), y - x> and r = |x - y|, for all x, y::

  semi-smooth                 e <= b r^2 + a r^(2-2p) |L(x)|^p,
  semi-Lipschitz gradient     |grad L(x) - grad L(y)|^2 <=
                                beta^2 r^2 + alpha^2 r^(2-2p) |L(x)|^p,
  semi-strongly convex        e >= d r^2 - c r^(2-2p) |L(x)|^p, d > 0,
  non-critical point          theta1^2 L(x) <= |grad L(x)|^2 <= theta2^2 L(x),
                                theta1 > 0.

Source: arXiv:2210.08371, Definitions I.2 to I.6 and K.1.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Function(NamedTuple):
  """A function of points f64[n, dimension] and its gradient."""

  value: Callable[[np.ndarray], np.ndarray]
  gradient: Callable[[np.ndarray], np.ndarray]


class Pairs(NamedTuple):
  """L and its gradient at n pairs of points; `at` makes them."""

  x: np.ndarray
  y: np.ndarray
  value_x: np.ndarray
  value_y: np.ndarray
  gradient_x: np.ndarray
  gradient_y: np.ndarray


def at(f, x, y) -> Pairs:
  return Pairs(x, y, f.value(x), f.value(y), f.gradient(x), f.gradient(y))


def on_grid(f, numbers) -> Pairs:
  """All pairs of different points of a line."""
  x, y = (v.ravel()[:, None] for v in np.meshgrid(numbers, numbers))
  apart = (x != y)[:, 0]
  return at(f, x[apart], y[apart])


def gaps(pairs, p):
  """e, r^2 and r^(2-2p) |L|^p."""
  step = pairs.y - pairs.x
  e = pairs.value_y - pairs.value_x
  e = e - np.einsum('ni,ni->n', pairs.gradient_x, step)
  r = np.linalg.norm(step, axis=1)
  return e, r**2, r ** (2 - 2 * p) * abs(pairs.value_x) ** p


def moved(pairs):
  """|grad L(x) - grad L(y)|^2."""
  return np.square(pairs.gradient_x - pairs.gradient_y).sum(1)


def semi_smooth(pairs, a=0.0, p=0.5):
  """The least b >= 0, given a."""
  e, r2, mixed = gaps(pairs, p)
  return np.max((e - a * mixed)[r2 > 0] / r2[r2 > 0], initial=0)


def semi_lipschitz_gradient(pairs, alpha=0.0, p=0.5):
  """The least beta >= 0, given alpha."""
  _, r2, mixed = gaps(pairs, p)
  excess = moved(pairs) - alpha**2 * mixed
  return np.sqrt(np.max(excess[r2 > 0] / r2[r2 > 0], initial=0))


def semi_strongly_convex(pairs, c=0.0, p=0.5):
  """The largest d, given c; it is not convex so where d <= 0."""
  e, r2, mixed = gaps(pairs, p)
  return np.min((e + c * mixed)[r2 > 0] / r2[r2 > 0])


def non_critical(pairs):
  """The largest theta1 and the least theta2 for the points x."""
  above = pairs.value_x > 0
  square = np.square(pairs.gradient_x).sum(1)[above]
  ratio = square / pairs.value_x[above]
  return np.sqrt(ratio.min()), np.sqrt(ratio.max())


def quadratic(matrix):
  """x' matrix x."""
  value = lambda x: np.einsum('ni,ij,nj->n', x, matrix, x)
  return Function(value, lambda x: 2 * x @ matrix)


def scalar(value, slope):
  """A function of the first coordinate, by its value and derivative."""
  gradient = lambda x: slope(x[:, 0])[:, None] * np.eye(1, x.shape[1])
  return Function(lambda x: value(x[:, 0]), gradient)
