"""Operators against NumPy twins: integers, dense matrices, entry by entry."""

import itertools
import statistics

from fl_sketch import sketches
import jax
import numpy as np
import operators
from operators import KEY
import pytest

PRIME = 2**31 - 1
SHIFT, SIGN, BUCKET, SAMPLE, ENTRY = 1, 2, 3, 4, 5


def mix(x):
  x = ((x ^ x >> 16) * 0x85EBCA6B) % 2**32
  x = ((x ^ x >> 13) * 0xC2B2AE35) % 2**32
  return x ^ x >> 16


def word(counter, seed):
  return mix((mix(counter ^ seed[0]) + seed[1]) % 2**32)


def seeds(n, domain):
  words = [int(w) for w in jax.random.key_data(KEY)]
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


def sample(size, n):
  """`size` distinct rows of n, by walking a Feistel network's cycles."""
  bits = (n - 1).bit_length()
  low = bits // 2
  first, *rounds = seeds(1 + 2 * max(3, 1 - (-16 // max(low, 1))), SAMPLE)

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


def signs(n):
  (seed,) = seeds(1, SIGN)
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


def normal(seed, d):
  return jax.random.normal(jax.random.key(seed), (d,))


def there_and_back(op, x):
  return operators.table_and_back(op, KEY, x)


MATRICES = {
  'identity': np.eye(64),
  'gaussian': gaussian(64, 16),
  'ams': ams(64, 16),
  'median': count_sketch(64, 4, 4),
  'mean': count_sketch(64, 4, 4),
  'embedding_1': distinct(64, 16, 3),
  'embedding_2': banded(64, 16, 4),
  'sampling': uniform_sampling(64, 16),
  'block_cyclic': block_cyclic(64, 16),
  'block_cyclic_4': block_cyclic(64, 16, 4),
  'srht': srht(64, 16),
  'dct': dct(64, 16),
  'srft': srft(64, 16),
}


@pytest.mark.smoke
@pytest.mark.covers(
  'S0-D2[gaussian]', 'S0-D3[srht]', 'S0-D4[ams]', 'S0-D6[embedding_1]',
  'S0-D7[embedding_2]', 'S0-D8[sampling]',
)  # fmt: skip
@operators.each
def test_matrix_is_its_twin(name):
  """What the laws of an operator measure is what its formula says."""
  want = MATRICES[name]
  got, read = operators.matrix(name)
  np.testing.assert_allclose(got, want.reshape(-1, 64), atol=2e-5)
  if want.ndim > 2:  # rows of the Count Sketch, each an estimate
    combine = {'median': np.median, 'mean': np.mean}[name]
    want = combine(want.mT @ want, axis=0)
  else:
    want = (want.conj().T @ want).real
  np.testing.assert_allclose(read, want, atol=2e-5)


@pytest.mark.representatives('35-2-median')
@pytest.mark.covers('S0-D5', 'S2-Alg1[median]', 'S2-Alg2[median]')
@pytest.mark.parametrize(
  ('rows', 'cols', 'combine'),
  [(35, 2, 'median'), (4, 13, 'median'), (4, 13, 'mean')],
)
def test_count_sketch_is_its_twin(rows, cols, combine):
  op = sketches.count_sketch(rows, cols, combine=combine)
  x, r = normal(5, 77), count_sketch(77, rows, cols)
  table, out = there_and_back(op, x)
  np.testing.assert_allclose(table, r @ x, atol=1e-5)
  read = np.einsum('jci,jc->ji', r, table)
  want = {'median': np.median, 'mean': np.mean}[combine](read, axis=0)
  np.testing.assert_allclose(out, want, atol=1e-5)


TWINS = {
  'gaussian': (sketches.gaussian(7), gaussian(77, 7)),
  'gaussian even': (sketches.gaussian(4), gaussian(20, 4)),
  'ams': (sketches.ams(40), ams(77, 40)),
  'kind I': (sketches.sparse_embedding(9, 4, kind='I'), distinct(77, 9, 4)),
  'all rows': (sketches.sparse_embedding(5, 5, kind='I'), distinct(20, 5, 5)),
  'kind II': (sketches.sparse_embedding(39, 3), banded(77, 39, 3)),
  'sampling': (sketches.uniform_sampling(20), uniform_sampling(77, 20)),
  'sampling 64': (sketches.uniform_sampling(9), uniform_sampling(64, 9)),
  'cyclic': (sketches.block_cyclic(13), block_cyclic(77, 13)),
  'cyclic 2': (sketches.block_cyclic(2), block_cyclic(77, 2)),
  'stacked': (sketches.block_cyclic(12, sparsity=3), block_cyclic(77, 12, 3)),
  'srht': (sketches.srht(20), srht(77, 20)),
  'srht 20': (sketches.srht(5), srht(20, 5)),
  'dct': (sketches.dct(20), dct(77, 20)),
  'dct even': (sketches.dct(20), dct(20, 20)),
  'srft': (sketches.srft(20), srft(77, 20)),
  'srft even': (sketches.srft(20), srft(20, 20)),
}


@pytest.mark.representatives('cyclic', 'srft')
@pytest.mark.parametrize('name', TWINS)
def test_other_sizes_are_their_twins(name):
  """Short blocks, padding, odd lengths, and more signs than a word has."""
  op, r = TWINS[name]
  x = normal(6, r.shape[1])
  table, out = there_and_back(op, x)
  np.testing.assert_allclose(table, r @ x, atol=2e-5)
  want = (r.conj().T @ np.asarray(table)).real
  np.testing.assert_allclose(out, want, atol=2e-5)
