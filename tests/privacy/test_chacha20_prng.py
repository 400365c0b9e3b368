"""ChaCha20 as a generator of JAX, and the roots and keys of secrets."""

import math

import cases
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf import hkdf
from fl_sketch.privacy.mechanisms import chacha20_prng, generators
from fl_sketch.rounds import keys as keys_lib
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.utils.test_chacha20 import COUNTING, of_library

KEY = chacha20_prng.of_bytes(COUNTING)
words_of = lambda text: np.frombuffer(text, '<u4').astype(np.uint32)
blocks = jax.jit(chacha20_prng.blocks)


def nonce(*words):
  return b''.join(w.to_bytes(4, 'little') for w in words)


def data(key):
  return np.asarray(jax.random.key_data(key))


@settings(max_examples=15, derandomize=True, deadline=None)
@given(
  st.binary(min_size=32, max_size=32),
  st.binary(min_size=12, max_size=12),
  st.integers(0, 2**32 - 5),
)
def test_it_is_the_cipher_of_another_library(key, text, first):
  """Catches another rotation, round, layout or counter than the cipher's."""
  counter = np.arange(first, first + 4, dtype=np.uint64).astype(np.uint32)
  found = np.asarray(blocks(words_of(key), counter, words_of(text)))
  assert found.T.astype('<u4').tobytes() == of_library(key, text, first, 4)


@pytest.mark.parametrize(
  ('shape', 'dtype'), [((), 'u4'), ((3, 7), 'u4'), ((5,), 'u1')]
)
def test_bits_are_the_key_stream(shape, dtype):
  """Catches words that are skipped, repeated or in another order."""
  count = math.prod(shape)
  stream = of_library(COUNTING, nonce(0, 0, 0), 0, -(-count // 16))
  want = np.frombuffer(stream, '<u4')[:count].astype(dtype).reshape(shape)
  found = jax.random.bits(KEY, shape, np.dtype(dtype).name)
  np.testing.assert_array_equal(found, want)
  assert found.dtype == dtype


def test_wide_bits_are_two_words_each():
  """Catches the halves of 64 bits that are the same word."""
  with jax.enable_x64(True):
    found = np.asarray(jax.random.bits(KEY, (9,), 'uint64'))
  stream = of_library(COUNTING, nonce(0, 0, 0), 0, 2)
  np.testing.assert_array_equal(found, np.frombuffer(stream, '<u8')[:9])


def test_subkeys_are_blocks_of_nonces_of_their_own():
  """Catches subkeys that share words, or are sums of the key."""
  fold = jax.jit(jax.random.fold_in)
  for number in *range(64), 2**32 - 1:
    stream = of_library(COUNTING, nonce(1, number, 0), 0, 1)
    found = fold(KEY, np.uint32(number))
    np.testing.assert_array_equal(data(found), words_of(stream[:32]))
  stream = of_library(COUNTING, nonce(2, 0, 0), 0, 6)
  want = [words_of(stream[64 * i : 64 * i + 32]) for i in range(6)]
  found = jax.random.split(KEY, (2, 3))
  np.testing.assert_array_equal(data(found).reshape(6, 8), want)


def test_what_would_repeat_is_refused():
  """Catches a key that is padded, and counters that wrap around."""
  with pytest.raises(ValueError, match='blocks'):
    chacha20_prng._stream(data(KEY), 0, 2**31)
  with pytest.raises(ValueError, match='key'):
    chacha20_prng.of_bytes(COUNTING[1:])


SECRETS = [bytes([i]) * 32 for i in range(5)]


def words(key):
  return np.asarray(jax.random.key_data(key)).tolist()


def test_roots_are_expanded_under_labels():
  """Catches noise and sampling that share a key, or another derivation."""
  for secret in SECRETS:
    noise, sampling = generators.roots(secret)
    found = np.array(words(noise), '<u4').tobytes(), sampling
    for root, label in zip(found, (b'noise', b'sampling'), strict=True):
      info = b'fl_sketch ' + label
      expand = hkdf.HKDFExpand(hashes.SHA256(), length=32, info=info)
      assert root == expand.derive(secret)


def test_reproducible_roots_are_what_they_were():
  """Catches results with a noise_seed that an upgrade would change."""
  digest = bytes(range(32))
  noise, sampling = generators.reproducible_roots(digest)
  assert words(noise) == np.frombuffer(digest[:8], np.uint32).tolist()
  assert sampling == int.from_bytes(digest[8:16], 'big')


def test_other_lengths_are_refused():
  """Catches a secret of fewer bits."""
  for length in 0, 31, 33:
    with pytest.raises(ValueError, match='secret'):
      generators.roots(bytes(length))


def test_keys_of_rounds_and_clients_differ():
  """Catches a fold that forgets what was folded in before."""

  @cases.jit
  def keys_of(root, r):
    k = keys_lib.noise_keys(root, r)
    clients = [keys_lib.for_client(k, i) for i in jnp.arange(2)]
    own = [keys_lib.local_key(one) for one in clients]
    own += [one.client for one in clients]
    return k.server, k.client, keys_lib.metrics_key(k), *own

  roots = [generators.roots(secret).noise_key for secret in SECRETS[:2]]
  keys = [key for root in roots for r in range(3) for key in keys_of(root, r)]
  assert len({tuple(words(key)) for key in keys}) == len(keys) == 42
