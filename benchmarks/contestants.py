"""Entries of the sketch benchmark: our operators, and lower bounds on time."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np

# Dense matrices are compared where they are small.
_ENTRIES = 2**24
_DRAWS = 64  # after so many calls the keys come again


class Runner(NamedTuple):
  """A compiled benchmark entry, to be timed on f32[clients, d].

  Attributes:
    sketch: number of the draw -> (table, matrix); equal numbers, equal draws.
    desketch: (table, matrix) -> f32[clients, d] by the adjoint of that matrix;
      None where the library has none.
    floats: 32-bit floats of one client's table; 0 if no table is made.
    rows: the table's energy over that of x, in the mean.
    linear: whether desketch is the adjoint of sketch.
    extra: temporary bytes of sketch and desketch, where they are known.
  """

  sketch: Callable[[int], tuple[Any, Any]] | None
  desketch: Callable[[Any, Any], Any] | None
  floats: int = 0
  rows: int = 1
  linear: bool = True
  extra: tuple[int, int] | None = None


def _never(d, b):
  return ''


class Contestant(NamedTuple):
  """A benchmark entry: an implementation of one kind of sketch.

  Attributes:
    work: the kind of sketch; entries of the same work are compared.
    make: (x f32[clients, d], b) -> `Runner`. All but libraries get x where JAX
      computes, and f32[d] of one client.
    skip: (d, b) -> why it is left out, empty if it is not.
    kind: 'operator', 'textbook' or 'library'.
  """

  work: str
  make: Callable[[Any, int], Runner]
  skip: Callable[[int, int], str] = _never
  kind: str = 'library'


def dense_entries(d: int, b: int) -> str:
  """Explains why a dense matrix is left out; empty where it is timed."""
  return f'b d > {_ENTRIES:,}' if b * d > _ENTRIES else ''


def _textbook(size: int) -> sketches.Sketch:
  """Textbook Count Sketch: stored hashes and a scatter."""

  def draw(key, d):
    first, second = jax.random.split(key)
    bucket = jax.random.randint(first, (d,), 0, size)
    return bucket, jax.random.rademacher(second, (d,), jnp.float32)

  def sketch(key, x):
    bucket, sign = draw(key, x.size)
    return jnp.zeros(size).at[bucket].add(sign * x)

  def desketch(key, table, like):
    bucket, sign = draw(key, like.size)
    return sign * table[bucket]

  return sketches.Sketch(sketch, desketch, lambda like: jnp.zeros(size))


def _operator(work, factory, rows=1, kind='operator'):
  """An operator of ours; rows: mean energy of its table over that of x."""
  make = lambda x, b: _compile(factory(b), x, b, rows)
  dense = work.endswith('matrix')
  return Contestant(work, make, dense_entries if dense else _never, kind)


# Sizes are rounded down to what the operator divides them into, and the complex
# table has half as many numbers: every table has b floats, or up to 4 fewer.
OPERATORS = {
  'count_sketch': _operator(
    'count sketch', lambda b: sketches.count_sketch(1, b)
  ),
  'block_cyclic': _operator('count sketch', sketches.block_cyclic),
  'count_sketch_5': _operator(
    'median of 5', lambda b: sketches.count_sketch(5, b // 5), rows=5
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
TEXTBOOK = _operator('count sketch', _textbook, kind='textbook')


def _compile(op, x, b, rows):
  """Compiles an operator for x f32[d], or f32[clients, d] under one key."""
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
    floats=op.properties.floats(like) if op.properties else b,
    rows=rows,
    linear=rows == 1,
    extra=(_temporary(down), _temporary(up)),
  )


def _temporary(program):
  return program.memory_analysis().temp_size_in_bytes


def check(name: str, runner: Runner, x: np.ndarray, b: int):
  """Runs an entry once and checks that it computes a sketch.

  Args:
    name: for the message.
    runner: the contestant.
    x: f32[clients, d] of independent normal entries.
    b: floats that a table may have, if it is not of d.

  Raises:
    RuntimeError: a wrong shape; ||R x||^2 far from ||x||^2; or a desketch that
      is not the adjoint, <x, R^T R x> = ||R x||^2.
  """
  if runner.sketch is None:
    raise RuntimeError(f'{name} makes no table.')
  table, matrix = runner.sketch(0)
  numbers = np.asarray(table).reshape(len(x), -1)
  floats = numbers.shape[1] * (2 if np.iscomplexobj(numbers) else 1)
  allowed = *range(b - 4, b + 1), x.shape[1]
  if floats != runner.floats or floats not in allowed:
    raise RuntimeError(f'{name} makes a table of {floats=}, not {b=}.')
  energy = _dot(x, x)
  ratios = [_dot(np.abs(numbers), np.abs(numbers)) / runner.rows / energy]
  good = True
  if runner.desketch:
    out = np.asarray(runner.desketch(table, matrix))
    if out.shape[-1] != x.shape[1] or out.size != x.size:
      raise RuntimeError(f'{name} desketches to {out.shape}, not {x.shape}.')
    ratios.append(_dot(x, out.reshape(x.shape)) / energy)
    good = not runner.linear or abs(ratios[1] / ratios[0] - 1) <= 1e-2
  # Twelve standard deviations of ||R x||^2.
  if not (good and all(abs(r - 1) <= 12 * (2 / b) ** 0.5 for r in ratios)):
    raise RuntimeError(f'{name} is no sketch: {ratios=} should be near 1.')


def _dot(a, b):
  return sum(
    float(np.einsum('i,i->', *pair, dtype=np.float64))
    for pair in zip(a, b, strict=True)
  )


def bounds(x: np.ndarray, on_device: jax.Array) -> dict[str, Runner]:
  """Lower bounds on time: reading x once, and writing an array of its size.

  Args:
    x: f32[clients, d].
    on_device: the same numbers, where JAX computes.

  Raises:
    RuntimeError: they did not do so.
  """
  total = jax.jit(jnp.sum).lower(on_device).compile()
  fresh = jax.jit(lambda x: x + 1).lower(on_device).compile()
  error = abs(total(on_device) - x.sum(dtype=np.float64))
  same = np.array_equal(fresh(on_device).ravel(), x.ravel() + 1)
  if error > 1e-2 * x.size**0.5 or not same:
    raise RuntimeError('The bounds are not what they should be.')
  return {
    'read': Runner(lambda draw: (total(on_device), None), None),
    'copy': Runner(None, lambda table, matrix: fresh(on_device)),
  }
