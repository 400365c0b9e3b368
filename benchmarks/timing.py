"""How the benchmarks time a call."""

from collections.abc import Callable, Sequence
import time
from typing import Any

import jax
import numpy as np


def mean_seconds(
  call: Callable[[], Any], calls: int, one_by_one: bool = True
) -> tuple[float, Any]:
  """Mean seconds of `calls` >= 1 calls, and the value of the last one.

  `one_by_one`: whether each is waited for before the next one starts.
  """
  begun, out = time.perf_counter(), None
  for _ in range(calls):
    out = call()
    if one_by_one:
      jax.block_until_ready(out)
  jax.block_until_ready(out)
  return (time.perf_counter() - begun) / calls, out


def medians(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
  """Median seconds of each call, in turn, after a first turn."""
  once = lambda: [mean_seconds(call, 1)[0] for call in calls]
  return np.median([once() for _ in range(repeats + 1)][1:], axis=0).tolist()
