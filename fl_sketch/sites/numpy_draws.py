"""The public random draws of the wire format, in NumPy alone.

They are those of `sketches.hashing` and of JAX's keys, a key u32[2], bit by
bit. The page docs/reference/wire_format.md has their formulas.
"""

import numpy as np

U = np.uint32
SHIFT, SIGN, BUCKET, SAMPLE, ENTRY, ROUNDING = range(1, 7)  # domains


def threefry(key: np.ndarray, words: tuple[int, int]) -> np.ndarray:
  """Return Threefry-2x32 of two words, u32[2]."""
  parts = *key, key[0] ^ key[1] ^ U(0x1BD11BDA)
  a, b = (np.array([x], U) + y for x, y in zip(words, key, strict=True))
  for i in range(5):
    for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
      a = a + b
      b = a ^ (b << U(r) | b >> U(32 - r))
    a, b = a + parts[(i + 1) % 3], b + parts[(i + 2) % 3] + U(i + 1)
  return np.concatenate([a, b])


def seed_key(seed: int) -> np.ndarray:
  """Return the key of a seed, as `jax.random.key` does."""
  return np.array([0, seed & 0xFFFFFFFF], U)


def fold_in(key: np.ndarray, number: int) -> np.ndarray:
  """Return the key of a key and a number, as `jax.random.fold_in` does."""
  return threefry(key, (0, number & 0xFFFFFFFF))


def mix(x: np.ndarray) -> np.ndarray:
  """Return the finaliser of murmur3 of words, u32[...]."""
  x = (x ^ x >> U(16)) * U(0x85EBCA6B)
  x = (x ^ x >> U(13)) * U(0xC2B2AE35)
  return x ^ x >> U(16)


def word(counter: np.ndarray, seed: np.ndarray) -> np.ndarray:
  """Return a word for each counter, u32[...]."""
  return mix(mix(counter ^ seed[0]) + seed[1])


def counters(n: int, start: int = 0) -> np.ndarray:
  """Return n counters from `start` on, u32[n]."""
  return np.arange(start, start + n, dtype=U)


def seeds(key: np.ndarray, n: int, domain: int) -> np.ndarray:
  """Return the seeds of n hash functions of a domain, u32[n, 2]."""
  pair = np.array([[domain], [domain ^ 0xFFFFFFFF]], U)
  pair = mix(mix(pair ^ key[:, None]) ^ key[::-1, None])
  return word(counters(2 * n), pair).reshape(n, 2)


def sample(key: np.ndarray, size: int, d: int) -> np.ndarray:
  """Draw `size` distinct integers from 0 to d - 1, by a random permutation."""
  low = (d - 1).bit_length() // 2
  masks = U((1 << low) - 1), U((1 << (d - 1).bit_length() - low) - 1)
  first, *rounds = seeds(key, 1 + 2 * max(3, 1 - (-16 // max(low, 1))), SAMPLE)

  def permute(x):
    left, right = (x ^ first[0]) & masks[0], (x >> U(low) ^ first[1]) & masks[1]
    for one, two in zip(rounds[::2], rounds[1::2], strict=True):
      left = left ^ word(right, one) & masks[0]
      right = right ^ word(left, two) & masks[1]
    return right << U(low) | left

  x = permute(counters(size))
  while (x >= d).any():
    x = np.where(x >= d, permute(x), x)
  return x.astype(int)


def uniform(key: np.ndarray, n: int, start: int = 0) -> np.ndarray:
  """Return the numbers in [0, 1) of the coordinates from `start` on, f32[n]."""
  (seed,) = seeds(key, 1, ROUNDING)
  words = word(counters(n, start), seed) >> U(8)
  return words.astype(np.float32) / np.float32(2**24)
