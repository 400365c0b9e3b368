"""Hash functions computed from a key and a counter, never stored.

Words are functions of (key, domain, counter) in uint32 arithmetic, equal on all
backends. `jax.random.bits` is not used: its output depends on a flag of JAX.

* `kwise`: a random polynomial of k coefficients over the field of 2**31 - 1
  elements; its words are provably k-wise independent (Wegman and Carter, JCSS
  1981). For shifts and buckets (2-wise) and the signs of AMS (4-wise).
* `word`: murmur3's finaliser, twice, over a counter. Its bits behave as
  independent in statistical tests; nothing is proven. For signs, at the speed
  of memory.

Neither is cryptographic: a sketch hides nothing from anyone who has the key.
"""

from fl_sketch.utils.types import Key
import jax
import jax.numpy as jnp
import numpy as np

# Domains: different uses of one key draw different words.
SHIFT, SIGN, BUCKET, SAMPLE, ENTRY, ROUNDING = 1, 2, 3, 4, 5, 6
PLANES = 32  # signs in a word
PRIME = np.uint32(2**31 - 1)  # of Mersenne: reduced by shifts and masks


def mix(x: jax.Array) -> jax.Array:
  """Apply murmur3's finaliser (fmix32, Appleby), a bijection of uint32[...].

  >>> hex(mix(jnp.uint32(1)))
  '0x514e28b7'
  """
  x = x ^ (x >> np.uint32(16))
  x = x * np.uint32(0x85EBCA6B)
  x = x ^ (x >> np.uint32(13))
  x = x * np.uint32(0xC2B2AE35)
  return x ^ (x >> np.uint32(16))


def word(counter: jax.Array, seed: jax.Array) -> jax.Array:
  """Return a uint32 word per counter: mix(mix(counter ^ s0) + s1)."""
  return mix(mix(counter ^ seed[0]) + seed[1])


def seeds(key: Key, n: int, domain: int) -> jax.Array:
  """Return seeds uint32[n, 2] of n streams, mixed from a key and a domain."""
  words = jax.random.key_data(key).astype(jnp.uint32).ravel()
  first, second = jnp.uint32(domain), jnp.uint32(~domain & 0xFFFFFFFF)
  for i in range(words.size):
    first, second = mix(first ^ words[i]), mix(second ^ words[-1 - i])
  counter = jnp.arange(2 * n, dtype=jnp.uint32)
  return word(counter, jnp.stack([first, second])).reshape(n, 2)


def families(key: Key, n: int, k: int, domain: int) -> jax.Array:
  """Return uint32[n, k + 1, 2], the seeds of n k-wise independent functions.

  The rows of one are k coefficients and the seed of a `word`, for `kwise`.
  """
  return seeds(key, n * (k + 1), domain).reshape(n, k + 1, 2)


def kwise(counter: jax.Array, family: jax.Array) -> jax.Array:
  r"""Return words any k of which are independent: a polynomial plus a `word`.

  :math:`c_1 x^{k-1} + \ldots + c_k + \mathrm{word}(x) \bmod 2^{31} - 1`; `word`
  breaks patterns of bare polynomials beyond k. Counters and words are below
  2**31 - 1; bits 0 to 30 of a word are signs with a bias of 2**-31.
  """
  value = jnp.uint32(0)
  for c in family[:-1, 0] % PRIME:
    value = _reduce(_multiply(value, counter) + c)
  return _reduce(value + word(counter, family[-1]) % PRIME)


def _reduce(x):
  """Return the residue of x modulo 2**31 - 1."""
  x = (x & PRIME) + (x >> np.uint32(31))
  return jnp.where(x >= PRIME, x - PRIME, x)


