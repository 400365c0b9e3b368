"""Hashes, permutations, medians, transforms; options that do not fit."""

import itertools

from fl_sketch import sketches
from fl_sketch.sketches import fourier, hadamard, hashing, primitives
import jax
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, OPERATORS, TREE
import pytest
from refusals import counts_below_one, refused


def test_network_finds_the_middle():
  """By the 0-1 principle: whatever sorts all bits sorts all numbers."""
  for n in range(1, 11):
    bits = np.array(list(itertools.product([0, 1], repeat=n))).T
    wires, ones = list(bits), bits.sum(0)
    for i, j in primitives.network(n):
      low, high = np.minimum(wires[i], wires[j]), np.maximum(wires[i], wires[j])
      wires[i], wires[j] = low, high
    for middle in {(n - 1) // 2, n // 2}:
      np.testing.assert_array_equal(wires[middle], ones >= n - middle)


@pytest.mark.parametrize('n', [1, 20, primitives.MAX_NETWORK + 1])
def test_median_is_numpys(n):
  x = np.random.default_rng(n).integers(-9, 9, (n, 200)).astype(np.float32)
  got = operators.jit(primitives.median)(x)
  np.testing.assert_allclose(got, np.median(x, 0), rtol=1e-6)


def test_products_modulo_the_prime_never_wrap():
  prime, rng = int(hashing.PRIME), np.random.default_rng(0)
  edges = [0, 1, 2, 2**15, 2**16 - 1, 2**16, 2**30, prime - 2, prime - 1]
  numbers = [*edges, *rng.integers(0, prime, 200).tolist()]
  a, b = np.array(list(itertools.product(numbers, numbers)), np.uint32).T
  want = [int(x) * int(y) % prime for x, y in zip(a, b, strict=True)]
  np.testing.assert_array_equal(jax.jit(hashing._multiply)(a, b), want)
  words = np.array([*numbers, prime, prime + 1, 2**32 - 1], np.uint32)
  want = [int(x) % prime for x in words]
  np.testing.assert_array_equal(hashing._reduce(words), want)


def words_of(counters, k, draws):
  """uint32[draws, counters] of members of a k-wise independent family."""

  def one(key):
    (family,) = hashing.families(key, 1, k, hashing.SIGN)
    return hashing.kwise(jnp.array(counters, jnp.uint32), family)

  keys = jax.random.split(jax.random.key(5), draws)
  return np.asarray(jax.jit(jax.vmap(one))(keys)).astype(np.int64)


def test_two_words_are_independent():
  # 49 cells within 6 standard errors: 1e-7 to miss one.
  words = words_of((3, 2**31 - 2), 2, 40_000) % 7
  counts = np.zeros((7, 7))
  np.add.at(counts, tuple(words.T), 1)
  p = 1 / 49
  error = np.sqrt(len(words) * p * (1 - p))
  assert np.abs(counts - len(words) * p).max() < 6 * error


def test_four_words_have_independent_signs():
  # 31 x 15 products of signs within 6.5 standard errors: 4e-8 to miss one.
  words = words_of((0, 1, 2, 3), 4, 40_000)
  bits = words[:, :, None] >> np.arange(31) & 1
  signs = 1 - 2 * bits
  for size in range(1, 5):
    for chosen in itertools.combinations(range(4), size):
      mean = signs[:, list(chosen)].prod(1).mean(0)
      assert np.abs(mean).max() < 6.5 / np.sqrt(len(words))


@pytest.mark.parametrize('bits', [0, 1, 9])
def test_hadamard_transform_is_its_matrix(bits, monkeypatch):
  monkeypatch.setattr(hadamard, 'CACHED', 16)
  x = np.random.default_rng(0).normal(size=2**bits).astype(np.float32)
  h = np.ones((1, 1))
  for _ in range(bits):
    h = np.block([[h, h], [h, -h]])
  for form in hadamard.fwht, lambda x: hadamard.levels(x, x.size, 1):
    np.testing.assert_allclose(operators.jit(form)(x), h @ x, atol=1e-3)
  for shape in ((6,), (0,), (2, 2), ()):
    with pytest.raises(ValueError, match='shape'):
      sketches.fwht(jnp.zeros(shape))


@pytest.mark.parametrize(('n', 'parts'), [(1, 1), (9, 1), (12, 1), (20, 4)])
def test_rows_of_a_transform_in_parts(n, parts):
  x = np.random.default_rng(n).normal(size=n).astype(np.float32)
  rows = np.arange(n)[::-1].copy()
  number = np.arange(n).reshape(n // parts, parts).T.ravel()
  matrix = np.exp(-2j * np.pi * np.outer(rows, number) / n)
  some = rows[: n - n // 3]
  draw = np.random.default_rng(1).normal(size=(2, some.size))
  values = np.complex64(np.array([1, 1j]) @ draw)
  both = lambda x, values, rows: (
    fourier.pick(x, rows, parts),
    fourier.place(values, rows[: some.size], n, parts),
  )
  picked, placed = operators.jit(both)(x, values, rows)
  np.testing.assert_allclose(picked, matrix @ x, atol=1e-4)
  want = (matrix[: some.size].conj().T @ values).real
  np.testing.assert_allclose(placed, want, atol=1e-4)


def test_lengths_of_transforms_are_products_of_small_primes():
  dims = *range(4097, 60_000, 997), 33_601, 10**6 + 3, 10**8
  for d, size in itertools.product(dims, (1, 10, 4000)):
    n, parts = fourier.split(d, size)
    assert d <= n < 1.03 * d
    rest = n
    for prime in (2, 3, 5, 7):
      while rest % prime == 0:
        rest //= prime
    assert rest == 1
    assert parts & (parts - 1) == 0
    assert n % parts == 0
    assert parts * size <= d / 8 or parts == 1
  assert fourier.split(4093, 10) == (4093, 1)


# Catches an operator that is built with a size of 0, or 2.5.
test_a_count_below_one_is_refused_by_name = counts_below_one(sketches, {
  'gaussian': {'size': 8}, 'ams': {'size': 8}, 'dct': {'size': 8},
  'srft': {'size': 8}, 'srht': {'size': 8}, 'uniform_sampling': {'size': 8},
  'block_srht': {'size': 8, 'block': 8}, 'count_sketch': {'rows': 3, 'cols': 2},
  'block_cyclic': {'size': 8, 'sparsity': 2},
  'sparse_embedding': {'size': 8, 'sparsity': 2},
})  # fmt: skip


test_options_that_do_not_fit_are_refused_by_name = refused(
  lambda x: sketches.make(x[0], **x[1]),
  (('block_srht', {'size': 8, 'block': 24}), 'block'),
  (('block_cyclic', {'size': 6, 'sparsity': 4}), 'sparsity'),
  (('count_sketch', {'rows': 3, 'cols': 3, 'combine': 'max'}), 'combine'),
  (('dct', {'size': 3, 'rows': 3}), 'rows'), (('sha', {'size': 3}), 'sketch'),
)  # fmt: skip


@pytest.mark.parametrize('name', OPERATORS)
def test_bad_trees(name):
  """Catches tables of another shape, and trees that are no floats or small."""
  op, small = OPERATORS[name].op, jnp.ones(15)
  with pytest.raises(ValueError, match='dtype'):
    op.sketch(KEY, {'w': jnp.ones(64, jnp.int32)})
  with pytest.raises(ValueError, match='table'):
    op.desketch(KEY, jnp.ones((3, 5, 7)), TREE)
  if name != 'identity':
    with pytest.raises(ValueError, match='exceeds'):
      op.sketch(KEY, small)
    with pytest.raises(ValueError, match='exceeds'):
      op.desketch(KEY, op.zero_table(TREE), small)
