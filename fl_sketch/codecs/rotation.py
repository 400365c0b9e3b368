"""Random rotations of a vector, in blocks that fit a CPU's cache."""

from fl_sketch.sketches import hashing, primitives
from fl_sketch.sketches.blocks import sign_words
from fl_sketch.sketches.hadamard import levels
from fl_sketch.utils.types import Key
import jax
from jax import lax
import jax.numpy as jnp

BLOCK = 4096
_PASSES, _REST_PASSES = 2, 3
_DENSE = 32  # numbers up to which sums of signs are far from normal


def rotate(key: Key, x: jax.Array, *, back: bool = False) -> jax.Array:
  """Apply a random rotation, or its inverse, to each block of 4,096 numbers.

  A pass is random signs and an orthonormal Hadamard transform. Two passes make
  the entries of a block near-Gaussian, whatever it is; after one a block of few
  large numbers has few values. Three passes are made over n numbers beyond the
  last block: over the first m and the last m, for m the largest power of two up
  to n, between which every second number moves to the end. The rotation of up
  to 32 numbers is uniform.

  >>> x = jnp.arange(5000.0)
  >>> y = rotate(jax.random.key(0), x)
  >>> bool(jnp.allclose(rotate(jax.random.key(0), y, back=True), x, atol=1e-2))
  True
  """
  seeds = hashing.seeds(key, _PASSES + 2 * _REST_PASSES, hashing.SIGN)
  cut = x.size - x.size % BLOCK
  if cut:
    loop, whole = (
      lambda seeds, x, f=f: f(seeds, x, cut // BLOCK, back)
      for f in (_by_block, _all_blocks)
    )
    x = lax.platform_dependent(seeds[:_PASSES], x, cpu=loop, default=whole)
  if cut == x.size:
    return x
  rest = _rest(key, seeds[_PASSES:], x[cut:], back)
  return lax.dynamic_update_slice(x, rest, (cut,))


def _turn(x, words, plane, m, back):
  """Flip random signs and transform each m numbers of a vector, or undo it."""
  flip = lambda x: hashing.flip(x.reshape(-1, m), words, plane).ravel()
  turn = lambda x: m**-0.5 * levels(x, m, 1)
  return flip(turn(x)) if back else turn(flip(x))


def _by_block(seeds, x, count, back):
  """Rotate the first `count` blocks one after another: faster on CPUs."""
  places = jnp.arange(BLOCK)

  def group(g, x):
    words = [sign_words(g, places, BLOCK, seed) for seed in seeds]
    words = jnp.stack(words)

    def one(plane, x):
      at = ((g * hashing.PLANES + plane) * BLOCK,)
      step = lambda i, part: _turn(
        part, words[_PASSES - 1 - i if back else i][None], plane, BLOCK, back
      )
      part = lax.dynamic_slice(x, at, (BLOCK,))
      return lax.dynamic_update_slice(
        x, lax.fori_loop(0, _PASSES, step, part), at
      )

    left = jnp.minimum(hashing.PLANES, count - g * hashing.PLANES)
    return lax.fori_loop(0, left, one, x)

  return lax.fori_loop(0, -(-count // hashing.PLANES), group, x)


def _all_blocks(seeds, x, count, back):
  """Rotate the first `count` blocks in one batch: faster on accelerators."""
  block, places = jnp.arange(count)[:, None], jnp.arange(BLOCK)[None]
  group, plane = jnp.divmod(block, hashing.PLANES)
  y = x[: count * BLOCK]
  for seed in seeds[::-1] if back else seeds:
    words = sign_words(group, places, BLOCK, seed)
    y = _turn(y, words, plane, BLOCK, back)
  return lax.dynamic_update_slice(x, y, (0,))


def _rest(key, seeds, x, back):
  """Rotate fewer numbers than a block has, or back."""
  n = x.size
  if n <= _DENSE:
    q = _uniform(key, n)
    return primitives.product(q.T if back else q, x)
  m = 1 << (n.bit_length() - 1)
  places, starts = jnp.arange(m, dtype=jnp.uint32), sorted({0, n - m})

  def turn(i, x, j):
    words = hashing.word(places, seeds[i * len(starts) + j])[None]
    part = _turn(x[starts[j] : starts[j] + m], words, 0, m, back)
    return x.at[starts[j] : starts[j] + m].set(part)

  def one(i, x):
    x = turn(i, x, 0)
    if n == m:
      return x
    # What is even meets what is odd: the ends may have one number in common.
    x = turn(i, x, 1)
    return jnp.concatenate([x[::2], x[1::2]])

  def undo(i, x):
    i = _REST_PASSES - 1 - i
    if n > m:
      half = -(-n // 2)
      x = jnp.zeros_like(x).at[::2].set(x[:half]).at[1::2].set(x[half:])
      x = turn(i, x, 1)
    return turn(i, x, 0)

  return lax.fori_loop(0, _REST_PASSES, undo if back else one, x)


def _uniform(key, d):
  """Draw a uniformly distributed orthogonal matrix, f32[d, d]."""
  # By Gram-Schmidt: batches of LAPACK's QR may hang on a CPU.
  (seed,) = hashing.seeds(key, 1, hashing.ENTRY)
  words = hashing.word(jnp.arange(d * d, dtype=jnp.uint32), seed)
  columns = hashing.normal(words).reshape(d, d).T

  def one(i, q):  # the rows from i on are 0
    x = columns[i]
    for _ in range(2):  # the second pass removes rounding errors of the first
      x -= primitives.product(primitives.product(q, x), q)
    return q.at[i].set(x / jnp.linalg.norm(x))

  return lax.fori_loop(0, d, one, 0 * columns).T
