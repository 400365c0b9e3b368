"""ChaCha20 as a generator of JAX: its blocks, and that no two uses share one.

The rounds of the engine with its keys are in test_generators.py.
"""

import math

from fl_sketch.privacy.mechanisms import chacha20
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.utils import chacha20 as host
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from tests.utils.test_chacha20 import COUNTING, VECTORS, of_library

KEY = chacha20.of_bytes(COUNTING)
words_of = lambda text: np.frombuffer(text, '<u4').astype(np.uint32)
blocks = jax.jit(chacha20.blocks)


def nonce(*words):
  return b''.join(w.to_bytes(4, 'little') for w in words)


def data(key):
  return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize('name', VECTORS)
def test_published_blocks(name):
  """Catches a loop of another number of rounds than the host's."""
  key, text, counter, stream = VECTORS[name]
  found = blocks(
    words_of(key), jnp.full(3, counter, 'u4'), words_of(bytes.fromhex(text))
  )
  for block in np.asarray(found).T:
    assert block.astype('<u4').tobytes().hex() == stream


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
  st.binary(min_size=32, max_size=32),
  st.binary(min_size=12, max_size=12),
  st.integers(0, 2**32 - 5),
)
def test_it_is_the_cipher_of_another_library(key, text, first):
  """Catches what the few published blocks do not reach."""
  counter = np.arange(first, first + 4, dtype=np.uint64).astype(np.uint32)
  found = np.asarray(blocks(words_of(key), counter, words_of(text)))
  assert found.T.astype('<u4').tobytes() == of_library(key, text, first, 4)


@pytest.mark.parametrize(
  ('shape', 'dtype'),
  [((), 'u4'), ((33,), 'u4'), ((3, 7), 'u4'), ((5,), 'u2'), ((5,), 'u1')],
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


@pytest.mark.parametrize('number', [0, 1, 2**31 - 1, 2**32 - 1])
def test_a_subkey_is_a_block_of_its_own_nonce(number):
  """Catches a subkey that is a sum or a stretch of the key that was."""
  stream = of_library(COUNTING, nonce(1, number, 0), 0, 1)
  found = jax.random.fold_in(KEY, np.uint32(number))
  np.testing.assert_array_equal(data(found), words_of(stream[:32]))


def test_splits_are_blocks_of_their_own_nonce():
  """Catches splits that are folds or draws."""
  stream = of_library(COUNTING, nonce(2, 0, 0), 0, 6)
  want = [words_of(stream[64 * i : 64 * i + 32]) for i in range(6)]
  found = jax.random.split(KEY, (2, 3))
  np.testing.assert_array_equal(data(found).reshape(6, 8), want)


def test_no_two_uses_of_a_key_share_a_word():
  """Catches nonces that collide: bits, folds and splits of small numbers."""
  seen = [np.asarray(jax.random.bits(KEY, (512,)))]
  seen += [data(jax.random.split(KEY, 64)).ravel()]
  folds = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(64))
  seen += [data(folds).ravel()]
  for i in (0, 1, 2):
    below = jax.random.fold_in(jax.random.fold_in(KEY, i), i)
    seen += [data(below), np.asarray(jax.random.bits(below, (64,)))]
  every = np.concatenate(seen)
  # Chance collisions of so many words of 32 bits: 1.4e-4. The key is fixed.
  assert len(np.unique(every)) == len(every)


def test_every_bit_of_a_key_counts():
  """Catches a key of 256 bits of which only some are used."""
  found = {int(jax.random.bits(KEY))}
  keys = []
  for i in range(256):
    changed = bytearray(COUNTING)
    changed[i // 8] ^= 1 << i % 8
    keys.append(chacha20.of_bytes(bytes(changed)))
  found.update(np.asarray(jax.vmap(jax.random.bits)(jnp.stack(keys))).tolist())
  assert len(found) == 257  # by chance fewer in 8e-6 of all keys


def draw(key):
  """Folds, splits and draws, as rounds do."""
  a, b = jax.random.split(jax.random.fold_in(key, 5))
  return jax.random.normal(a, (3,)), jax.random.bits(b, (2, 9))


@pytest.mark.nightly
def test_transformed_programs_draw_the_same_bits():
  """Catches a vmapped, scanned or sharded draw that is another one."""
  keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(4))
  want = [draw(key) for key in keys]
  stacked = jax.tree.map(lambda *xs: np.stack(xs), *want)
  mesh, lanes = mesh_lib.cohort_mesh(2), P(comms.SHARD)
  in_shards = jax.shard_map(
    jax.vmap(draw), mesh=mesh, in_specs=lanes, out_specs=lanes
  )
  scanned = lambda keys: jax.lax.scan(lambda _, k: (0, draw(k)), 0, keys)[1]
  for fn in (jax.jit(jax.vmap(draw)), jax.jit(scanned), jax.jit(in_shards)):
    found = fn(keys)
    np.testing.assert_array_equal(found[1], stacked[1])
    np.testing.assert_allclose(found[0], stacked[0], rtol=1e-6)


def test_seeds_are_keys_of_their_own():
  """Catches a seed that is cut to fewer bits."""
  keys = [jax.random.key(i, impl=chacha20.IMPL) for i in (0, 1, 2**31 - 1)]
  with jax.enable_x64(True):
    wide = np.int64(2**40 + 1)
    keys.append(jax.random.key(wide, impl=chacha20.IMPL))
  assert len({tuple(data(k)) for k in keys}) == 4


def test_a_counter_never_repeats():
  """Catches blocks beyond 2^31, whose counters would wrap around."""
  with pytest.raises(ValueError, match=r'blocks=.* < 2\*\*31'):
    chacha20._stream(data(KEY), 0, 2**31)


def test_a_key_has_32_bytes():
  """Catches a key that is padded."""
  with pytest.raises(ValueError, match=r'len\(key\)=31'):
    chacha20.of_bytes(COUNTING[1:])
  assert host.KEY_BYTES == 32
