"""Nothing of size rows x d or b x d is held, nor a copy of the tree."""

from fl_sketch import sketches
import jax
import jax.numpy as jnp
import operators
import pytest

MIB = 2**20
SIZE = 2**16
OPERATORS = {
  'count_sketch': sketches.count_sketch(5, SIZE // 4),
  'kind I': sketches.sparse_embedding(SIZE, 4, kind='I'),
  'sampling': sketches.uniform_sampling(SIZE),
  'block_cyclic': sketches.block_cyclic(SIZE),
  'srht': sketches.srht(SIZE),
  'dct': sketches.dct(SIZE),
  'srft': sketches.srft(SIZE),
}
COPIES = {'srht': 2 * 2**27, 'dct': 2 * 10**8, 'srft': 2 * 10**8}


def tree(d):
  """Two large leaves and a small one between."""
  shapes = (2, d // 8), (3, 5), (d - 2 * (d // 8) - 15,)
  return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]


def extra(op, d):
  """MiB that XLA holds beside input and output, of sketch and of desketch."""
  key, like = jax.random.key(0), tree(d)
  table = jax.eval_shape(op.zero_table, like)
  back = lambda key, table: op.desketch(key, table, like)
  programs = (op.sketch, key, like), (back, key, table)
  analyses = [
    operators.jit(fn).lower(*args).compile().memory_analysis()
    for fn, *args in programs
  ]
  return [a.temp_size_in_bytes / MIB for a in analyses]


SIZES = {
  name: (op, 10**8, 256 + 4 * COPIES.get(name, 0) / MIB)
  for name, op in OPERATORS.items()
} | {
  'gaussian': (sketches.gaussian(1000), 10**6, 64),
  'ams': (sketches.ams(1000), 10**6, 64),
  'a thousand million': (OPERATORS['block_cyclic'], 10**9, 256),
}


@pytest.mark.representatives('block_cyclic')
@pytest.mark.parametrize('name', SIZES)
def test_extra_memory(name):
  """Catches a sketch that holds its matrix, or another copy of the input."""
  op, d, limit = SIZES[name]
  assert max(extra(op, d)) < limit
