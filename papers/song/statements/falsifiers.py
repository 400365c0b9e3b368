"""Falsifies properties: searches for pairs of points that violate them.

A property that says «there are constants such that for all x and y» no single
pair disproves: only pairs that need ever larger constants do.
"""

from typing import NamedTuple

import numpy as np

from . import properties

# A search looks at ever larger and finer parts of the domain.
RADII = 2.0 ** np.arange(1, 9)
SEARCHES, DRAWS, KEPT = 5, 512, 32
# What falsifies: needed constants that grow this much from the middle radius
# to the last, which is 16 times as large. Those that stay bounded have come
# within 1% of their bound by then.
GROWTH = 3.0
_LARGEST = 1e150  # whose square float64 holds


class Verdict(NamedTuple):
  """The result of a falsifier.

  Attributes:
    falsified: whether the needed constants grow without bound.
    needed: f64[searches, radii]: the largest constant that a pair needed.
    witnesses: f64[searches, radii, 2, dimension]: those pairs, a sequence that
      violates the property whatever the constants, if falsified.
  """

  falsified: bool
  needed: np.ndarray
  witnesses: np.ndarray


def falsify(
  function: properties.Function, name: str, p: float = 1.0, seed: int = 0
) -> Verdict:
  """Whether the constants of a property seem to have no bound.

  Each pair needs constants of some size (`properties.needed`). For growing R, a
  search draws x of lengths in [1 / R, R], y likewise or at such distances from
  x, and moves the neediest pairs so far by lengths in [R^-2.5, 1]. Falsified is
  what in most searches needs an infinite constant, or by the last R one GROWTH
  times as large as by the middle one, R = 16. Not falsified is evidence and no
  proof: a growth slower than R^0.4 is missed. A function that needs its largest
  constants beyond R = 16 must be scaled first, or may be falsified wrongly.

  p = 1 asks least: r^(2-2p) |L|^p <= (1 - p) s r^2 + p s^(1-1/p) |L| for every
  s > 0, so that constants for any p give such for 1, and none for 1 means none
  for any. (Only semi-strong convexity at p = 0 is something else, and weaker:
  d r^2 - c r^2 <= e asks for no convexity.)

  >>> square = lambda x: x[:, 0] ** 2
  >>> f = properties.Function('x^2', 'R', 1, square, lambda x: 2 * x)
  >>> falsify(f, 'smooth').falsified, falsify(f, 'Lipschitz').falsified
  (False, True)

  Args:
    function: where to look.
    name: of the property, in `properties.NAMES`.
    p: in [0, 1]; of the semi-properties.
    seed: of the points.
  """
  rng = np.random.default_rng(seed)
  need = lambda pairs: properties.needed(pairs, name, p)
  searches = [_search(function, need, rng) for _ in range(SEARCHES)]
  needed, witnesses = (np.array(part) for part in zip(*searches, strict=True))
  early, last = needed[:, len(RADII) // 2 - 1], needed[:, -1]
  grown = np.isinf(last) | (last > 0) & (last >= GROWTH * early)
  return Verdict(bool(grown.mean() > 0.5), needed, witnesses)


def _search(function, need, rng):
  kept = np.zeros((0, 2, function.dimension))
  needs, largest, witnesses = np.zeros(0), [], []
  for radius in RADII:
    fresh = _fresh(rng, function.dimension, radius)
    pairs = np.concatenate([fresh, _moved(rng, kept, radius)])
    pairs = np.stack([function.fold(pairs[:, i]) for i in (0, 1)], 1)
    kept = np.concatenate([kept, pairs])
    needs = np.concatenate([needs, _needs(function, need, pairs)])
    best = np.argsort(-needs, kind='stable')[:KEPT]
    kept, needs = kept[best], needs[best]
    largest.append(needs[0])
    witnesses.append(kept[0])
  return largest, witnesses


def _needs(function, need, pairs):
  x, y = pairs[:, 0], pairs[:, 1]
  # Overflow is no evidence.
  with np.errstate(all='ignore'):
    values = properties.at(function, x, y)
    needs = need(values)
    sizes = [abs(v).reshape(len(x), -1).max(1) for v in values[2:]]
    usable = np.all([size < _LARGEST for size in sizes], 0)
  return np.where(usable, needs, 0)


def _lengths(rng, dimension, count, low, high):
  """Draws vectors of random directions, lengths uniform on a log scale."""
  vectors = rng.standard_normal((count, dimension))
  lengths = np.exp(rng.uniform(np.log(low), np.log(high), (count, 1)))
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * lengths


def _fresh(rng, dimension, radius):
  draw = lambda: _lengths(rng, dimension, DRAWS, 1 / radius, radius)
  x, other, near = draw(), draw(), draw()
  far = np.stack([x, other], 1)
  return np.concatenate([far, np.stack([other, other + near], 1)])


def _moved(rng, kept, radius):
  pairs = np.repeat(kept, DRAWS // KEPT, 0)
  count, _, dimension = pairs.shape
  moves = [_lengths(rng, dimension, count, radius**-2.5, 1) for _ in range(2)]
  still = rng.integers(0, 3, count)  # x, y or neither
  for i in (0, 1):
    pairs[:, i] += moves[i] * (still != i)[:, None]
  return pairs
