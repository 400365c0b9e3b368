r"""Discrete Gaussian noise: integers x with P(x) ~ :math:`e^{-x^2/2s^2}`.

A draw is :math:`X = A_0 + c A_1 + c^2 A_2`, of three draws of one base law
:math:`N_\mathbb{Z}(b^2)`, each by inversion of a table of 128-bit
probabilities. Its law is :math:`N_\mathbb{Z}(b^2 (1 + c^2 + c^4))` up to a
relative error of 1e-70 and a statistical distance of 2^-114 (Micciancio and
Peikert, ePrint 2013/069, Theorem 3.3). No loop depends on what is drawn.

The first 31 bits decide unless they tie with a table entry, with probability
3e-6. A fixed number of blocks get 128 bits, those with a tie first; more ties
than that have a chance below 2^-128. docs/concepts/integers.md has the proofs.

Source: Canonne, Kamath, Steinke, arXiv:2004.00010, for the mechanism.
"""

import functools
import math

from fl_sketch.utils.types import Key, Tree
import jax
import jax.numpy as jnp
import numpy as np

SMOOTH = 3.0  # deviation at which integers are as good as real numbers
_LEVELS = 3
_TAIL = 13.3  # base deviations at which the table ends: P < 2^-128
_BITS = 128
_BLOCK = 16  # numbers in a block; all of a block are searched together
_PRECISION = 320  # bits of the arithmetic that makes the table


def stddev(base: int, multiple: jax.Array | float) -> jax.Array | float:
  r"""Return the standard deviation :math:`b \sqrt{1 + c^2 + c^4}` of `draw`."""
  square = multiple * multiple * 1.0
  return base * (1 + square + square * square) ** 0.5


def most(base: int) -> int:
  r"""Return the largest multiple for a base, :math:`c \leq b / (3 + 1/5)`."""
  return int(base / (SMOOTH + 0.2))


def draw(key: Key, like: Tree, base: int, multiple: jax.Array | int) -> Tree:
  """Draw independent discrete Gaussian integers, int32, in a tree's shapes.

  The key is secret; the tree `like` is of arrays or ShapeDtypeStructs; b, the
  standard deviation of the base law, is a power of two >= 16, and the multiple
  c is int32[] in 0 ... `most(base)`. The law is exact to a statistical distance
  of 2^-112 per number.
  """
  leaves, structure = jax.tree.flatten(like)
  ends = np.cumsum([math.prod(x.shape) for x in leaves])
  parts = jnp.split(_draw(key, int(ends[-1]), base, multiple), ends[:-1])
  shaped = [x.reshape(y.shape) for x, y in zip(parts, leaves, strict=True)]
  return jax.tree.unflatten(structure, shaped)


def _draw(key, size, base, multiple) -> jax.Array:
  """Draw int32[size] for all leaves together."""

  def add(total, level):
    key, power = level
    return total + power * _base_law(key, size, base), None

  powers = jnp.int32(multiple) ** jnp.arange(_LEVELS, dtype=jnp.int32)
  levels = jax.random.split(key, _LEVELS), powers
  return jax.lax.scan(add, jnp.zeros(size, jnp.int32), levels)[0]


