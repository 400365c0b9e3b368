"""Layer-wise sketching: a table for every leaf of a tree, or a part of one."""

from collections.abc import Callable, Sequence
import dataclasses
from fractions import Fraction
import functools
import math
from typing import Annotated

from fl_sketch.sketches import base, columns, hashing
from fl_sketch.sketches.sampling import identity
from fl_sketch.utils import fields
import jax
from jax import core
import jax.numpy as jnp
import numpy as np

_RULES = {'proportional': int, 'sqrt': math.sqrt}  # d_l -> weight
_RAW, _fold = identity(), jax.random.fold_in


@dataclasses.dataclass(frozen=True, repr=False)
class layerwise(base.Sketch):
  r"""Sketch each leaf by itself, so that no leaf's noise reaches another.

  :math:`R = \mathrm{blockdiag}(R_1, \ldots, R_L)`, where :math:`R_l` is
  ``factory(b_l)`` under the key ``fold_in(key, l)`` and the :math:`b_l` add up
  to `size`. The future work of SAFL (Chen, Li, Banerjee, arXiv:2411.06770).

  A leaf with b_l >= d_l, or whose table would not be smaller than itself, is
  sent raw; a rule gives its excess to the other leaves.

  Guarantees, as of the leaves' operators:
    second moment: E||desketch(sketch(x))||^2 = sum_l (1 + alpha_l) ||x_l||^2,
      with alpha_l = 0 for raw leaves, so that alpha = max_l alpha_l.
    coordinate-wise constant b max_l (a_l / b_l), with b = sum_l b_l.

  >>> from fl_sketch.sketches.blocks import block_cyclic
  >>> op = layerwise(block_cyclic, 12)
  >>> [table.shape for table in op.zero_table([np.ones((6, 8)), np.ones(2)])]
  [(11,), (1,)]

  Args:
    factory: b -> an operator with a table of about b numbers, which states the
      same properties for every b, such as `block_cyclic`.
    size: numbers in all tables together.
    allocation: 'proportional' (b_l in proportion to d_l) or 'sqrt' (to the
      square root of d_l), with b_l >= 1.

  Tables are tuples of the leaves' tables; that of an empty leaf is f32[0].

  Raises ValueError if size is above d or below the number of leaves.
  """

  factory: Callable[[int], base.Sketch]
  size: fields.Count
  allocation: Annotated[str, fields.choice(tuple(_RULES))] = 'proportional'

  def __post_init__(self):
    super().__post_init__()
    self.factory(self.size)  # raises what the factory raises

  def __repr__(self):
    factory = getattr(self.factory, '__name__', self.factory)
    return f'layerwise({factory}, {self.size}, {self.allocation!r})'

  def sketch(self, key, tree):
    leaves = jax.tree.leaves(tree)
    each = enumerate(zip(self._parts(leaves), leaves, strict=True))
    return tuple(op.sketch(_fold(key, i), leaf) for i, (op, leaf) in each)

  def desketch(self, key, table, like):
    leaves, treedef = jax.tree.flatten(like)
    if len(table) != len(leaves):
      raise ValueError(f'{len(table)=} must be {len(leaves)}, one a leaf.')
    each = enumerate(zip(self._parts(leaves), table, leaves, strict=True))
    out = (op.desketch(_fold(key, i), y, x) for i, (op, y, x) in each)
    return treedef.unflatten(out)

  def zero_table(self, tree):
    leaves = jax.tree.leaves(tree)
    each = zip(self._parts(leaves), leaves, strict=True)
    return tuple(op.zero_table(leaf) for op, leaf in each)

  def _parts(self, leaves: Sequence[base.Leaf]) -> list[base.Sketch]:
    """Return the operator of each leaf."""
    dims = tuple(math.prod(base.leaf_type(leaf).shape) for leaf in leaves)
    sizes, ops = _allocated(self.allocation, dims, self.size), []
    for b, d in zip(sizes, dims, strict=True):
      op = self.factory(b) if b < d else _RAW
      ops.append(_RAW if op.properties.floats(d) >= d else op)
    return ops

  @property
  def properties(self):
    stated = self.factory(self.size).properties
    facts = self._facts
    alpha = lambda like: max(p.alpha(d) for p, d, _ in facts(like) if p.alpha)
    floats = lambda like: sum(p.floats(d) for p, d, _ in facts(like))
    return base.Properties(
      'layerwise', floats, alpha if stated.alpha else None,
      coordinate_wise=self._coordinate_wise if stated.coordinate_wise else None,
      linear=stated.linear,
      adjoint_scale=1.0 if stated.adjoint_scale == 1 else None,
    )  # fmt: skip

  def _facts(self, like: base.Like) -> list[tuple[base.Properties, int, int]]:
    """Return (properties, d, b) of every leaf that is not empty."""
    if isinstance(like, int | np.integer):
      like = jax.ShapeDtypeStruct((int(like),), np.float32)
    leaves, facts = jax.tree.leaves(like), []
    for op, leaf in zip(self._parts(leaves), leaves, strict=True):
      tables = jax.tree.leaves(jax.eval_shape(op.zero_table, leaf))
      if b := sum(table.size for table in tables):
        facts.append((op.properties, base.dimension(leaf), b))
    return facts

  def _coordinate_wise(self, like: base.Like) -> float | None:
    most, size = 0.0, 0
    for stated, d, b in self._facts(like):
      constant = stated.coordinate_wise and stated.coordinate_wise(d)
      if constant is None:
        return None
      most, size = max(most, constant / b), size + b
    return most * size


