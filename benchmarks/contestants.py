"""Entries of the sketch benchmark: our operators, and lower bounds on time."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

from fl_sketch import sketches
import jax
import jax.numpy as jnp

_DRAWS = 64  # after so many calls the keys come again
DENSE = lambda d, b: b * d  # entries that a dense matrix draws


class Runner(NamedTuple):
  """A compiled benchmark entry, to be timed on f32[clients, d]."""

  # Number of the draw -> (table, matrix); equal numbers, equal draws.
  sketch: Callable[[int], tuple[Any, Any]]
  desketch: Callable[[Any, Any], Any]  # (table, matrix) -> f32[clients, d]


class Contestant(NamedTuple):
  """A benchmark entry: an implementation of one kind of sketch."""

  work: str  # the kind of sketch; entries of the same work are compared
  # (x f32[clients, d], b) -> `Runner`. All but libraries get x where JAX
  # computes, and f32[d] of one client.
  make: Callable[[Any, int], Runner]
  # (d, b) -> how many numbers it draws, if that takes long.
  entries: Callable[[int, int], float] = lambda d, b: 0
  kind: str = 'library'  # or 'bound', 'operator', 'textbook'


@dataclasses.dataclass(frozen=True)
class _Textbook(sketches.Sketch):
  """Textbook Count Sketch: stored hashes and a scatter."""

  size: int

  def _draw(self, key, d):
    first, second = jax.random.split(key)
    bucket = jax.random.randint(first, (d,), 0, self.size)
    return bucket, jax.random.rademacher(second, (d,), jnp.float32)

  def sketch(self, key, tree):
    bucket, sign = self._draw(key, tree.size)
    return self.zero_table(tree).at[bucket].add(sign * tree)

  def desketch(self, key, table, like):
    bucket, sign = self._draw(key, like.size)
    return sign * table[bucket]

  def zero_table(self, tree):
    return jnp.zeros(self.size)


def _operator(work, factory, kind='operator'):
  options = {'entries': DENSE} if work.endswith('matrix') else {}
  make = lambda x, b: compiled(factory(b), x)
  return Contestant(work, make, kind=kind, **options)


# Sizes are rounded down to what the operator divides them into, and the complex
# table has half as many numbers: every table has b floats, or up to 4 fewer.
OPERATORS = {
  'count_sketch': _operator(
    'count sketch', lambda b: sketches.count_sketch(1, b)
  ),
  'block_cyclic': _operator('count sketch', sketches.block_cyclic),
  'count_sketch_5': _operator(
    'median of 5', lambda b: sketches.count_sketch(5, b // 5)
  ),
  'sparse_embedding_I': _operator(
    'sparse embedding', lambda b: sketches.sparse_embedding(b, 4, kind='I')
  ),
  'sparse_embedding_II': _operator(
    'sparse embedding', lambda b: sketches.sparse_embedding(b // 4 * 4, 4)
  ),
  'block_cyclic_4': _operator(
    'sparse embedding', lambda b: sketches.block_cyclic(b // 4 * 4, sparsity=4)
  ),
  'srht': _operator('Hadamard transform', sketches.srht),
  'block_srht': _operator('Hadamard transform', sketches.block_srht),
  'dct': _operator('cosine transform', sketches.dct),
  'srft': _operator('Fourier transform', lambda b: sketches.srft(b // 2)),
  'uniform_sampling': _operator('sampling', sketches.uniform_sampling),
  'gaussian': _operator('normal matrix', sketches.gaussian),
  'ams': _operator('sign matrix', sketches.ams),
  'identity': _operator('identity', lambda b: sketches.identity()),
}
TEXTBOOK = _operator('count sketch', _Textbook, kind='textbook')


def compiled(op: Any, x: jax.Array) -> Runner:
  """Compile an operator for x f32[d], or f32[clients, d] under one key."""
  like = jax.ShapeDtypeStruct(x.shape[-1:], x.dtype)
  # Words, not keys: typed ones may miss the fast path into a program.
  key = lambda words: jax.random.wrap_key_data(words, impl='threefry2x32')
  words = [jnp.array([0, i], jnp.uint32) for i in range(_DRAWS)]
  down = lambda words, x: op.sketch(key(words), x)
  up = lambda words, table: op.desketch(key(words), table, like)
  if x.ndim > 1:
    down, up = (jax.vmap(f, in_axes=(None, 0)) for f in (down, up))
  table = jax.eval_shape(down, words[0], x)
  down = jax.jit(down).lower(words[0], x).compile()
  up = jax.jit(up).lower(words[0], table).compile()
  return Runner(
    lambda draw: (down(words[draw % _DRAWS], x), words[draw % _DRAWS]),
    lambda table, matrix: up(matrix, table),
  )


def _bounds(x, b):
  total = jax.jit(jnp.sum).lower(x).compile()
  fresh = jax.jit(lambda x: x + 1).lower(x).compile()
  return Runner(lambda draw: (total(x), None), lambda table, matrix: fresh(x))


# Lower bounds on time: reading x once, and writing an array of its size.
BOUNDS = Contestant('read / copy', _bounds, kind='bound')
