"""What operators are made of: the median's network, hashed permutations."""

import itertools

from fl_sketch.sketches import hashing
from fl_sketch.sketches import median
import jax
import jax.numpy as jnp
import numpy as np
import pytest


def test_network_finds_the_middle():
  """By the 0-1 principle: whatever sorts all bits sorts all numbers."""
  for n in range(1, 11):
    bits = np.array(list(itertools.product([0, 1], repeat=n))).T
    wires, ones = list(bits), bits.sum(0)
    for i, j in median.network(n):
      low, high = np.minimum(wires[i], wires[j]), np.maximum(wires[i], wires[j])
      wires[i], wires[j] = low, high
    for middle in {(n - 1) // 2, n // 2}:
      np.testing.assert_array_equal(wires[middle], ones >= n - middle)


@pytest.mark.parametrize('n', [1, 2, 5, 20, 50, median.MAX_NETWORK + 1])
def test_median_is_numpys(n):
  x = np.random.default_rng(n).integers(-9, 9, (n, 200)).astype(np.float32)
  got = jax.jit(median.median)(x)
  np.testing.assert_allclose(got, np.median(x, 0), rtol=1e-6)


def test_permutations_are_uniform_on_pairs():
  # 56 ordered pairs of images, of 2 counters, within 6 standard errors: 1e-7.
  keys = jax.random.split(jax.random.key(3), 8000)
  permute = lambda key: hashing.permute(jnp.arange(8, dtype='uint32'), 3, key)
  images = np.asarray(jax.jit(jax.vmap(permute))(keys))
  np.testing.assert_array_equal(np.sort(images, 1)[0], np.arange(8))
  counts = np.zeros((8, 8))
  np.add.at(counts, (images[:, 0], images[:, 1]), 1)
  off_diagonal = counts[~np.eye(8, dtype=bool)]
  p = 1 / 56
  error = np.sqrt(len(keys) * p * (1 - p))
  assert np.abs(off_diagonal - len(keys) * p).max() < 6 * error
  assert np.trace(counts) == 0
