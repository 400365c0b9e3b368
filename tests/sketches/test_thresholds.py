"""The spread of ||S x||^2 on both sides of lengths where the code changes."""

import exact_variances
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import numpy as np
import operators
import pytest

BLOCKS = sketches.block_srht(26, block=256), sketches.block_srht(48, block=16)
COPIES = sketches.block_cyclic(32, sparsity=2)
FAST = {'one block and a rest': (BLOCKS[0], 257)}  # operators, and lengths
NIGHTLY = {
  'nearly two blocks': (BLOCKS[0], 511),
  'blocks and a rest': (BLOCKS[1], 95, 96, 97, 111),
  'one block of 4096': (sketches.block_srht(410), 4095, 4096, 4097, 4810, 8191),
  'two blocks of 4096': (sketches.block_srht(410), 8192, 8193, 12_287),
  'rows, by a product': (sketches.block_srht(128), 1024, 1025),
  'rows, by a transform': (sketches.block_srht(129), 1024, 1025),
  'padding of srht': (sketches.srht(40), 255, 256, 257),
  'padding of dct': (sketches.dct(40), 4096, 4097),
  'parts of dct': (sketches.dct(40), 8191, 8192, 8193),
  'padding of srft': (sketches.srft(40), 4096, 4097),
  'parts of srft': (sketches.srft(40), 8191, 8192, 8193),
  'planes of signs': (sketches.block_cyclic(16), 511, 512, 513),
  'tiles of a block': (sketches.block_cyclic(8192), 16_384, 20_000),
  'long tiles': (sketches.block_cyclic(8193), 16_386, 20_000),
  'copies of blocks': (COPIES, 511, 513),
  'planes of an embedding': (sketches.sparse_embedding(40, 40), 80, 81),
  'planes of ams': (sketches.ams(31), 300),
  'more planes of ams': (sketches.ams(32), 300),
  'a network of medians': (sketches.count_sketch(128, 4), 600),
  'a sort of medians': (sketches.count_sketch(129, 4), 600),
  'samples of a power of two': (sketches.uniform_sampling(40), 255, 256, 257),
  'small leaves': (sketches.srht(40), 2**16 - 1, 2**16, 2**16 + 1),
}
LONG = {
  'tiles of columns': (sketches.sparse_embedding(40, 8), 131_071, 131_073),
  'tiles of a dense matrix': (sketches.gaussian(40), 26_214, 26_215),
  'pieces of a transform': (sketches.srht(40), 2**18, 2**18 + 1),
  'trees lane by lane': (sketches.block_srht(410), 2**18 - 1, 2**18 + 1),
  'tiles of rows': (sketches.block_srht(410), 2**19 - 1, 2**19, 2**19 + 4097),
  'pieces of a grid': (sketches.block_srht(8320), 2**18 - 1, 2**18, 266_241),
  'tiles of signs': (sketches.dct(40), 2**20 - 1, 2**20 + 1),
}


def table_of(cases, mark):
  return [
    pytest.param(op, d, id=f'{name}, d={d}', marks=mark)
    for name, (op, *dims) in cases.items()
    for d in dims
  ]


@pytest.mark.parametrize(
  ('op', 'd'),
  table_of(FAST, ())
  + table_of(NIGHTLY, pytest.mark.nightly)
  + table_of(LONG, pytest.mark.long),
)
def test_the_spread_of_a_norm_is_as_stated(op, d):
  """Catches transforms that undo one another: 20 times a Gaussian's spread."""
  place, stated = np.arange(d), (op.linear_reader or op).properties
  rows = [place == at for at in (0, d // 3, d - 1)]
  rows += [place % -(-d // 32) == 0, place >= d - 16, place < d / 2]
  xs = [np.float32(row / row.sum() ** 0.5) for row in rows]
  square = lambda key, x: jnp.square(jnp.abs(op.sketch(key, x))).sum()
  lanes = operators.jit(jax.vmap(square, (0, None)))
  keys = jax.random.split(operators.KEY, 400)
  block = {BLOCKS[0]: 256, BLOCKS[1]: 16}.get(op, 4096)
  cols = 16 if op is COPIES else 0
  for x in xs:
    energies = np.float64(lanes(keys, x)) / (stated.adjoint_scale or 1)
    law = exact_variances.variance(op, x, x, cols=cols, block=block)
    if law is None:
      law = 2 / stated.floats(d) * -(-d // min(block, 1 << d.bit_length() - 1))
    mean, error = operators.mean_and_error(energies)
    assert abs(mean - 1) < 6 * error + 1e-4  # 2e-9 to miss one, nominally
    # Of 400 keys: 4e-10 to miss one for normal numbers.
    assert energies.var() < 1.6 * law + 1e-6
