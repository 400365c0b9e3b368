"""How the benchmarks time a call, and the times of exact noise."""

from collections.abc import Callable, Sequence
from functools import partial
import time
from typing import Any

from fl_sketch.privacy.mechanisms import chacha20_prng, discrete_gaussian
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


def noise_ratios(size: int, repeats: int) -> dict[str, float]:
  """Return the time of exact noise, float32[size], over that of `normal`."""
  like, plain = jax.ShapeDtypeStruct((size,), 'float32'), jax.random.key(3)
  keys = {'threefry': plain, 'chacha20': chacha20_prng.of_bytes(bytes(32))}
  draw = jax.jit(lambda key: discrete_gaussian.draw(key, like, 1024, 200))
  normal = jax.jit(lambda key: jax.random.normal(key, (size,)))
  calls = [(normal, plain), *((draw, key) for key in keys.values())]
  base, *times = medians([partial(*call) for call in calls], repeats)
  return {name: t / base for name, t in zip(keys, times, strict=True)}
