"""Nothing of size rows x d or b x d is held, nor a copy of the tree."""

import big_sketch
from fl_sketch import sketches
import harness
import jax
import jax.numpy as jnp
import operators
import pytest

MIB = 2**20
OPERATORS = {name: make() for name, make in big_sketch.OPERATORS.items()}
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
  'half': (sketches.block_cyclic(5 * 10**7), 10**8, 512),  # of the tree
}


@pytest.mark.representatives('block_cyclic')
@pytest.mark.covers('S0-D3[srht]', 'S0-D4[gaussian, ams]')
@pytest.mark.parametrize('name', SIZES)
def test_extra_memory(name):
  """Catches a sketch that holds its matrix, or another copy of the input."""
  op, d, limit = SIZES[name]
  assert max(extra(op, d)) < limit


@pytest.mark.long
@pytest.mark.parametrize(
  ('name', 'd', 'limit'),
  [
    *((name, 10**8, 4096) for name in OPERATORS),
    ('block_cyclic', 10**9, 2 * 4e9 / MIB + 512),  # input and output: 4 GB each
  ],
)
def test_large_trees_really_run(name, d, limit):
  """In so many MiB of a process, with JAX, input and output."""
  script = harness.ROOT / 'tests' / 'support' / 'big_sketch.py'
  assert int(harness.python(script, name, d)) < limit
