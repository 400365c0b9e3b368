"""The law of discrete Gaussian noise; false alarms of a test below 1e-6."""

import bisect
import re

import cases
from fl_sketch.privacy.mechanisms import discrete_gaussian as dg
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
from private_cases import uncorrelated
import pytest
from scipy import stats

KEY = jax.random.key(3)


def draw(base, multiple, count):
  """Integers of the noise, i64[count]."""
  like = jax.ShapeDtypeStruct((count,), jnp.float32)
  one = cases.jit(lambda key, c: dg.draw(key, like, base, c))
  return np.asarray(one(KEY, multiple), np.int64)


def chi_square(x, stddev):
  """P-value of integers under the law, in bins of equal width and two tails."""
  width = max(1, int(stddev / 16))
  edges = np.arange(-int(3.5 * stddev), int(3.5 * stddev) + width, width)
  everything = np.arange(-int(14 * stddev), int(14 * stddev) + 1)
  weights = np.exp(-(everything**2.0) / (2 * stddev**2))
  weights /= weights.sum()
  bin_of = lambda values: np.searchsorted(edges, values, side='right')
  want = np.bincount(bin_of(everything), weights, len(edges) + 1) * len(x)
  got = np.bincount(bin_of(x), minlength=len(edges) + 1)
  assert want.min() > 5
  return stats.chisquare(got, want * got.sum() / want.sum()).pvalue


@pytest.mark.parametrize(('base', 'multiple'), [(16, 0), (16, 5), (1024, 2)])
def test_noise_has_the_law(base, multiple):
  """Catches a wrong table, sign, sum or search, and errors of 1e-2 in a bin."""
  x = draw(base, multiple, 200_000)
  stddev = dg.stddev(base, multiple)
  assert chi_square(x, stddev) > 1e-7
  assert chi_square(x, 1.03 * stddev) < 1e-7  # the test has power
  assert uncorrelated(x[:-1], x[1:])


@pytest.mark.parametrize('base', [16, 1024])
def test_the_table_has_the_tails_to_128_bits(base):
  """Catches weights of doubles: they are right to 53 bits only."""
  mpmath.mp.prec = 300
  rows = dg._tails(base)
  weight = lambda k: mpmath.exp(-mpmath.mpf(k * k) / (2 * base * base))
  weights = [weight(k) for k in range(15 * base)]
  whole = 2 * mpmath.fsum(weights) - 1
  for k in (0, 1, base, 5 * base, 12 * base):
    above = mpmath.fsum(weights[k + 1 :])
    want = int(2 * above / whole * 2**128)
    got = int.from_bytes(rows[:, k].astype('>u4').tobytes(), 'big')
    assert abs(got - want) <= 2
  assert not rows[:, -1].any()
  # A table of 64 bits would end at 9 deviations.
  assert 9 * base < np.flatnonzero((rows[:2] == 0).all(0))[0] < 10 * base


def words_of(values, signs):
  """First words and further ones, whose V are integers of 128 bits."""
  rng = np.random.default_rng(1)
  v = [[x >> s & 0xFFFFFFFF for x in values] for s in range(96, -1, -32)]
  v = np.array(v, np.uint32).reshape(4, -1, dg._BLOCK)
  signs = np.uint32(signs).reshape(v.shape[1:])
  free = rng.integers(0, 2**31, signs.shape, dtype=np.uint32) << 1
  return v[0] & ~np.uint32(1) | signs, np.stack([v[0] & 1 | free, *v[1:]])


@pytest.mark.parametrize('base', [16, 64, 256, 1024])
def test_words_are_inverted_to_the_last_bit(base):
  """Catches a guess or search one off, and ties, which draws do not show."""
  above = dg._tails(base)[:, ::-1].T.astype('>u4')
  above = [int.from_bytes(row.tobytes(), 'big') for row in above]
  near = [x + d for x in above for d in (-(2**97), -(2**96), -1, 0, 2**96)]
  values = [x for x in near if x >= 0] + [0, 1, 2**96, 2**128 - 1]
  values = values[: -(len(values) % dg._BLOCK) or None]
  rng = np.random.default_rng(0)
  signs = rng.integers(0, 2, len(values))
  want = [len(above) - bisect.bisect_right(above, v) for v in values]
  first, more = words_of(values, signs)
  want = np.reshape(want, first.shape)
  invert = cases.jit(lambda first, more: dg._magnitude(first, more, base))
  np.testing.assert_array_equal(invert(first, more), want)
  # Of all blocks only those with a tie, and others, have words of their own.
  heads = np.unique(dg._tails(base)[0] | 1)
  tied = np.isin(first | 1, heads)
  free = np.flatnonzero(~tied.ravel())
  free = free[: len(free) // dg._BLOCK * dg._BLOCK].reshape(-1, dg._BLOCK)
  rows = rng.permutation(len(free) + 3)
  pick = lambda x: np.concatenate([x.reshape(-1)[free], x[:60:20]])[rows]
  ends = np.flatnonzero(rows >= len(free))
  few = np.stack([more[:, 20 * (i - len(free))] for i in rows[ends]], 1)
  np.testing.assert_array_equal(invert(pick(first), few), pick(want))


def test_more_ties_than_blocks_are_rarer_than_the_last_bit():
  """Catches a bound that holds on average, or for one size alone."""
  for base in 16, 1024:
    chance = len(np.unique(dg._tails(base)[0] >> 1)) / 2**31
    for rows in 20, 10**3, 10**5, 10**7:
      most, mean = dg._capacity(base, rows, 16), rows * 16 * chance
      assert most == rows or stats.poisson.logsf(most, mean) < -128 * np.log(2)
      assert most < 60 + 4 * mean  # and the blocks are few


def test_no_loop_depends_on_what_is_drawn():
  """Catches a search until all numbers are found: its time tells them."""
  for size in 10, 10**5:
    like = jax.ShapeDtypeStruct((size,), jnp.float32)
    text = str(jax.make_jaxpr(lambda key, x=like: dg.draw(key, x, 16, 5))(KEY))
    assert 'scan' in text
    assert not {'while', 'cond'} & {*re.findall(r'\w+', text)}


def test_noises_of_leaves_and_keys_are_independent():
  """Catches one key for all leaves, or for all levels of a sum."""
  n = 50_000
  like = {'a': jnp.zeros(n), 'b': jnp.zeros((2, n // 2))}
  one = cases.jit(lambda key: dg.draw(key, like, 16, 5))
  trees = [one(jax.random.key(key)) for key in (0, 1)]
  draws = [np.ravel(x) for x in jax.tree.leaves(trees)]
  for i, x in enumerate(draws):
    assert all(uncorrelated(x, y) for y in draws[:i])


def test_the_largest_multiple_leaves_integers_dense():
  """Catches a multiple that leaves holes between the sums, or a wide int."""
  for base in 16, 1024:
    c = dg.most(base)
    assert base / np.hypot(1, c) >= dg.SMOOTH  # of A_1 given A_0 + c A_1
    assert dg._tails(base).shape[1] * (1 + c + c * c) < 2**31
