"""ChaCha20 on the host: another library's numbers, laws of draws at 1e-7."""

import collections
import itertools

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from fl_sketch.utils import chacha20, seeding
from hypothesis import given, settings, strategies as st
import numpy as np
import pytest
from scipy import stats

COUNTING = bytes(range(32))
ZERO = bytes(32)


def of_library(key, nonce, first, count):
  """The same words by the package `cryptography`."""
  start = first.to_bytes(4, 'little') + nonce
  cipher = Cipher(algorithms.ChaCha20(key, start), mode=None)
  return cipher.encryptor().update(bytes(64 * count))


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
  st.binary(min_size=32, max_size=32),
  st.binary(min_size=12, max_size=12),
  st.integers(0, 2**32 - 6),
  st.integers(0, 6),
)
def test_it_is_the_cipher_of_another_library(key, nonce, first, count):
  """Catches another rotation, round, layout or counter than the cipher's."""
  found = chacha20.key_stream(key, nonce, first, count)
  assert found == of_library(key, nonce, first, count)


@pytest.mark.parametrize(('key', 'first'), [(32, 2**32 - 1), (31, 0)])
def test_what_would_repeat_or_shorten_a_stream_is_refused(key, first):
  """Catches a counter that wraps around, and keys that are cut or padded."""
  with pytest.raises(ValueError, match='must be'):
    chacha20.key_stream(bytes(key), bytes(12), first, 2)


def generator(number=0, tag='draw'):
  return seeding.generator(COUNTING, tag, number)


def test_streams_are_functions_of_key_tag_and_counter():
  """Catches two uses of a key that share words, or a state between draws."""
  streams = [
    seeding.generator(key, tag, counter).random_raw(64).tobytes()
    for key in (COUNTING, ZERO)
    for tag in ('cohort poisson', 'poisson batches')
    for counter in (0, 1, 2**32, 2**64 - 1)
  ]
  words = [s[i : i + 8] for s in streams for i in range(0, len(s), 8)]
  assert len({*words}) == len(words)
  rng, whole = generator(), generator().random_raw(5000)
  parts = [rng.random_raw(n).ravel() for n in (0, 3, (2, 5), 1, 4986)]
  np.testing.assert_array_equal(np.concatenate(parts), whole)
  assert generator().random_raw((2, 5)).shape == (2, 5)


class Scripted(chacha20.Generator):
  """One whose words are given."""

  def __init__(self, *words):
    super().__init__(ZERO, bytes(12))
    self._words = list(words)

  def random_raw(self, size):
    taken, self._words = self._words[:size], self._words[size:]
    return np.array(taken, np.uint64)


def test_an_integer_has_no_bias():
  """Catches remainders of words that are not equally likely: 2^64 mod 3 = 1."""
  assert Scripted(0, 5).integers(3, size=1).tolist() == [2]
  assert Scripted(1, 2**64 - 1).integers(3, size=2).tolist() == [1, 0]
  assert Scripted(0, 9).integers(2**63, size=2).tolist() == [0, 9]
  # Nor has an order: equal words are drawn again.
  assert Scripted(4, 4, 7, 2).permutation(2).tolist() == [1, 0]


@pytest.mark.parametrize(
  ('p', 'heads'), [(0.5, 2**63), (2.0**-64, 1), (0.3, int(0.3 * 2**64))]
)
def test_a_coin_has_the_probability_that_is_accounted_for(p, heads):
  """Catches a coin that is rounded up, or off by one."""
  assert Scripted(heads - 1).binomial(1, p) == 1
  assert Scripted(heads).binomial(1, p) == 0
  assert Scripted(2**64 - 1, 0).binomial(2, 1.0) == 2  # 2^64 is no word
  assert Scripted(0).binomial(1, 1e-30) == 0


def fits(counts, expected):
  """Whether a chi-square is neither too large nor too small, at 1e-7."""
  counts, expected = np.asarray(counts, float), np.asarray(expected, float)
  statistic = ((counts - expected) ** 2 / expected).sum()
  low, high = stats.chi2.ppf([1e-7, 1 - 1e-7], len(counts) - 1)
  return low < statistic < high


def test_subsets_are_equally_likely():
  """Catches a subset that depends on how duplicates are left out."""
  n, size, draws, rng = 5, 3, 3000, generator()
  subsets = [*itertools.combinations(range(n), size)]
  found = collections.Counter(
    tuple(sorted(rng.choice(n, size).tolist())) for _ in range(draws)
  )
  assert {*found} <= {*subsets}
  counts = [found[s] for s in subsets]
  assert fits(counts, np.full(len(subsets), draws / len(subsets)))
