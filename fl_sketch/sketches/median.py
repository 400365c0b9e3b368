"""Medians over a few rows by a network of minima and maxima.

`jnp.median` sorts: 200 ms for 50 rows of 61,706 on a CPU. The network compiles
to one loop over the columns without branches: 1 ms.
"""

from collections.abc import Sequence
import functools

import jax
import jax.numpy as jnp

# Beyond this the compile time of the unrolled network shows.
MAX_NETWORK = 128


@functools.cache
def network(n: int) -> tuple[tuple[int, int], ...]:
  """Return comparators (i, j), i < j, that put the middle of n wires in place.

  Batcher's odd-even mergesort (AFIPS 1968) for the next power of two, without
  the wires past n, which would hold +inf, and without what the one or two
  middle wires never read. In order wire i takes the minimum, j the maximum.

  >>> network(3)
  ((0, 1), (0, 2), (1, 2))
  """
  pairs = [pair for pair in _mergesort(n) if pair[1] < n]
  live, kept = {(n - 1) // 2, n // 2}, []
  for pair in reversed(pairs):
    if live.intersection(pair):
      live.update(pair)
      kept.append(pair)
  return tuple(reversed(kept))


def _mergesort(n):
  width = 1 << (n - 1).bit_length()
  merged = 1
  while merged < width:
    gap = merged
    while gap >= 1:
      for start in range(gap % merged, width - gap, 2 * gap):
        for i in range(start, min(start + gap, width - gap)):
          if i // (2 * merged) == (i + gap) // (2 * merged):
            yield i, i + gap
      gap //= 2
    merged *= 2


def median(rows: Sequence[jax.Array]) -> jax.Array:
  """The symmetric median of n arrays, element by element.

  For even n the mean of the two middle values, as `np.median` has it: the
  lower or the upper middle alone would bias an estimate.

  >>> median([jnp.ones(2), jnp.zeros(2), jnp.full(2, 5.0), jnp.full(2, 2.0)])
  Array([1.5, 1.5], dtype=float32)
  """
  wires, n = list(rows), len(rows)
  if n > MAX_NETWORK:
    return jnp.median(jnp.stack(wires), axis=0)
  for i, j in network(n):
    low, high = jnp.minimum(wires[i], wires[j]), jnp.maximum(wires[i], wires[j])
    wires[i], wires[j] = low, high
  if n % 2:
    return wires[n // 2]
  return 0.5 * wires[n // 2 - 1] + 0.5 * wires[n // 2]
