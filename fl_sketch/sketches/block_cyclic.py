"""Block-cyclic Count Sketch: balanced buckets, contiguous memory."""

from fl_sketch.sketches import base
from fl_sketch.sketches import hashing
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np


def block_cyclic(size: int) -> base.Sketch:
  r"""Count Sketch that shifts blocks of `size` coordinates as a whole.

  Coordinate i = B size + u of block B goes to bucket (u + shift_B) mod size
  with sign s(i); the vector is padded with zeros to whole blocks.

  Guarantees, for independent shifts and signs (see `hashing`):
    linear, and desketch is the adjoint of sketch.
    unbiased: E desketch(sketch(x)) = x.
    balanced: every bucket holds d / size coordinates, so R R^T = (d / size) I
      in every draw where size divides d, and R is exact at size = d.
    second moment: E||desketch(sketch(x))||^2 = (d / size) ||x||^2 where size
      divides d, the least that any unbiased projection of this size can have.

  >>> op, key, x = block_cyclic(4), jax.random.key(0), {'w': jnp.ones(4)}
  >>> op.desketch(key, op.sketch(key, x), x)['w'].tolist()
  [1.0, 1.0, 1.0, 1.0]

  Why: a block meets every bucket once, so coordinates of one block never
  collide, and those of two blocks do with probability 1 / size, as the
  difference of two uniform shifts is uniform. A construction of this project;
  relatives are numBlocks of FetchSGD's CSVec (arXiv:2007.07682) and
  BlockPerm-SJLT (arXiv:2602.06071).

  Args:
    size: numbers in a table, which are also the buckets and a block.

  Returns:
    A `Sketch` whose tables are f32[size]; it raises ValueError if size > d.

  Raises:
    ValueError: size is below 1.
  """
  base.check_positive(size=size)

  def sketch(key, x):
    return lax.platform_dependent(
      key, x, cpu=_sketch_loop(size), default=_sketch_gather(size)
    )

  def desketch(key, table, d):
    return lax.platform_dependent(
      key, table, cpu=_desketch_loop(size, d), default=_desketch_gather(size, d)
    )

  return base.from_vector(f'{size=}', lambda d: (size,), sketch, desketch)


def _hashes(key: jax.Array, size: int, d: int):
  """int32[blocks] shifts, and the words of the signs of 32 blocks.

  The sign of coordinate u of block B is plane B mod 32 of words(B // 32, u).
  """
  blocks = -(-d // size)
  (seed,) = hashing.seeds(key, 1, hashing.SHIFT)
  counter = jnp.arange(blocks, dtype=jnp.uint32)
  shift = hashing.bucket(hashing.word(counter, seed), size)
  (sign_seed,) = hashing.seeds(key, 1, hashing.SIGN)

  def words(group, u):
    counter = jnp.uint32(group) * np.uint32(size) + u.astype(jnp.uint32)
    return hashing.word(counter, sign_seed)

  return shift, words


def _for_blocks(blocks, words, body, carry):
  """Runs body(block, words, plane, carry), 32 blocks on the same words."""

  def group(g, count, carry):
    w = words(g)
    step = lambda plane, c: body(g * hashing.PLANES + plane, w, plane, c)
    return lax.fori_loop(0, count, step, carry)

  full, rest = divmod(blocks, hashing.PLANES)
  step = lambda g, c: group(g, hashing.PLANES, c)
  return group(full, rest, lax.fori_loop(0, full, step, carry))


def _sketch_loop(size):
  """Adds block after block into a doubled accumulator, folded at the end.

  The last block, which may be short, starts the carry: zeros alone would not
  be of the type, varying over a mesh axis, that the loop returns.
  """

  def sketch(key, x):
    last = -(-x.size // size) - 1
    shift, words_at = _hashes(key, size, x.size)
    words = lambda group: words_at(group, jnp.arange(size))

    def add(block, w, plane, acc):
      part = lax.dynamic_slice(x, (block * size,), (size,))
      old = lax.dynamic_slice(acc, (shift[block],), (size,))
      new = old + hashing.flip(part, w, plane)
      return lax.dynamic_update_slice(acc, new, (shift[block],))

    part = jnp.pad(x[last * size :], (0, (last + 1) * size - x.size))
    part = hashing.flip(part, words(last // 32), last % 32)
    acc = jnp.zeros(2 * size, x.dtype)
    acc = lax.dynamic_update_slice(acc, part, (shift[last],))
    acc = _for_blocks(last, words, add, acc)
    return acc[:size] + acc[size:]

  return sketch


def _desketch_loop(size, d):
  """Reads every block as one slice of the table written twice."""

  def desketch(key, table):
    last = -(-d // size) - 1
    shift, words_at = _hashes(key, size, d)
    words = lambda group: words_at(group, jnp.arange(size))
    doubled = jnp.concatenate([table, table])

    def read(block, w, plane):
      part = lax.dynamic_slice(doubled, (shift[block],), (size,))
      return hashing.flip(part, w, plane)

    def put(block, w, plane, out):
      part = read(block, w, plane)
      return lax.dynamic_update_slice(out, part, (block * size,))

    part = read(last, words(last // 32), last % 32)[: d - last * size]
    out = jnp.zeros(d, table.dtype)
    out = lax.dynamic_update_slice(out, part, (last * size,))
    return _for_blocks(last, words, put, out)

  return desketch


def _sketch_gather(size):
  """One fused gather and column sum: no scatter, deterministic."""

  def sketch(key, x):
    shift, words = _hashes(key, size, x.size)
    block = jnp.arange(shift.size)[:, None]
    source = (jnp.arange(size)[None] - shift[:, None]) % size
    x = jnp.pad(x, (0, shift.size * size - x.size))
    part = x.at[block * size + source].get(mode='promise_in_bounds')
    sign = words(block // 32, source) << jnp.uint32(block % 32)
    return hashing.flip(part, sign, 0).sum(0)

  return sketch


def _desketch_gather(size, d):
  """One fused gather."""

  def desketch(key, table):
    shift, words = _hashes(key, size, d)
    i = jnp.arange(d)
    block, u = i // size, i % size
    part = table.at[(u + shift[block]) % size].get(mode='promise_in_bounds')
    return hashing.flip(part, words(block // 32, u), block % 32)

  return desketch
