"""Operators against NumPy twins: integers, dense matrices, entry by entry."""

import itertools

from fl_sketch import sketches
import jax
import numpy as np
import pytest

KEY = jax.random.key(7)


def normal(seed, d):
  return jax.random.normal(jax.random.key(seed), (d,))


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


def sign(w, plane):
  return 1 - 2 * (w >> (31 - plane) & 1)


def count_sketch_matrices(d, rows, cols):
  r = np.zeros((rows, cols, d))
  signs, buckets = seeds(-(-rows // 32), 2), seeds(rows, 3)
  for j, i in itertools.product(range(rows), range(d)):
    bucket = word(i, buckets[j]) % cols
    r[j, bucket, i] = sign(word(i, signs[j // 32]), j % 32)
  return r


def block_cyclic_matrix(d, size):
  r = np.zeros((size, d))
  (shift,), (signs,) = seeds(1, 1), seeds(1, 2)
  for i in range(d):
    block, u = divmod(i, size)
    w = word(block // 32 * size + u, signs)
    r[(u + word(block, shift)) % size, i] = sign(w, block % 32)
  return r


def srht_matrix(d, size):
  bits = (d - 1).bit_length()
  n, low, r = 2**bits, bits // 2, np.zeros((size, d))
  first, *rounds = seeds(1 + 2 * max(3, -(-16 // max(low, 1))), 4)
  (signs,) = seeds(1, 2)
  for j in range(size):
    left = (j ^ first[0]) % 2**low
    right = (j >> low ^ first[1]) % 2 ** (bits - low)
    for a, b in zip(rounds[::2], rounds[1::2], strict=True):
      left ^= word(right, a) % 2**low
      right ^= word(left, b) % 2 ** (bits - low)
    row, width = right << low | left, max(n // 32, 1)
    for i in range(d):
      s = sign(word(i % width, signs), i // width)
      r[j, i] = s * (-1) ** (row & i).bit_count() / np.sqrt(size)
  return r


@pytest.mark.parametrize(
  ('rows', 'cols', 'combine'),
  [(35, 2, 'median'), (4, 13, 'median'), (4, 13, 'mean')],
)
def test_count_sketch_is_its_twin(rows, cols, combine):
  op = sketches.count_sketch(rows, cols, combine=combine)
  x, r = normal(5, 77), count_sketch_matrices(77, rows, cols)
  table = op.sketch(KEY, x)
  np.testing.assert_allclose(table, r @ x, atol=1e-5)
  read = np.einsum('jci,jc->ji', r, table)
  want = {'median': np.median, 'mean': np.mean}[combine](read, axis=0)
  np.testing.assert_allclose(op.desketch(KEY, table, x), want, atol=1e-5)


@pytest.mark.parametrize(
  ('make', 'matrix', 'size', 'd'),
  [
    (sketches.block_cyclic, block_cyclic_matrix, 13, 77),
    (sketches.block_cyclic, block_cyclic_matrix, 2, 77),
    (sketches.srht, srht_matrix, 20, 77),
    (sketches.srht, srht_matrix, 5, 20),
  ],
)
def test_operator_is_its_twin(make, matrix, size, d):
  op, r, x = make(size), matrix(d, size), normal(6, d)
  table = op.sketch(KEY, x)
  np.testing.assert_allclose(table, r @ x, atol=1e-5)
  want = r.T @ np.asarray(table)
  np.testing.assert_allclose(op.desketch(KEY, table, x), want, atol=1e-5)
