"""Searches the least integer that satisfies a monotone predicate."""

import bisect
from collections.abc import Callable


def least(
  predicate: Callable[[int], bool], low: int, high: int, *, doubling=False
) -> int:
  """Return the least n in [low, high) with predicate(n), else `high`.

  The predicate is false below some integer and true from it on. `doubling`
  brackets it by low, 2 low, ... >= 1 first, where large n are expensive.

  >>> least(lambda n: n * n > 50, 1, 100), least(lambda n: n > 9, 1, 5)
  (8, 5)
  """
  stop = low if doubling else high
  while stop < high and not predicate(stop):
    low, stop = stop + 1, min(2 * stop, high)
  return low + bisect.bisect_left(range(low, stop), True, key=predicate)
