"""Block-cyclic sketches of leaves, in parts of one table that may be traced."""

import dataclasses

from fl_sketch.sketches import base, columns, hashing
from fl_sketch.utils import fields
import jax
from jax import core
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class layer_cyclic(base.Sketch):
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

  size: fields.Count
  sizes: tuple[int, ...] | jax.Array

  def __post_init__(self):
    super().__post_init__()
    if isinstance(self.sizes, core.Tracer):
      return
    sizes = tuple(map(int, self.sizes))
    object.__setattr__(self, 'sizes', sizes)
    if min(sizes) < 1 or sum(sizes) != self.size:
      raise ValueError(f'{sizes=} must be >= 1 each, with the sum {self.size}.')

  @property
  def properties(self):
    return base.Properties('layer_cyclic', lambda like: self.size, None, None)

  def sketch(self, key, tree):
    return self._parts(tree).sketch(key, tree)

  def desketch(self, key, table, like):
    return self._parts(like).desketch(key, table, like)

  def zero_table(self, tree):
    return self._parts(tree).zero_table(tree)

  def _parts(self, tree) -> '_Parts':
    dims = tuple(base.leaf_type(leaf).size for leaf in jax.tree.leaves(tree))
    if len(dims) != len(self.sizes):
      raise ValueError(f'{len(self.sizes)=} must be {len(dims)}, one a leaf.')
    return _Parts(self.size, self.sizes, dims)


@dataclasses.dataclass(frozen=True)
class _Parts(base.VectorSketch):
  """`layer_cyclic` of leaves of `dims` numbers."""

  size: int
  sizes: tuple[int, ...] | jax.Array
  dims: tuple[int, ...]
  axes = ('size',)

  def sketch_runs(self, key, runs, vector):
    each = [(self._columns(key, run.start, run.x.size), [run]) for run in runs]
    tables = [columns.sketch(*x, self.size, vector.dtype) for x in each]
    return sum(tables, start=jnp.zeros((), vector.dtype))

  def desketch_spans(self, key, table, spans, vector):
    first = lambda values: values[0]
    each = [(self._columns(key, s.start, s.size), [s]) for s in spans]
    return [columns.desketch(r, table, s, first)[0] for r, s in each]

  def _columns(self, key, start: int, n: int) -> columns.Columns:
    """Return the columns of n coordinates from `start` on, of any leaves."""
    sizes = jnp.asarray(self.sizes, jnp.uint32)
    starts = np.cumsum([0, *self.dims[:-1]], dtype=np.uint32)
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
