"""Matrices of operators, entry by entry, in integers and NumPy."""

import itertools
import statistics

import jax
import numpy as np
from operators import KEY

PRIME = 2**31 - 1
SHIFT, SIGN, BUCKET, SAMPLE, ENTRY = 1, 2, 3, 4, 5


def mix(x):
  x = ((x ^ x >> 16) * 0x85EBCA6B) % 2**32
  x = ((x ^ x >> 13) * 0xC2B2AE35) % 2**32
  return x ^ x >> 16


def word(counter, seed):
  return mix((mix(counter ^ seed[0]) + seed[1]) % 2**32)


def seeds(n, domain, key=KEY):
  words = [int(w) for w in jax.random.key_data(key)]
  first, second = domain, 2**32 - 1 - domain
  for forward, backward in zip(words, reversed(words), strict=True):
    first, second = mix(first ^ forward), mix(second ^ backward)
  flat = [word(i, (first, second)) for i in range(2 * n)]
  return list(zip(flat[::2], flat[1::2], strict=True))


def families(n, k, domain):
  words = seeds(n * (k + 1), domain)
  return [words[i * (k + 1) : (i + 1) * (k + 1)] for i in range(n)]


def kwise(counter, family):
  powers = reversed(range(len(family) - 1))
  terms = [
    coefficient % PRIME * counter**power
    for (coefficient, _), power in zip(family[:-1], powers, strict=True)
  ]
  return (sum(terms) + word(counter, family[-1])) % PRIME


def sign(w, plane):
  return 1 - 2 * (w >> (31 - plane) & 1)


def sample(size, n, key=KEY):
  """`size` distinct rows of n, by walking a Feistel network's cycles."""
  bits = (n - 1).bit_length()
  low = bits // 2
  pairs = max(3, 1 - (-16 // max(low, 1)))
  first, *rounds = seeds(1 + 2 * pairs, SAMPLE, key)

  def permute(j):
    left = (j ^ first[0]) % 2**low
    right = (j >> low ^ first[1]) % 2 ** (bits - low)
    for a, b in zip(rounds[::2], rounds[1::2], strict=True):
      left ^= word(right, a) % 2**low
      right ^= word(left, b) % 2 ** (bits - low)
    return right << low | left

  sampled = []
  for j in range(size):
    row = permute(j)
    while row >= n:
      row = permute(row)
    sampled.append(row)
  return sampled


def signs(n, key=KEY, stream=0):
  seed = seeds(stream + 1, SIGN, key)[stream]
  return np.array([sign(word(i, seed), 0) for i in range(n)])


def gaussian(d, size):
  words, r = seeds(size, ENTRY), np.zeros((size, d))
  for j, i in itertools.product(range(size), range(d)):
    r[j, i] = statistics.NormalDist().inv_cdf(
      ((word(i, words[j]) >> 9) + 0.5) / 2**23
    )
  return r / np.sqrt(size)


def ams(d, size):
  rows = families(-(-size // 31), 4, SIGN)
  r = [
    [sign(kwise(i, rows[j // 31]), 1 + j % 31) for i in range(d)]
    for j in range(size)
  ]
  return np.array(r) / np.sqrt(size)


def count_sketch(d, rows, cols):
  """Matrices of the rows, [rows, cols, d]."""
  r = np.zeros((rows, cols, d))
  words, buckets = seeds(-(-rows // 32), SIGN), families(rows, 2, BUCKET)
  for j, i in itertools.product(range(rows), range(d)):
    bucket = kwise(i, buckets[j]) % cols
    r[j, bucket, i] = sign(word(i, words[j // 32]), j % 32)
  return r


def banded(d, size, sparsity):
  r = count_sketch(d, sparsity, size // sparsity)
  return r.reshape(size, d) / np.sqrt(sparsity)


def distinct(d, size, sparsity):
  r = np.zeros((size, d))
  (words,), buckets = seeds(1, SIGN), families(sparsity, 2, BUCKET)
  for i in range(d):
    rows = []
    for j in range(sparsity):
      limit = size - sparsity + j
      row = kwise(i, buckets[j]) % (limit + 1)
      rows.append(limit if row in rows else row)
    for j, row in enumerate(rows):
      r[row, i] = sign(word(i, words), j) / np.sqrt(sparsity)
  return r


def block_cyclic(d, size, sparsity=1):
  cols = size // sparsity
  r = np.zeros((sparsity, cols, d))
  shifts, words = families(sparsity, 2, SHIFT), seeds(sparsity, SIGN)
  for j, i in itertools.product(range(sparsity), range(d)):
    block, u = divmod(i, cols)
    bucket = (u + kwise(block, shifts[j]) % cols) % cols
    w = word(block // 32 * cols + u, words[j])
    r[j, bucket, i] = sign(w, block % 32)
  return r.reshape(size, d) / np.sqrt(sparsity)


def uniform_sampling(d, size):
  return np.sqrt(d / size) * np.eye(d)[sample(size, d)]


def srht(d, size):
  n, r = 1 << (d - 1).bit_length(), np.zeros((size, d))
  for j, row in enumerate(sample(size, n)):
    for i in range(d):
      r[j, i] = (-1) ** (row & i).bit_count() / np.sqrt(size)
  return r * signs(d)


def block_srht(d, size, block, key=KEY):
  """One row at a time: of the grid's columns, then of what is beyond."""
  m = min(block, 1 << (d.bit_length() - 1))
  columns, beyond = divmod(d, m)
  h = np.array(
    [[(-1) ** (i & j).bit_count() for j in range(m)] for i in range(m)]
  )
  h = h / np.sqrt(m)
  end, whole = np.eye(d), np.eye(d)
  if beyond:
    own = signs(d, key, 1)[d - m :]
    end[d - m :, d - m :] = own[:, None] * h * own[None]
  for k in range(columns):
    at = np.arange(m) * columns + k
    whole[np.ix_(at, at)] = h
  whole = whole * signs(d, key)[None] @ end
  turn, coin = seeds(1, SHIFT, key)[0]
  own, chance = divmod(beyond * size, d)
  entries = [
    row * columns + k
    for row in sample(-(-(size - own) // columns), m, key)
    for k in range(columns)
  ]
  full = len(entries) - columns
  last = np.roll(entries[full:], -(turn % columns))
  entries = [*entries[:full], *last][: size - own]
  if beyond:
    key = jax.random.fold_in(key, 1)
    others = [d - beyond + i for i in sample(own + (chance > 0), beyond, key)]
    if chance:
      entries[-1] = others[-1] if coin % d < chance else entries[-1]
      others = others[:-1]
    entries += others
  return np.sqrt(d / size) * whole[entries]


def srft(d, size):
  rows = np.array(sample(size, d))[:, None]
  r = np.exp(-2j * np.pi * rows * np.arange(d) / d) / np.sqrt(size)
  return r * signs(d)


def dct(d, size):
  """A DCT-II whose coordinates stand in the order 0, d - 1, 1, d - 2, ..."""
  order = np.argsort([*range(0, d, 2), *range(d - 1 - d % 2, 0, -2)])
  rows = np.array(sample(size, d))[:, None]
  r = np.cos(np.pi * rows * (2 * np.arange(d) + 1) / (2 * d))
  r = r * np.where(rows == 0, 1, np.sqrt(2)) / np.sqrt(size)
  return r[:, np.argsort(order)] * signs(d)