def _multiply(a, b):
  """The product modulo 2**31 - 1 of a, b < 2**31, from halves of 16 bits."""
  half, low = np.uint32(16), np.uint32(2**16 - 1)
  a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
  cross = a1 * b0 + a0 * b1  # times 2**16; below 2**32 - 2**17: nothing wraps
  total = _reduce(a0 * b0) + (cross >> np.uint32(15))  # 2**31 is 1
  total = _reduce(total) + ((cross & np.uint32(2**15 - 1)) << half)
  return _reduce(_reduce(total) + (a1 * b1 << np.uint32(1)))  # 2**32 is 2


def bucket(words: jax.Array, cols: int) -> jax.Array:
  """Map words to buckets in [0, cols), with a relative bias of cols / 2**31."""
  return (words % np.uint32(cols)).astype(jnp.int32)


def flip(x: jax.Array, words: jax.Array, plane: jax.Array | int) -> jax.Array:
  """Multiply by random signs: bit 31 - plane of each word, set for minus.

  >>> flip(jnp.ones(2), jnp.array([0, 1 << 31], jnp.uint32), 0).tolist()
  [1.0, -1.0]
  """
  # Not XOR of the sign bit by bitcasts, whose derivative is zero.
  sign = (words << jnp.uint32(plane)) & np.uint32(0x80000000)
  return jnp.where(sign != 0, -x, x)


def normal(words: jax.Array) -> jax.Array:
  """Map the upper 23 bits of words uint32[...] to N(0, 1), up to 5.3.

  >>> normal(jnp.array([0, 1 << 31], jnp.uint32)).round().tolist()
  [-5.0, 0.0]
  """
  n = (words >> np.uint32(9)).astype(jnp.float32)
  # The normal quantile at (n + 1/2) / 2**23.
  return 2**0.5 * jax.scipy.special.erfinv((2 * n + 1) * 2.0**-23 - 1)


def permute(counter: jax.Array, bits: int, key: Key) -> jax.Array:
  """Permute int32 in [0, 2**bits) by a key: an alternating Feistel network.

  For up to 31 bits, in O(k) for k counters. With random round functions the
  images of two counters are uniform on pairs to a total variation of 2**-16
  (computed for 2 to 22 bits); with `word` that is a heuristic.

  >>> images = permute(jnp.arange(4, dtype=jnp.uint32), 2, jax.random.key(0))
  >>> sorted(images.tolist())
  [0, 1, 2, 3]
  """
  low = bits // 2
  masks = np.uint32((1 << low) - 1), np.uint32((1 << (bits - low)) - 1)
  pairs = max(3, 1 - (-16 // max(low, 1)))
  first, *_ = rounds = seeds(key, 1 + 2 * pairs, SAMPLE)

  def two_rounds(halves, pair):
    left, right = halves
    left = left ^ (word(right, pair[0]) & masks[0])
    right = right ^ (word(left, pair[1]) & masks[1])
    return (left, right), None

  # The first XOR gives the loop's carry the type of the key.
  left, right = counter ^ first[0], counter >> np.uint32(low) ^ first[1]
  halves = left & masks[0], right & masks[1]
  # A loop: XLA would fuse unrolled rounds into each lane and repeat them.
  halves, _ = jax.lax.scan(two_rounds, halves, rounds[1:].reshape(-1, 2, 2))
  return (halves[1] << np.uint32(low) | halves[0]).astype(jnp.int32)


def sample(key: Key, size: int, d: int) -> jax.Array:
  """Draw distinct int32[size] in [0, d) in random order, in O(size log size).

  A permutation of the next power of two, walked along its cycles until it is
  below d, is a permutation of [0, d) (Black and Rogaway, CT-RSA 2002).

  >>> sorted(sample(jax.random.key(0), 3, 3).tolist())
  [0, 1, 2]
  """
  bits = (d - 1).bit_length()
  step = lambda at: permute(at.astype(jnp.uint32), bits, key)
  first = step(jnp.arange(size, dtype=jnp.int32))
  if d == 1 << bits:
    return first
  beyond = lambda at: (at >= d).any()
  walk = lambda at: jnp.where(at >= d, step(at), at)
  return jax.lax.while_loop(beyond, walk, first)
