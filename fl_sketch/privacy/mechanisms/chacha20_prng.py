"""ChaCha20 as a generator of JAX: keys of 256 bits, cryptographic subkeys.

A key is the key of the cipher. Each use has its own nonce: (0, 0, 0) for bits,
(1, n, 0) for folding in n, (2, 0, 0) for a split. A subkey is the first half of
a block. Draws and subkeys therefore tell nothing about each other.

Source: RFC 8439, sections 2.3 and 2.6. Tested with JAX 0.10: uses
`jax.extend.random`.
"""

from collections.abc import Sequence
import math

from fl_sketch.utils import chacha20
from fl_sketch.utils.types import Key
import jax
from jax.extend import random as extend_random
import jax.numpy as jnp
import numpy as np

_BITS, _FOLD, _SPLIT = range(3)  # the first word of the nonce


def blocks(key: jax.Array, counter: jax.Array, nonce: jax.Array) -> jax.Array:
  """Compute blocks of the key stream, uint32[16, blocks].

  Key uint32[8], counter uint32[blocks], nonce uint32[3].
  """
  start = chacha20.first_state(key, counter, nonce, jnp)
  step = lambda rows: chacha20.double_round(rows, jnp)
  # A loop requires a carry that varies over a mesh as its result does: after
  # one step all rows vary if any argument does.
  rows = jax.lax.fori_loop(
    1, chacha20.DOUBLE_ROUNDS, lambda _, rows: step(rows), step(start)
  )
  return jnp.concatenate([x + y for x, y in zip(rows, start, strict=True)])


def of_bytes(secret: bytes) -> Key:
  """Return the typed key, key[], of 32 secret bytes.

  >>> key = of_bytes(bytes(32))
  >>> hex(jax.random.bits(key, (), 'uint32'))
  '0xade0b876'
  """
  words = jnp.asarray(chacha20.words_of(secret))
  return jax.random.wrap_key_data(words, impl=IMPL)


def _nonce(use: int, data: jax.typing.ArrayLike = 0) -> jax.Array:
  word = jnp.asarray(data).astype(jnp.uint32)
  return jnp.stack([jnp.uint32(use), word, jnp.uint32(0)])


def _seed(seed: jax.Array) -> jax.Array:
  """Return the key of an integer, for `jax.random.key`: not a secret."""
  high = seed >> 32 if seed.dtype.itemsize == 8 else jnp.zeros_like(seed)
  words = jnp.stack([seed, high]).astype(jnp.uint32)
  return jnp.zeros(8, jnp.uint32).at[:2].set(words)


def _fold_in(key: jax.Array, data: jax.typing.ArrayLike) -> jax.Array:
  return blocks(key, jnp.zeros(1, jnp.uint32), _nonce(_FOLD, data))[:8, 0]


def _split(key: jax.Array, shape: Sequence[int]) -> jax.Array:
  return _stream(key, _SPLIT, math.prod(shape))[:8].T.reshape(*shape, 8)


def _random_bits(key, bit_width: int, shape: Sequence[int]) -> jax.Array:
  """Return words of the key stream in order; narrow ones are low bits."""
  each = max(bit_width // 32, 1)
  count = math.prod(shape) * each
  words = _stream(key, _BITS, -(-count // 16)).T.reshape(-1)[:count]
  if bit_width == 64:
    low, high = words.reshape(-1, 2).astype(jnp.uint64).T
    return (low | high << 32).reshape(shape)
  return words.astype(f'uint{bit_width}').reshape(shape)


def _stream(key, use: int, count: int) -> jax.Array:
  """Return the first blocks for one use of a key, uint32[16, count]."""
  if count > np.iinfo(np.int32).max:  # a repeated counter repeats draws
    raise ValueError(f'blocks={count} of one key must be < 2**31.')
  return blocks(key, jnp.arange(count, dtype=jnp.uint32), _nonce(use))


IMPL = extend_random.define_prng_impl(
  key_shape=(8,), seed=_seed, split=_split, random_bits=_random_bits,
  fold_in=_fold_in, name='chacha20', tag='cc20',
)  # fmt: skip
