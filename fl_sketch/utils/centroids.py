"""The Lloyd-Max quantiser of N(0, 1), which codecs in JAX and NumPy share."""

import functools
import itertools
import math
from statistics import NormalDist


@functools.cache
def lloyd_max(bits: int) -> tuple[tuple[float, ...], float]:
  """Return the positive centroids of N(0, 1) in 2^bits cells, and E(x - q)^2.

  Source: Lloyd, 1982; Max, 1960.

  >>> [round(x, 4) for x in lloyd_max(2)[0]], round(lloyd_max(2)[1], 4)
  ([0.4528, 1.5104], 0.1175)
  """
  normal, count = NormalDist(), 2 ** (bits - 1)
  starts = (0.5 + (i + 0.5) / count / 2 for i in range(count))
  centroids = list(map(normal.inv_cdf, starts))
  while True:
    middle = [(a + b) / 2 for a, b in itertools.pairwise(centroids)]
    cells = list(itertools.pairwise([0.0, *middle, math.inf]))
    masses = [normal.cdf(b) - normal.cdf(a) for a, b in cells]
    firsts = [normal.pdf(a) - normal.pdf(b) for a, b in cells]
    moved = [f / m for f, m in zip(firsts, masses, strict=True)]
    if max(abs(a - b) for a, b in zip(moved, centroids, strict=True)) < 1e-13:
      squares = sum(m * c**2 for m, c in zip(masses, moved, strict=True))
      return tuple(moved), 1 - 2 * squares
    centroids = moved
