"""Block-cyclic sketches of leaves, in parts of one table that may be traced."""

from collections.abc import Sequence
import functools

from fl_sketch.sketches import base, columns, hashing
import jax
from jax import core
import jax.numpy as jnp
import numpy as np


def layer_cyclic(size: int, sizes: Sequence[int] | jax.Array) -> base.Sketch:
  r"""Sketch each leaf into its own part of a table of fixed size.

  Leaf l has the next :math:`b_l` of the `size` numbers, and is sketched into
  them as by `block_cyclic`. Unlike those of `layerwise`, the b_l may be traced,
  and change from round to round in one program.

  Guarantees, for pairwise independent shifts and hashed signs:
    linear, desketch its adjoint; unbiased; no leaf's noise reaches another.
    second moment: E||desketch(sketch(x))||^2 = sum_l (1 + alpha_l) ||x_l||^2,
      alpha_l that of `block_cyclic`: d_l / b_l - 1 where b_l divides d_l.
    exact in a leaf with b_l >= d_l.

  >>> op, x = layer_cyclic(5, (3, 2)), [jnp.ones(3), jnp.ones(8)]
  >>> key = jax.random.key(0)
  >>> op.desketch(key, op.sketch(key, x), x)[0].tolist()
  [1.0, 1.0, 1.0]

  Tables are f32[size], `sizes` int32[leaves]. Raises ValueError if size exceeds
  d, there is not one b_l a leaf, or b_l that are not traced have another sum or
  are below 1. No alpha is stated: it depends on the b_l.
  """
  base.check_positive(size=size)
  if not isinstance(sizes, core.Tracer):
    if min(sizes) < 1 or sum(sizes) != size:
      raise ValueError(f'{sizes=} must be >= 1 each, with the sum {size=}.')
  stated = base.Properties('layer_cyclic', lambda like: size, None, None)

  def operator(tree):
    dims = [base.leaf_type(leaf).size for leaf in jax.tree.leaves(tree)]
    if len(dims) != len(sizes):
      raise ValueError(f'{len(sizes)=} must be {len(dims)}, one a leaf.')
    part = functools.partial(_columns, dims, jnp.asarray(sizes, jnp.uint32))

    def sketch(key, runs, vector):
      each = [(part(key, run.start, run.x.size), [run]) for run in runs]
      return sum(columns.sketch(*one, size, vector.dtype) for one in each)

    def desketch(key, table, spans, vector):
      first = lambda values: values[0]
      each = [(part(key, span.start, span.size), [span]) for span in spans]
      return [columns.desketch(r, table, s, first)[0] for r, s in each]

    return base.from_runs(stated, size, sketch, desketch)

  return base.Sketch(
    lambda key, tree: operator(tree).sketch(key, tree),
    lambda key, table, like: operator(like).desketch(key, table, like),
    lambda tree: operator(tree).zero_table(tree), stated,
  )  # fmt: skip


def _columns(dims, sizes, key, start, n) -> columns.Columns:
  """Return the columns of n coordinates from `start` on, of any leaves."""
  starts = np.cumsum([0, *dims[:-1]], dtype=np.uint32)
  offsets = jnp.cumsum(sizes) - sizes
  (family,) = hashing.families(key, 1, 2, hashing.SHIFT)
  first, last = np.searchsorted(starts, [start, start + n - 1], 'right')
  inner = starts[first:last]

  def rows(counter):
    leaf = first - 1
    if inner.size:  # a large leaf is alone, and needs no search
      leaf += jnp.searchsorted(jnp.asarray(inner), counter, side='right')
    start, width = jnp.asarray(starts)[leaf], sizes[leaf]
    block, u = jnp.divmod(counter - start, width)
    shift = hashing.kwise(start + block, family) % width
    return (offsets[leaf] + (u + shift) % width).astype(jnp.int32)[None]

  return columns.Columns(1, rows, hashing.seeds(key, 1, hashing.SIGN))