@functools.lru_cache
def _allocated(rule: str, sizes: tuple[int, ...], size: int) -> tuple[int, ...]:
  """Return the b_l of leaves of d_l = `sizes` numbers, b_l <= d_l."""
  if size > sum(sizes):
    raise ValueError(f'{size=} exceeds d={sum(sizes)}; use a smaller size.')
  count = sum(d > 0 for d in sizes)
  if size < count:
    raise ValueError(f'{size=} must be >= {count}, one a leaf.')
  # Rounded by largest remainder: each is off by less than 1.
  shares = _shares(list(map(_RULES[rule], sizes)), sizes, size)
  floors = [math.floor(share) for share in shares]
  order = sorted(range(len(sizes)), key=lambda i: floors[i] - shares[i])
  up = set(order[: size - sum(floors)])
  return tuple(floor + (i in up) for i, floor in enumerate(floors))


def _shares(weights, sizes, size) -> list[Fraction]:
  """Return the real min(max(t w_l, 1), d_l) of sum `size`; 0 where d_l is 0."""
  # Bitran and Hax (Management Science, 1981): bounds that bind on the side of
  # the larger excess bind in the solution. Fractions: equal on all machines.
  shares = [Fraction(0)] * len(sizes)
  free, rest = [i for i, d in enumerate(sizes) if d], Fraction(size)
  while free:
    t = rest / sum(Fraction(weights[i]) for i in free)
    at = {i: t * Fraction(weights[i]) for i in free}
    high = {i: Fraction(sizes[i]) for i in free if at[i] > sizes[i]}
    low = {i: Fraction(1) for i in free if at[i] < 1}
    excess = sum(at[i] - sizes[i] for i in high)
    missing = sum(1 - at[i] for i in low)
    settled = high if excess > missing else low or at
    for i in settled:
      shares[i] = settled[i]
    free = [i for i in free if i not in settled]
    rest -= sum(settled.values())
  return shares


@dataclasses.dataclass(frozen=True)
class layer_cyclic(base.Sketch):
  r"""Sketch each leaf into its own part of a table of fixed size.

  Leaf l has the next :math:`b_l` of the `size` numbers, and is sketched into
  them as by `block_cyclic`. Unlike those of `layerwise`, the b_l may be traced,
  and change from round to round in one program.

  Guarantees: those of `block_cyclic` in each leaf, whose noise reaches no
  other; a leaf with b_l >= d_l is exact.

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
