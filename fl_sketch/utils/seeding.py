"""Draw random numbers by counter: every draw is a pure function of integers.

No generator keeps a position in a stream, so round 900 can be drawn without
the rounds before it, on any host and for any number of devices.
"""

from typing import Any
import zlib

from fl_sketch.utils import chacha20
import numpy as np

Root = int | bytes  # of draws: a seed, or a secret key of 32 bytes
FIELDS = ('seed', 'sketch_seed', 'noise_seed')  # of a config
_GAMMA = 0x9E3779B97F4A7C15  # splitmix64: 2^64 / golden ratio, made odd


def generator(seed: Root, tag: str, counter: int = 0) -> np.random.Generator:
  """Return a NumPy generator, a pure function of its arguments.

  Philox4x64 with key (seed, crc32 of tag); `counter` is the highest word of its
  256-bit counter, so streams of different counters cannot overlap. For a seed
  of 32 bytes it is a `chacha20.Generator` with that key and the nonce (crc32 of
  tag, counter). Each use needs another tag.
  """
  label = zlib.crc32(tag.encode())
  if isinstance(seed, bytes):
    nonce = label.to_bytes(4, 'little') + counter.to_bytes(8, 'little')
    drawn: Any = chacha20.Generator(seed, nonce)
    return drawn
  key = np.array([seed % 2**64, label], np.uint64)
  start = np.array([0, 0, 0, counter], np.uint64)
  return np.random.Generator(np.random.Philox(key=key, counter=start))


def fold(state, word) -> np.ndarray:
  """Hash integers into a state: output `word` of splitmix64, uint64[...].

  Steele, Lea and Flood, OOPSLA 2014. Not cryptographic. It is chained, as in
  fold(fold(fold(seed, round), client), position). The state is an int or
  uint64[...], the word an int or an integer array that broadcasts against it.

  >>> fold(0, np.arange(3)).tolist()[0] == 0xE220A8397B1DCDAF
  True
  """
  z = _words(state) + (_words(word) + np.uint64(1)) * np.uint64(_GAMMA)
  z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return z ^ (z >> np.uint64(31))


def _words(value) -> np.ndarray:
  # At least one dimension: NumPy warns when a uint64 scalar wraps around.
  if isinstance(value, int):
    value = np.array(value % 2**64, np.uint64)
  return np.atleast_1d(np.asarray(value)).astype(np.uint64, copy=False)
