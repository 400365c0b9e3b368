"""Sketches and desketches of a tree by cyclic shifts of blocks of coordinates.

`block_cyclic` has the law. Loops over slices suit CPUs, gathers accelerators;
both compute the same numbers.
"""

from fl_sketch.sketches import hashing, primitives
from jax import lax
import jax.numpy as jnp
import numpy as np

TILE = 2**11  # coordinates at a time, of blocks up to 4 TILE: a core's cache
LONG = 2**20  # of longer blocks, for which long reads are faster


def copies_of(key, cols, sparsity, d):
  """Draw int32[blocks] shifts and the seed of the sign words of each copy."""
  counter = jnp.arange(-(-d // cols), dtype=jnp.uint32)
  shift = [
    hashing.bucket(hashing.kwise(counter, family), cols)
    for family in hashing.families(key, sparsity, 2, hashing.SHIFT)
  ]
  signs = hashing.seeds(key, sparsity, hashing.SIGN)
  return list(zip(shift, signs, strict=True))


def _words(group, u, cols, seed):
  """The sign of coordinate u of block B is plane B % 32 of word(B // 32, u)."""
  counter = jnp.uint32(group) * np.uint32(cols) + jnp.uint32(u)
  return hashing.word(counter, seed)


def _over_run(start, size, cols, hashes, body, carry):
  """Run body(block, u, words of each copy, plane, carry) on parts of blocks."""
  words_at = lambda g, u: [_words(g, u, cols, seed) for _, seed in hashes]
  stop = start + size
  first, last = -(-start // cols), stop // cols  # the whole blocks
  ends = [(start, first * cols), (last * cols, stop)]
  if first > last:
    ends, last = [(start, stop)], first
  parts = [(at, end) for i, end in ends for at in range(i, end, LONG)]
  for at, end in parts:
    block, u = divmod(at, cols)
    group, plane = divmod(block, hashing.PLANES)
    words = words_at(group, u + jnp.arange(min(LONG, end - at)))
    carry = body(block, u, words, plane, carry)
  return _for_blocks(first, last, cols, words_at, body, carry)


def _for_blocks(first, stop, cols, words, body, carry):
  """As `_over_run` for whole blocks, 32 of them on the same words."""

  def group(g, begin, end, carry):
    def tile(u, n, carry):
      w = words(g, u + jnp.arange(n))
      block = lambda plane: g * hashing.PLANES + plane
      step = lambda plane, c: body(block(plane), u, w, plane, c)
      return lax.fori_loop(begin, end, step, carry)

    size = TILE if cols <= 4 * TILE else LONG
    return primitives.fold(cols, size, tile, carry)

  (g, plane), (last, rest) = (divmod(i, hashing.PLANES) for i in (first, stop))
  if g == last:
    return group(g, plane, rest, carry) if plane < rest else carry
  if plane:
    carry = group(g, plane, hashing.PLANES, carry)
    g += 1
  step = lambda g, c: group(g, 0, hashing.PLANES, c)
  carry = lax.fori_loop(g, last, step, carry) if g < last else carry
  return group(last, 0, rest, carry) if rest else carry


def sketch_loop(cols, hashes, runs, vector):
  """Add block after block into doubled accumulators, folded at the end."""
  xs = [run.x for run in runs]
  accs = [
    primitives.zeros((2 * cols,), vector.dtype, s, *xs) for s, _ in hashes
  ]

  for start, x in runs:

    def add(block, u, words, plane, accs, x=x, start=start):
      at, out = block * cols - start + u, []
      part = lax.dynamic_slice(x, (at,), words[0].shape).astype(vector.dtype)
      for acc, w, (shift, _) in zip(accs, words, hashes, strict=True):
        to = (u + shift[block],)
        old = lax.dynamic_slice(acc, to, part.shape)
        new = old + hashing.flip(part, w, plane)
        out.append(lax.dynamic_update_slice(acc, new, to))
      return out

    accs = _over_run(start, x.size, cols, hashes, add, accs)
  return [acc[:cols] + acc[cols:] for acc in accs]


def desketch_loop(cols, hashes, tables, spans):
  """Read every block as one slice of the tables written twice."""
  doubled = [jnp.concatenate([table, table]) for table in tables]

  def one_span(start, n, dtype):
    def read(block, u, words, plane, out):
      parts = []
      for table, w, (shift, _) in zip(doubled, words, hashes, strict=True):
        part = lax.dynamic_slice(table, (u + shift[block],), w.shape)
        parts.append(hashing.flip(part, w, plane))
      part = sum(parts[1:], start=parts[0]).astype(dtype)
      return lax.dynamic_update_slice(out, part, (block * cols - start + u,))

    out = primitives.zeros((n,), dtype, hashes[0][0], tables[0])
    return _over_run(start, n, cols, hashes, read, out)

  return [one_span(*span) for span in spans]


def sketch_gather(cols, hashes, runs, vector):
  """Sketch runs by gathers and column sums, not scatters: deterministic."""

  def one(run, shift, seed):
    first, stop = run.start // cols, -(-(run.start + run.x.size) // cols)
    block = jnp.arange(first, stop)[:, None]
    source = (jnp.arange(cols)[None] - shift[first:stop, None]) % cols
    i = block * cols + source - run.start
    i = jnp.where(i < 0, run.x.size, i)  # past the end, where zeros are read
    part = run.x.at[i].get(mode='fill', fill_value=0).astype(vector.dtype)
    words = _words(block // hashing.PLANES, source, cols, seed)
    return hashing.flip(part, words, block % hashing.PLANES).sum(0)

  return [sum(one(run, shift, seed) for run in runs) for shift, seed in hashes]


def desketch_gather(cols, hashes, tables, spans):
  """Desketch spans of coordinates by gathers that XLA fuses."""

  def one(span, table, shift, seed):
    block, u = jnp.divmod(span.start + jnp.arange(span.size), cols)
    part = table.at[(u + shift[block]) % cols].get(mode='promise_in_bounds')
    words = _words(block // hashing.PLANES, u, cols, seed)
    return hashing.flip(part, words, block % hashing.PLANES)

  copies = list(zip(tables, *zip(*hashes, strict=True), strict=True))
  return [
    jnp.asarray(sum(one(span, *copy) for copy in copies), span.dtype)
    for span in spans
  ]
