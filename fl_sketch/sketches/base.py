"""The type of linear sketches, and their walk over the leaves of a tree."""

from collections.abc import Callable, Mapping, Sequence
import itertools
from typing import Any, NamedTuple, TypeAlias

from fl_sketch.sketches import primitives
from fl_sketch.utils.types import Key, Table, Tree
import jax
import jax.numpy as jnp
import numpy as np

Vector = jax.ShapeDtypeStruct  # shape (d,): all numbers of a tree in a row
Like: TypeAlias = Tree | int  # a tree, or its number of coordinates d

SMALL_LEAF = 2**16  # smaller neighbouring leaves are copied into one run
LARGE_TREE = 2**18  # several larger trees do not fit into a core's cache


class Properties(NamedTuple):
  """Properties of an operator with matrix R and b numbers in its table.

  Attributes:
    name: name of the factory.
    floats: like -> 32-bit floats on the wire, for a tree of float32.
    alpha: like -> the least constant with E||R^T R x||^2 <= (1 + alpha)
      ||x||^2 for every x; None if unknown.
    coordinate_wise: like -> a with E(h^T R^T R g)^2 <= (h^T g)^2 +
      (a / b) ||g||^2 ||h||^2 for all g and h (Song et al., Definition 4.1);
      None if unknown, for any d or for this one.
    linear: whether desketch is linear in the table.
    adjoint_scale: c in <sketch x, y> = c <x, desketch y>; None if not linear.
  """

  name: str
  floats: Callable[[Like], int]
  alpha: Callable[[Like], float] | None
  coordinate_wise: Callable[[Like], float | None] | None
  linear: bool = True
  adjoint_scale: float | None = 1.0


class Sketch(NamedTuple):
  """Pure functions of one linear sketch; equal keys mean equal hash functions.

  Trees are any pytree of float arrays, summed in float32, or in float64 where a
  leaf has it.

  Attributes:
    sketch: (key, tree) -> table; linear in `tree`.
    desketch: (key, table, like) -> an estimate of the sketched tree, in the
      shapes and dtypes of `like` (arrays or `jax.ShapeDtypeStruct`).
    zero_table: tree -> a table of zeros.
    properties: the operator's stated properties.
    linear_reader: an operator that reads the same tables linearly, if desketch
      is not linear.
  """

  sketch: Callable[[Key, Tree], Table]
  desketch: Callable[[Key, Table, Tree], Tree]
  zero_table: Callable[[Tree], Table]
  properties: Properties | None = None
  linear_reader: 'Sketch | None' = None


def properties(op: Sketch) -> Properties:
  """Return the stated properties of an operator, which `verify` measures.

  >>> from fl_sketch import sketches
  >>> properties(sketches.block_cyclic(8)).alpha(64)
  7.0

  Raises ValueError if the operator was made without any.
  """
  if op.properties is None:
    raise ValueError('op.properties is None; set it.')
  return op.properties


class Span(NamedTuple):
  """Consecutive coordinates of the whole vector, in one or several leaves."""

  start: int
  size: int
  dtype: np.dtype


class Segment(NamedTuple):
  """Consecutive coordinates and their values."""

  start: int
  x: jax.Array


def leaf_type(leaf: Any) -> jax.ShapeDtypeStruct:
  """Return the shape and dtype of an array, or of a Python number."""
  if not hasattr(leaf, 'dtype'):
    leaf = jnp.asarray(leaf)
  dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
  if not jnp.issubdtype(dtype, jnp.floating):
    raise ValueError(f'A leaf has dtype={str(dtype)!r}; use floats.')
  return jax.ShapeDtypeStruct(leaf.shape, dtype)


def wide_type(leaf: Any) -> jax.ShapeDtypeStruct:
  """Return `leaf_type`, with float32 in place of narrower types."""
  narrow = leaf_type(leaf)
  return narrow.update(dtype=jnp.result_type(jnp.float32, narrow.dtype))


def vector_type(tree: Tree) -> jax.ShapeDtypeStruct:
  """Return the shape (d,) of a tree's numbers, and the dtype of their sums.

  Raises ValueError for a leaf that holds no floats, or if d >= 2**31.
  """
  types = [leaf_type(leaf) for leaf in jax.tree.leaves(tree)]
  dtype = jnp.result_type(jnp.float32, *(t.dtype for t in types))
  d = sum(t.size for t in types)
  if d >= 2**31:
    raise ValueError(f'{d=} exceeds 2**31 - 1, the largest int32 index.')
  return jax.ShapeDtypeStruct((d,), dtype)


def dimension(like: Like) -> int:
  """Return the number of coordinates d of a tree; an integer is d itself.

  >>> dimension(7), dimension({'w': jnp.ones((2, 3))})
  (7, 6)
  """
  is_number = isinstance(like, int | np.integer)
  return int(like) if is_number else vector_type(like).size


def join(runs: Sequence[Segment], size: int, dtype: np.dtype) -> jax.Array:
  """Concatenate the values of all runs, with zeros up to `size`: f32[size]."""
  parts = [run.x.astype(dtype) for run in runs]
  rest = size - sum(part.size for part in parts)
  return jnp.concatenate([*parts, jnp.zeros(rest, dtype)])


