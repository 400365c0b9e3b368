"""Computes mean and standard deviation of image bytes, from exact sums."""

from typing import NamedTuple

import numpy as np


class Pixels(NamedTuple):
  """Exact sums over bytes, which add up over parts of a dataset.

  >>> Pixels().plus(np.array([0, 255], np.uint8)).scale
  {'mean': 0.5, 'std': 0.5}
  >>> Pixels().plus(np.full(7, 33, np.uint8)).scale['std']
  1.0
  """

  count: int = 0
  total: int = 0
  squares: int = 0

  def plus(self, pixels: np.ndarray) -> 'Pixels':
    """Adds bytes, uint8[...], to the sums."""
    total, squares = self.total, self.squares
    for part in np.array_split(pixels.ravel(), 64):  # squares take memory
      total += int(part.sum(dtype=np.uint64))
      squares += int(np.square(part, dtype=np.uint32).sum(dtype=np.uint64))
    return Pixels(self.count + pixels.size, total, squares)

  @property
  def scale(self) -> dict[str, float]:
    """Mean and deviation of the bytes / 255; deviation 1 if it would be 0."""
    # In integers, since rounding could make the variance negative.
    squares = self.count * self.squares - self.total**2
    variance = squares / (255 * self.count) ** 2
    return {'mean': self.total / self.count / 255, 'std': variance**0.5 or 1.0}
