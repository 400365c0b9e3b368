"""How layer-wise sketching shares out the numbers of its tables."""

import numpy as np
import pytest

from tests.sketches.test_layerwise import cyclic, handed_out


def instances(count, seed):
  """Random (sizes, size), with empty leaves."""
  rng = np.random.default_rng(seed)
  for _ in range(count):
    n = rng.integers(1, 8)
    sizes = np.floor(10 ** rng.uniform(-0.5, 4, n)).astype(int)
    least = max((sizes > 0).sum(), 1)
    if sizes.sum() >= least:
      size = rng.integers(least, sizes.sum() + 1)
      yield tuple(sizes.tolist()), int(size)


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
  for sizes, size in instances(200, 0):
    b = np.array(handed_out(cyclic(size, rule), sizes))
    assert b.sum() == size
    assert ((b >= np.minimum(1, sizes)) & (b <= sizes)).all()
    power = {'proportional': 1.0, 'sqrt': 0.5}[rule]
    want = water_level(np.array(sizes) ** power, sizes, size)
    assert (np.abs(b - want) < 1 + 1e-6).all()


def test_allocation_at_the_ends():
  op = cyclic(8)
  assert handed_out(op, (10, 10, 0, 10)) == (3, 3, 0, 2)  # equal remainders