def check_positive(**values: int) -> None:
  """Raise ValueError unless every value is an integer of at least 1."""
  for name, value in values.items():
    if not isinstance(value, int | np.integer) or value < 1:
      raise ValueError(f'{name}={value!r} must be an integer >= 1.')


def cut(values: jax.Array, spans: Sequence[Span]) -> list[jax.Array]:
  """Return the values f32[d] of each span."""
  return [values[s.start : s.start + s.size].astype(s.dtype) for s in spans]


def split(
  values: jax.Array, types: Sequence[jax.ShapeDtypeStruct]
) -> list[jax.Array]:
  """Cut a vector into arrays of some shapes and dtypes."""
  parts = jnp.split(values, np.cumsum([t.size for t in types])[:-1])
  shaped = lambda part, t: part.reshape(t.shape).astype(t.dtype)
  return list(map(shaped, parts, types))


def _walk(types, dtype) -> list[tuple[list[int], Span]]:
  """Return (indices of leaves, span) of each run; empty leaves are left out."""
  sizes = {i: t.size for i, t in enumerate(types) if t.size}
  walk, start = [], 0
  for small, run in itertools.groupby(sizes, lambda i: sizes[i] < SMALL_LEAF):
    for group in [list(run)] if small else [[i] for i in run]:
      size = sum(sizes[i] for i in group)
      span_dtype = types[group[0]].dtype if len(group) == 1 else dtype
      walk.append((group, Span(start, size, span_dtype)))
      start += size
  return walk


def from_runs(
  stated: Properties, axes: Mapping[str, int] | int | None,
  sketch: Callable[[Key, Sequence[Segment], Vector], Table],
  desketch: Callable[[Key, Table, Sequence[Span], Vector], list[jax.Array]],
  dtype: jax.typing.DTypeLike = jnp.float32, *,
  allow_larger: bool = False, by_lanes: bool = False,
) -> Sketch:  # fmt: skip
  """Make a `Sketch` of trees from functions of runs of coordinates.

  A large leaf is a run of its own, in its own dtype, and is never copied; small
  neighbours are copied into one run.

  >>> total = lambda key, runs, vector: sum(run.x.sum() for run in runs)[None]
  >>> read = lambda key, y, spans, vector: [jnp.full(s.size, y) for s in spans]
  >>> op = from_runs(Properties('sum', None, None, None), 1, total, read)
  >>> op.sketch(None, [jnp.ones(3), jnp.ones(2)]).tolist()
  [5.0]

  Args:
    stated: the operator's properties.
    axes: the table's axes by name; 8 is {'size': 8}, None is the tree's d.
    sketch: (key, runs, `vector_type` of the tree) -> table.
    desketch: (key, table, spans, that type) -> values of each, in its dtype.
    dtype: dtype of tables of float32 trees.
    allow_larger: whether a table may be larger than the tree.
    by_lanes: whether `vmap` over large trees is a loop on a CPU.
  """
  if isinstance(axes, int | np.integer):
    axes = {'size': axes}

  def checked_type(tree):
    vector = vector_type(tree)
    shape = vector.shape if axes is None else tuple(axes.values())
    table = jax.ShapeDtypeStruct(shape, jnp.result_type(vector.dtype, dtype))
    if not allow_larger and table.size > vector.size:
      axis = ' * '.join(f'{name}={n}' for name, n in (axes or {}).items())
      raise ValueError(f'{axis} exceeds d={vector.size}; use a smaller table.')
    return table

  def in_lanes(fn, vector):
    large = by_lanes and vector.size >= LARGE_TREE
    return primitives.lane_by_lane(fn) if large else fn

  # Without `jit` the loops would be compiled at every call.
  @jax.jit
  def sketch_tree(key, tree):
    checked_type(tree)
    vector = vector_type(tree)

    def whole(key, leaves):
      runs = []
      for group, span in _walk(list(map(leaf_type, leaves)), vector.dtype):
        parts = [jnp.ravel(leaves[i]).astype(span.dtype) for i in group]
        runs.append(Segment(span.start, jnp.concatenate(parts)))
      return sketch(key, runs, vector)

    return in_lanes(whole, vector)(key, jax.tree.leaves(tree))

  @jax.jit(static_argnums=2)
  def desketch_leaves(key, table, types):
    vector = vector_type(types)
    walk = _walk(types, vector.dtype)

    def whole(key, table):
      estimates = desketch(key, table, [span for _, span in walk], vector)
      out = {i: jnp.zeros(t.shape, t.dtype) for i, t in enumerate(types)}
      for (group, _), values in zip(walk, estimates, strict=True):
        out |= zip(group, split(values, [types[i] for i in group]), strict=True)
      return list(out.values())

    return in_lanes(whole, vector)(key, table)

  def desketch_tree(key, table, like):
    want = checked_type(like)
    if table.shape != want.shape:
      raise ValueError(f'{table.shape=} must be {want.shape}, as of `like`.')
    leaves, treedef = jax.tree.flatten(like)
    types = tuple(map(leaf_type, leaves))
    return treedef.unflatten(desketch_leaves(key, table, types))

  zero_table = lambda tree: jnp.zeros_like(checked_type(tree))
  return Sketch(sketch_tree, desketch_tree, zero_table, stated)
