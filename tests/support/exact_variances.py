r"""Exact variances of :math:`\langle g, R^\top R h \rangle` for vectors f64[d].

What all have in common is `pairs`, the squares of the coefficients of
:math:`\sigma_i \sigma_k` for random signs.
"""

from fl_sketch import sketches
from fl_sketch.sketches import block_rows, fourier
import numpy as np


def variance(
  op: sketches.Sketch, g: np.ndarray, h: np.ndarray, *,
  cols: int = 0, block: int = 4096,
) -> float | None:  # fmt: skip
  """Return the variance by the operator's name; None where it is not known.

  `cols` are the buckets of a copy of `block_cyclic`, by default all.
  """
  g, h, name = np.float64(g), np.float64(h), op.properties.name
  size = op.properties.floats(g.size)
  if name == 'identity':
    return 0.0
  if name == 'gaussian':
    return float(g @ g * (h @ h) + (g @ h) ** 2) / size
  if name == 'block_cyclic':
    return across_blocks(g, h, cols or size) / size
  if name == 'block_srht':
    return of_blocks(block_rows.plan(g.size, size, block), g, h)
  if name == 'srft':
    return spectrum(g, h, size // 2)
  of_rows = {'srht': hadamard, 'dct': cosines, 'uniform_sampling': sampled}
  return of_rows[name](g, h, size) if name in of_rows else pairs(g, h) / size


def pairs(g: np.ndarray, h: np.ndarray) -> float:
  r"""Return :math:`\sum_{i<k} (g_i h_k + g_k h_i)^2`.

  It is :math:`\|g\|^2 \|h\|^2 + \langle g, h \rangle^2 - 2 \sum_i g_i^2 h_i^2`.
  """
  return float(g @ g * (h @ h) + (g @ h) ** 2 - 2 * (g * h) @ (g * h))


def across_blocks(g: np.ndarray, h: np.ndarray, cols: int) -> float:
  """Return `pairs` of coordinates of different blocks of `cols`."""
  g, h = (np.append(x, np.zeros(-x.size % cols)) for x in (g, h))
  return pairs(g, h) - sum(map(pairs, g.reshape(-1, cols), h.reshape(-1, cols)))


def sampled(g: np.ndarray, h: np.ndarray, size: int) -> float:
  """Return the variance of d / b times the sum of b of d products g_i h_i."""
  d = g.size
  spread = np.var(g * h, ddof=1) if d > 1 else 0.0
  return float(d * (d - size) / size * spread)


def hadamard(g: np.ndarray, h: np.ndarray, size: int) -> float:
  """Return the variance of `srht`, whose every product has `pairs`."""
  n = 1 << (g.size - 1).bit_length()
  return _of_rows(n, size, pairs(g, h) / n)


def spectrum(g: np.ndarray, h: np.ndarray, size: int) -> float:
  """Return the variance of `srft`; for even n i and i + n / 2 count twice."""
  g, h = (_in_order(x, size) for x in (g, h))
  n, far = g.size, 0.0
  if n % 2 == 0:
    (g0, g1), (h0, h1) = (np.split(x, 2) for x in (g, h))
    far = np.square(g0 * h1 + g1 * h0).sum()
  return _of_rows(n, size, (pairs(g, h) + far) / (2 * n))


def cosines(g: np.ndarray, h: np.ndarray, size: int) -> float:
  r"""Return the variance of `dct`, whose coordinates i and n - 1 - i mirror.

  With :math:`\sum_r C_{ri}^2 C_{rk}^2 = (n - 1 + (n / 2) (1_{i = k} + 1_{i + k
  = n - 1})) / n^2`; the variance over rows has a part that is not random signs.
  """
  n = fourier.split(g.size, size)[0]
  order = np.append(np.arange(0, n, 2), np.arange(1, n, 2)[::-1])
  g, h = (_in_order(x, size)[np.argsort(order)] for x in (g, h))
  x, g2, h2 = g * h, g[::-1], h[::-1]
  mirrored = np.square(g * h2 + g2 * h)[: n // 2].sum()
  signs = (n - 1) / n**2 * pairs(g, h) + mirrored / (2 * n)
  rows = (x @ x + x @ x[::-1]) / (2 * n) - x.sum() ** 2 / n**2
  return _of_rows(n, size, signs + rows)


def _of_rows(n, size, squares):
  """That of n / size times `size` of n products: squares about their mean."""
  return float(n * (n - size) / (size * max(n - 1, 1)) * squares)


def _in_order(x, size):
  """Return the coordinates as a transform numbers them, padded by zeros."""
  n, parts = fourier.split(x.size, size)
  x = np.append(x, np.zeros(n - x.size))
  return x.reshape(parts, n // parts).T.ravel()


def of_blocks(plan, g: np.ndarray, h: np.ndarray) -> float | None:
  """Return the variance of `block_srht`; None where m does not divide d.

  Of a block as many rows are kept as of others, or one more: within it they are
  a sample without replacement, and the total of the blocks that have one more
  is that of a random window of neighbours.
  """
  if plan.beyond:
    return None
  blocks = [x.reshape(plan.block, plan.columns).T for x in (g, h)]
  inside = sum(map(pairs, *blocks))
  products = (blocks[0] * blocks[1]).sum(1)
  more = plan.grid % plan.columns
  sums = np.cumsum([0.0, *products, *products])
  windows = (sums[more:] - sums[: sums.size - more])[: plan.columns]
  factor = (plan.d / plan.size / plan.block) ** 2
  return float(factor * (block_rows._spread(plan) * inside + np.var(windows)))
