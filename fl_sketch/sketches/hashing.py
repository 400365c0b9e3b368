"""Counter hashes: pseudo-random words computed from a key, never stored.

Everything is a function of (key, domain, counter) in uint32 arithmetic, which
wraps modulo 2**32 by design and here only in `mix` and `word`. No word comes
from `jax.random.bits`, whose output depends on `jax_threefry_partitionable`:
clients that run other versions or backends still draw the same operator.

What is proven and what is not. For one key, `mix` and `word` are bijections of
uint32, so words of distinct counters are distinct. That the words of distinct
counters, of distinct domains, and the 32 bits of one word behave as
independent is a heuristic: murmur3's finaliser passes statistical tests, it is
neither provably pairwise nor 4-wise independent, and it is not cryptographic:
a sketch hides nothing from who knows the key.
"""

import jax
import jax.numpy as jnp
import numpy as np

# One stream each, so that no two uses of a key ever see the same words.
SHIFT, SIGN, BUCKET, SAMPLE = 1, 2, 3, 4

PLANES = 32  # signs in a word


def mix(x: jax.Array) -> jax.Array:
  """The finaliser of murmur3 (fmix32, Appleby), a bijection of uint32.

  >>> hex(mix(jnp.uint32(1)))
  '0x514e28b7'

  Args:
    x: uint32[...].

  Returns:
    uint32[...].
  """
  x = x ^ (x >> np.uint32(16))
  x = x * np.uint32(0x85EBCA6B)
  x = x ^ (x >> np.uint32(13))
  x = x * np.uint32(0xC2B2AE35)
  return x ^ (x >> np.uint32(16))


def word(counter: jax.Array, seed: jax.Array) -> jax.Array:
  """A word a counter under a two-word seed: mix(mix(counter ^ s0) + s1).

  >>> word(jnp.arange(3, dtype=jnp.uint32), jnp.zeros(2, jnp.uint32)).shape
  (3,)

  Args:
    counter: uint32[...]; distinct counters give distinct words.
    seed: uint32[2], as of `seeds`.

  Returns:
    uint32[...].
  """
  return mix(mix(counter ^ seed[0]) + seed[1])


def seeds(key: jax.Array, n: int, domain: int = 0) -> jax.Array:
  """Two-word seeds of n streams, by mixing the words of a key.

  >>> seeds(jax.random.key(0), 3, SIGN).shape
  (3, 2)

  Args:
    key: key[], of any implementation.
    n: how many streams.
    domain: one of `SHIFT`, `SIGN`, `BUCKET`, `SAMPLE`.

  Returns:
    uint32[n, 2].
  """
  words = jax.random.key_data(key).astype(jnp.uint32).ravel()
  first, second = jnp.uint32(domain), jnp.uint32(~domain & 0xFFFFFFFF)
  for i in range(words.size):
    first, second = mix(first ^ words[i]), mix(second ^ words[-1 - i])
  counter = jnp.arange(2 * n, dtype=jnp.uint32)
  return word(counter, jnp.stack([first, second])).reshape(n, 2)


def bucket(words: jax.Array, cols: int) -> jax.Array:
  """Maps words to buckets, word mod cols.

  A uniform word meets each bucket with a probability within 2**-32 of
  1 / cols; the relative bias is below cols / 2**32, and 0 where cols is a
  power of two.

  >>> bucket(jnp.array([7, 8, 9], jnp.uint32), 4).tolist()
  [3, 0, 1]

  Args:
    words: uint32[...].
    cols: buckets, 1 <= cols < 2**31.

  Returns:
    int32[...] in [0, cols).
  """
  return (words % np.uint32(cols)).astype(jnp.int32)


def flip(x: jax.Array, words: jax.Array, plane: jax.Array | int) -> jax.Array:
  """Multiplies by random signs: bit 31 - plane of each word, set for minus.

  A select, which on a CPU costs the same as XOR of the sign bit by bitcasts;
  but a bitcast has derivative zero, and gradients must flow through sketches.

  >>> flip(jnp.ones(2), jnp.array([0, 1 << 31], jnp.uint32), 0).tolist()
  [1.0, -1.0]

  Args:
    x: f32[...] or f64[...].
    words: uint32[...], of the shape of x.
    plane: int32[], which of the 32 signs in a word.

  Returns:
    An array like x.
  """
  sign = (words << jnp.uint32(plane)) & np.uint32(0x80000000)
  return jnp.where(sign != 0, -x, x)


def permute(counter: jax.Array, bits: int, key: jax.Array) -> jax.Array:
  """A keyed permutation of [0, 2**bits): an alternating Feistel network.

  Any 2**bits or fewer counters get distinct images, and k images cost O(k),
  where a random order of all would cost a sort. With random round functions
  the images of two counters are uniform on pairs to about 2**-16 (Luby and
  Rackoff's argument, rounds added for few bits); with `word`, heuristically.

  >>> images = permute(jnp.arange(4, dtype=jnp.uint32), 2, jax.random.key(0))
  >>> sorted(images.tolist())
  [0, 1, 2, 3]

  Args:
    counter: uint32[...] in [0, 2**bits).
    bits: size of the domain, at most 31.
    key: key[], domain `SAMPLE`.

  Returns:
    int32[...] in [0, 2**bits).
  """
  low = bits // 2
  masks = np.uint32((1 << low) - 1), np.uint32((1 << (bits - low)) - 1)
  pairs = max(3, -(-16 // max(low, 1)))
  first, *_ = rounds = seeds(key, 1 + 2 * pairs, SAMPLE)

  def two_rounds(halves, pair):
    left, right = halves
    left = left ^ (word(right, pair[0]) & masks[0])
    right = right ^ (word(left, pair[1]) & masks[1])
    return (left, right), None

  # The first XOR makes the start uniform, and the carry of the key's type.
  halves = (
    (counter ^ first[0]) & masks[0],
    (counter >> np.uint32(low) ^ first[1]) & masks[1],
  )
  # A loop, so that no consumer fuses the rounds and repeats them for each lane.
  halves, _ = jax.lax.scan(two_rounds, halves, rounds[1:].reshape(-1, 2, 2))
  return (halves[1] << np.uint32(low) | halves[0]).astype(jnp.int32)
