"""Peak of memory in MiB of a sketch: python big_sketch.py OPERATOR D."""

import pathlib
import re
import sys

from fl_sketch import sketches
import jax
import jax.numpy as jnp

SIZE = 2**16
OPERATORS = {
  'count_sketch': lambda: sketches.count_sketch(5, SIZE // 4),
  'kind I': lambda: sketches.sparse_embedding(SIZE, 4, kind='I'),
  'kind II': lambda: sketches.sparse_embedding(SIZE, 4),
  'sampling': lambda: sketches.uniform_sampling(SIZE),
  'block_cyclic': lambda: sketches.block_cyclic(SIZE),
  'stacked': lambda: sketches.block_cyclic(SIZE, sparsity=4),
  'srht': lambda: sketches.srht(SIZE),
  'dct': lambda: sketches.dct(SIZE),
  'srft': lambda: sketches.srft(SIZE),
}

if __name__ == '__main__':
  op, d = OPERATORS[sys.argv[1]](), int(sys.argv[2])
  key, shape = jax.random.key(0), jax.ShapeDtypeStruct((d,), jnp.float32)
  x = jax.jit(lambda: jnp.where(jnp.arange(d) % 3 == 0, 1.0, -0.5))()
  table = op.sketch(key, x)
  out = op.desketch(key, table, shape)
  # <x, R^T R x> = ||R x||^2, near ||x||^2; a median only comes near.
  rows = table.shape[0] if table.ndim > 1 else 1
  norm = float(jnp.vdot(table, table).real) / rows
  back = float(jax.jit(lambda x, y: (x * y).sum())(x, out))
  true = float(jax.jit(lambda x: (x * x).sum())(x))
  assert abs(norm / true - 1) < 0.1, (norm, true)
  assert abs(back / norm - 1) < (1e-2 if rows == 1 else 0.1), (back, norm)
  # The most resident memory of this program; `ru_maxrss` has its parent's.
  status = pathlib.Path('/proc/self/status').read_text(encoding='ascii')
  print(int(re.search(r'VmHWM:\s+(\d+) kB', status)[1]) // 1024)
