"""FedSKETCH on losses that are alike, in NumPy, many draws at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

D = 32
FLAT = np.r_[np.zeros(8), np.linspace(0.2, 1, 24)]  # PL, not strongly convex
each_hashes = pytest.mark.parametrize('hashes', ['shared', 'independent'])


class Loss(NamedTuple):
  """A loss on R^d that all clients share."""

  value: Callable[[np.ndarray], np.ndarray]  # f - f* at points [..., d]
  gradient: Callable[[np.ndarray], np.ndarray]
  smoothness: float


def quadratic(eigenvalues, center: Any = 0.0) -> Loss:
  h = np.asarray(eigenvalues, float)
  value = lambda x: (h * (x - center) ** 2).sum(-1) / 2
  return Loss(value, lambda x: h * (x - center), float(h.max()))


def wells() -> Loss:
  """The sum of x^2 / (1 + x^2), not convex; its second derivative is 2 at 0."""
  value = lambda x: (x**2 / (1 + x**2)).sum(-1)
  return Loss(value, lambda x: 2 * x / (1 + x**2) ** 2, 2.0)


def cosine() -> Loss:
  """The sum of 1 + cos x, of which 0 is a maximum."""
  return Loss(lambda x: (1 + np.cos(x)).sum(-1), lambda x: -np.sin(x), 1.0)


def ends(draws, side):
  """The end of 6 standard errors around a mean, on one side of it."""
  return np.mean(draws) + side * 6 * np.std(draws) / np.sqrt(len(draws))


def decode(rng, x, rows, cols):
  """PRIVIX of the count sketches of x [draws, d], each by its own hashes."""
  draws, d = x.shape
  shape = draws, rows, d
  sign = rng.choice([-1.0, 1.0], shape)
  cell = np.arange(draws * rows).reshape(draws, rows, 1) * cols
  cell = cell + rng.integers(cols, size=shape)
  size = draws * rows * cols
  table = np.bincount(cell.ravel(), (sign * x[:, None]).ravel(), size)
  return np.median(sign * table[cell], axis=1)


class Round(NamedTuple):
  """Means over the clients of a round, by draw: see `lemmas`, 4 to 6."""

  moved: np.ndarray  # [draws, d], x - x_j^tau
  phi: np.ndarray  # [draws, d], what was decoded of it
  squares: np.ndarray  # [draws], sum_c |grad f(x_j^c)|^2
  drifts: np.ndarray  # [draws, tau], |x - x_j^c|^2


def one_round(rng, loss, run, x, rows, cols) -> Round:
  """Algorithm 5 with PRIVIX from x [draws, d]; uncompressed without columns."""
  d = x.shape[-1]
  y = np.repeat(x[:, None], run.clients, axis=1)
  squares, drifts = np.zeros(len(x)), []
  for _ in range(run.local_steps):
    drifts.append(((x[:, None] - y) ** 2).sum(-1).mean(1))
    g = loss.gradient(y)
    squares = squares + (g**2).sum(-1).mean(1)
    noise = rng.standard_normal(y.shape) * np.sqrt(run.variance / d)
    y = y - run.client_lr * (g + noise)
  moved = x[:, None] - y
  if not cols:
    phi = moved.mean(1)
  elif run.hashes == 'shared':
    phi = decode(rng, moved.mean(1), rows, cols)
  else:
    each = decode(rng, moved.reshape(-1, d), rows, cols)
    phi = each.reshape(moved.shape).mean(1)
  return Round(moved.mean(1), phi, squares, np.stack(drifts, 1))


def play(loss, run, start, rows, cols, draws=200):
  """All points, f64[rounds + 1, draws, d]."""
  rng = np.random.default_rng(0)
  x = [np.repeat(np.asarray(start, float)[None], draws, axis=0)]
  for _ in range(run.rounds):
    phi = one_round(rng, loss, run, x[-1], rows, cols).phi
    x.append(x[-1] - run.server_lr * phi)
  return np.array(x)
