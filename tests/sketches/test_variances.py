"""Exact variances of inner products, odd sizes, against every draw there is."""

import itertools

from fl_sketch import sketches
from fl_sketch.sketches import fourier
import jax
import jax.numpy as jnp
import numpy as np
import operators
import pytest

PAIRS = np.random.default_rng(2).normal(size=(3, 2, 5))


def signs(count):
  return map(np.array, itertools.product([-1.0, 1.0], repeat=count))


def shifted(d, cols):
  """All shifts of blocks, all signs."""
  blocks = -(-d // cols)
  for shift in itertools.product(range(cols), repeat=blocks):
    for row in signs(d):
      r = np.zeros((cols, d))
      for i in range(d):
        r[(i + shift[i // cols]) % cols, i] = row[i]
      yield r


def transformed(rows, b):
  """All signs of the columns of a unitary matrix, and all b of its rows."""
  n, d = rows.shape
  for chosen in itertools.combinations(range(n), b):
    for row in signs(d):
      yield (n / b) ** 0.5 * rows[list(chosen)] * row[None]


def in_blocks(b):
  """All draws of two blocks of two: order of the rows, first column, signs."""
  whole = np.kron([[1, 1], [1, -1]], np.eye(2)) / 2**0.5
  for first, turn in itertools.product(range(2), repeat=2):
    rows = [2 * row + k for row in (first, 1 - first) for k in range(2)]
    at = b - b % 2
    rows = [*rows[:at], rows[at + turn]] if b % 2 else rows[:b]
    for row in signs(4):
      yield (4 / b) ** 0.5 * whole[rows] * row[None]


def unitary(make, d):
  """A transform with some signs: the operator of full size."""
  sketch = jax.vmap(make(d).sketch, (None, 0), 1)
  return np.asarray(sketch(operators.KEY, jnp.eye(d)))


HADAMARD = np.kron(*[np.array([[1, 1], [1, -1]])] * 2) / 2
DRAWS = {  # by operator, d and every matrix
  'cyclic': (sketches.block_cyclic(2), 5, shifted(5, 2)),
  'srht': (sketches.srht(3), 4, transformed(HADAMARD, 3)),
  'srht, padded': (sketches.srht(2), 3, transformed(HADAMARD[:, :3], 2)),
} | {
  f'{b} of blocks': (sketches.block_srht(b, block=2), 4, in_blocks(b))
  for b in (1, 2, 3)
} | {
  f'{make.__name__} of {d}': (make(b), d, transformed(unitary(make, d), b))
  for make in (sketches.dct, sketches.srft)
  for d, b in ((1, 1), (2, 1), (4, 3), (5, 2))
}  # fmt: skip


@pytest.mark.parametrize('name', DRAWS)
def test_variances_are_those_of_all_draws(name):
  """Catches a pair of coordinates that counts twice, or not at all."""
  op, d, matrices = DRAWS[name]
  every = np.stack(list(matrices))
  for g, h in PAIRS[:, :, :d]:
    values = ((every @ g).conj() * (every @ h)).real.sum(1)
    assert values.mean() == pytest.approx(g @ h)
    exact = sketches.properties(op).variance(g, h)
    assert exact == pytest.approx(values.var(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
  ('make', 'ratio'), [(sketches.dct, 1.5), (sketches.srft, 2.0)]
)
def test_mirrored_coordinates_are_found_in_transforms_of_several_parts(
  make, ratio
):
  """Catches another order of the numbers than that of `fourier`."""
  # 2 means within 6 standard errors, nominally: 4e-9 to miss one.
  op, d, size = make(4), 2**13, 4
  assert fourier.split(d, size)[1] == 2
  first, others = jnp.eye(1, d)[0], np.array([1, d // 4])
  keys = jax.random.split(jax.random.key(3), 1000)

  def one(key, k):
    y, z = (op.sketch(key, x) for x in (first, jnp.zeros(d).at[k].set(1.0)))
    return jnp.vdot(y, z).real

  products = operators.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
  squares = np.square(np.float64(products(keys, others)))
  mean, error = operators.mean_and_error(squares)
  spikes = [np.eye(1, d, k)[0] for k in (0, *others)]
  variance = sketches.properties(op).variance
  exact = np.array([variance(spikes[0], spike) for spike in spikes[1:]])
  assert (np.abs(mean - exact) < 6 * error).all()
  assert exact[1] == pytest.approx(ratio * exact[0], rel=1e-3)