def _base_law(key, size, base) -> jax.Array:
  """Draw from the base law by inversion: int32[size]."""
  block = max(min(_BLOCK, size), 1)
  rows = -(-size // block)
  ties = _capacity(base, rows, block)
  words = jax.random.bits(key, (rows + 4 * ties, block), jnp.uint32)
  first, more = words[:rows], words[rows:].reshape(4, ties, block)
  magnitude = _magnitude(first, more, base)
  return jnp.where(first & 1 == 1, -magnitude, magnitude).reshape(-1)[:size]


def _magnitude(first, more, base) -> jax.Array:
  """Invert uint32[rows, block] and [4, ties, block]: int32, like `first`."""
  # A magnitude is the least k with P(|A| > k) <= V for a uniform V of 128 bits.
  # These are 31 bits of the first word, whose last bit is the sign, and for
  # blocks with a tie 97 bits of `more`.
  look_up = lambda x, at: jnp.asarray(x).at[at].get(mode='promise_in_bounds')
  guide, heads = _guide(base)
  head = first | 1
  zeros, bits = jax.lax.clz(head), base.bit_length() - 1
  place = zeros << bits | head << zeros >> (31 - bits) & (base - 1)
  guess = look_up(guide, place)
  entry = look_up(heads, guess)
  magnitude = guess + (head < entry)
  has_tie = (head == entry).any(1)
  tied = jax.lax.top_k(has_tie.astype(jnp.float32), more.shape[1])[1]
  v = [first[tied] & ~jnp.uint32(1) | more[0] & 1, *more[1:]]
  return magnitude.at[tied].set(_search(_tails(base), v))


def _search(tails, v) -> jax.Array:
  """Return the least k with tails[:, k] <= v, both of words, by bisection."""
  last = tails.shape[1] - 1  # there the tail is 0
  halves = 2 ** np.arange(last.bit_length() - 1, -1, -1, dtype=np.int32)

  def step(k, half):
    middle = jnp.minimum(k + half - 1, last)
    above = _less(v, [jnp.asarray(x)[middle] for x in tails])
    return jnp.where(above, k + half, k), None

  return jax.lax.scan(step, jnp.zeros(v[0].shape, jnp.int32), halves)[0]


def _less(x, y) -> jax.Array:
  """Compare numbers of several words, the first axis: bool[...]."""
  less = jnp.zeros(x[0].shape, bool)
  for a, b in list(zip(x, y, strict=True))[::-1]:
    less = (a < b) | ((a == b) & less)
  return less


@functools.cache
def _guide(base: int) -> tuple[np.ndarray, np.ndarray]:
  """Return guesses, int32[32 base], and heads, uint32[entries]."""
  # A head is the first word of an entry of `_tails`, its last bit set. Words of
  # equal leading zeros, and log2(base) bits after the first 1, share a guess,
  # the least k whose head is at most their largest; they have one head at most.
  heads = _tails(base)[0] | 1
  zeros, bits = np.divmod(np.arange(32 * base, dtype=np.uint64), base)
  largest = ((bits + base + 1) * (2**31 // base) - 1 >> zeros) | 1
  below = np.searchsorted(heads[::-1], largest.astype(np.uint32), side='right')
  return (len(heads) - below).astype(np.int32), heads


def _capacity(base: int, rows: int, block: int) -> int:
  """Return m with (e n p / m)^m < 2^-128, the chance that m of n numbers tie.

  That is a Chernoff bound, for ties of probability p each.
  """
  mean = rows * block * len(np.unique(_guide(base)[1])) / 2**31
  most = 1
  while most < rows and most * math.log2(most / (math.e * mean)) < _BITS:
    most += 1
  return min(most, rows)


@functools.cache
def _tails(base: int) -> np.ndarray:
  """Return P(|A| > k) of the base law, to 128 bits: uint32[4, entries]."""
  # The last entry is 0. Weights are products of e^(-1 / 2 b^2) in integers of
  # 320 bits, with a rounding below 2^-300.
  one = 1 << _PRECISION
  term, q, n = one, one, 0
  while term:  # of the exponential series of -1 / (2 b^2)
    n += 1
    term = -(abs(term) // (2 * base * base * n)) * (1 if term > 0 else -1)
    q += term
  product = lambda x, y: (x * y) >> _PRECISION
  weights, ratio = [one], q
  for _ in range(int(_TAIL * base)):
    weights.append(product(weights[-1], ratio))
    ratio = product(ratio, product(q, q))
  whole = weights[0] + 2 * sum(weights[1:])
  tail, rows = whole, []
  for k, weight in enumerate(weights):
    tail -= weight if k == 0 else 2 * weight
    rows.append((tail << _BITS) // whole)
  word = 2**32 - 1
  shifts = range(_BITS - 32, -1, -32)
  return np.array([[x >> s & word for x in rows] for s in shifts], np.uint32)
