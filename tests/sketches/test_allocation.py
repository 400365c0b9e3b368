"""How layer-wise sketching shares out the numbers of its tables."""

import itertools
from typing import Any

from fl_sketch.sketches.layerwise import allocate_by_norm
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sketches.test_layerwise import cyclic, handed_out


def instances(count, seed):
  """Random (sizes, norms, size), with empty leaves and norms of zero."""
  rng = np.random.default_rng(seed)
  for _ in range(count):
    n = rng.integers(1, 8)
    sizes = np.floor(10 ** rng.uniform(-0.5, 4, n)).astype(int)
    norms = 10 ** rng.uniform(-2, 2, n) * (rng.random(n) > 0.2)
    least = max((sizes > 0).sum(), 1)
    if sizes.sum() >= least:
      size = rng.integers(least, sizes.sum() + 1)
      yield tuple(sizes.tolist()), norms.tolist(), int(size)


def variance(b, norms, sizes):
  used = [x for x in zip(b, norms, sizes, strict=True) if x[2]]
  return sum(d / n * norm**2 for n, norm, d in used)


def water_level(weights, sizes, size):
  """min(max(t w, 1), d) of sum `size`, by bisection on log t."""
  sizes = np.array(sizes, float)
  at = lambda t: np.minimum(np.maximum(np.exp(t) * weights, 1), sizes)
  low, high = -800.0, 800.0
  for _ in range(200):
    middle = (low + high) / 2
    low, high = (middle, high) if at(middle).sum() < size else (low, middle)
  return at(high)


@pytest.mark.parametrize('rule', ['proportional', 'sqrt'])
def test_rules_share_out_by_their_weights(rule):
  """Totals are exact, and no leaf is off by 1 from the real solution."""
  for sizes, _, size in instances(200, 0):
    b = np.array(handed_out(cyclic(size, rule), sizes))
    assert b.sum() == size
    assert ((b >= np.minimum(1, sizes)) & (b <= sizes)).all()
    power = {'proportional': 1.0, 'sqrt': 0.5}[rule]
    want = water_level(np.array(sizes) ** power, sizes, size)
    assert (np.abs(b - want) < 1 + 1e-6).all()


def test_allocation_by_norm_is_the_best_there_is():
  rng = np.random.default_rng(1)
  for _ in range(200):
    sizes = rng.integers(1, 8, 3).tolist()
    norms = (10 ** rng.uniform(-1, 1, 3) * (rng.random(3) > 0.2)).tolist()
    size = int(rng.integers(3, sum(sizes) + 1))
    allocation = allocate_by_norm(norms, sizes, size)
    every_b = itertools.product(*(range(1, d + 1) for d in sizes))
    best = min(variance(b, norms, sizes) for b in every_b if sum(b) == size)
    assert sum(allocation) == size
    assert variance(allocation, norms, sizes) <= best * (1 + 1e-9)


def test_allocation_by_norm_is_never_worse_than_the_rules():
  for sizes, norms, size in instances(200, 2):
    allocation = allocate_by_norm(norms, sizes, size)
    assert sum(allocation) == size
    assert all(
      min(d, 1) <= b <= d for b, d in zip(allocation, sizes, strict=True)
    )
    least = variance(allocation, norms, sizes)
    for rule in ('proportional', 'sqrt'):
      other = handed_out(cyclic(size, rule), sizes)
      assert least <= variance(other, norms, sizes) * (1 + 1e-9)


def test_allocation_at_the_ends():
  op = cyclic(8)
  assert handed_out(op, (10, 10, 0, 10)) == (3, 3, 0, 2)  # equal remainders
  assert allocate_by_norm([0.0, 0.0], [8, 4], 6) == (4, 2)
  assert allocate_by_norm([1.0, 0.0], [4, 8], 7) == (4, 3)
  assert allocate_by_norm([1.0, 2.0], [4, 8], 99) == (4, 8)
  assert allocate_by_norm([2.0, 1.0, 5.0], [16, 16, 0], 9) == (6, 3, 0)
  assert allocate_by_norm([2e-300, 1e-300], [16, 16], 9) == (6, 3)
  assert allocate_by_norm([2e300, 1e300], [16, 16], 9) == (6, 3)
  norms: Any = jnp.arange(1, 3)
  assert allocate_by_norm(norms, [9, 9], 9) == (3, 6)
  b = allocate_by_norm([2.0, 1.0, 5.0], [16, 16, 0], 9)
  assert handed_out(cyclic(9, b), (16, 16, 0)) == b
