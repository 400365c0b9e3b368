"""The type of linear sketches, and their walk over the leaves of a tree."""

import abc
from collections.abc import Callable, Sequence
import dataclasses
import inspect
import itertools
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from fl_sketch.sketches import primitives
from fl_sketch.utils import fields
from fl_sketch.utils.types import Key, Table, Tree
import jax
from jax import core
import jax.numpy as jnp
import numpy as np

Vector = jax.ShapeDtypeStruct  # shape (d,): all numbers of a tree in a row
Like: TypeAlias = Tree | int  # a tree, or its number of coordinates d
Leaf: TypeAlias = jax.typing.ArrayLike | jax.ShapeDtypeStruct
Result = TypeVar('Result')

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


class Sketch(abc.ABC):
  """A linear sketch: a frozen dataclass of options.

  Equal options make equal operators, hashable unless an option is traced; equal
  keys make equal hash functions. Trees are any pytree of float arrays, summed
  in float32, or in float64 where a leaf has it. An option that breaks its
  annotation raises ValueError.
  """

  def __post_init__(self):
    fields.check_options(self)

  @abc.abstractmethod
  def sketch(self, key: Key, tree: Tree) -> Table:
    """Return the table of a tree, linear in the tree."""

  @abc.abstractmethod
  def desketch(self, key: Key, table: Table, like: Tree) -> Tree:
    """Return an estimate of the tree, in the shapes and dtypes of `like`."""

  @abc.abstractmethod
  def zero_table(self, tree: Tree) -> Table:
    """Return a table of zeros."""

  @property
  def properties(self) -> Properties:
    """What the operator states; ValueError if it states nothing."""
    raise ValueError(f'{type(self).__name__} states no properties.')

  @property
  def linear_reader(self) -> 'Sketch | None':
    """A linear operator for the same tables, if desketch is not linear."""
    return None


class Span(NamedTuple):
  """Consecutive coordinates of the whole vector, in one or several leaves."""

  start: int
  size: int
  dtype: np.dtype


class Segment(NamedTuple):
  """Consecutive coordinates and their values."""

  start: int
  x: jax.Array


Runs: TypeAlias = Sequence[Segment]


def leaf_type(leaf: Leaf) -> jax.ShapeDtypeStruct:
  """Return the shape and dtype of an array, or of a Python number."""
  if isinstance(leaf, bool | int | float | complex):
    leaf = jnp.asarray(leaf)
  dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
  if not jnp.issubdtype(dtype, jnp.floating):
    raise ValueError(f'A leaf has dtype={str(dtype)!r}; use floats.')
  return jax.ShapeDtypeStruct(leaf.shape, dtype)


def wide_type(leaf: Leaf) -> jax.ShapeDtypeStruct:
  """Return `leaf_type`, with float32 in place of narrower types."""
  narrow = leaf_type(leaf)
  return narrow.update(dtype=jnp.result_type(jnp.float32, narrow.dtype))


def vector_type(tree: Tree) -> jax.ShapeDtypeStruct:
  """Return the shape (d,) of a tree's floats, and the dtype of their sums."""
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


def join(runs: Runs, size: int, dtype: np.dtype) -> jax.Array:
  """Concatenate the values of all runs, with zeros up to `size`: f32[size]."""
  parts = [run.x.astype(dtype) for run in runs]
  rest = size - sum(part.size for part in parts)
  return jnp.concatenate([*parts, jnp.zeros(rest, dtype)])


def cut(values: jax.Array, spans: Sequence[Span]) -> list[jax.Array]:
  """Return the values f32[d] of each span."""
  return [values[s.start : s.start + s.size].astype(s.dtype) for s in spans]


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


class VectorSketch(Sketch):
  """Base of operators on the vector of all numbers of a tree.

  A subclass has functions of runs of coordinates. A large leaf is a run of its
  own, in its own dtype, and is never copied; small neighbours are copied into
  one run. Equal operators share compiled programs.

  Attributes:
    axes: options that are the sizes of the table's axes; () is one axis of d.
    dtype: dtype of tables of float32 trees.
    allow_larger: whether a table may be larger than the tree.
    by_lanes: whether `vmap` over large trees is a loop on a CPU.
  """

  axes: ClassVar[tuple[str, ...]] = ()
  dtype: ClassVar[jax.typing.DTypeLike] = jnp.float32
  allow_larger: bool = False
  by_lanes: ClassVar[bool] = False

  @abc.abstractmethod
  def sketch_runs(self, key: Key, runs: Runs, vector: Vector) -> jax.Array:
    """Return the table of the runs of a tree of this `vector_type`."""

  @abc.abstractmethod
  def desketch_spans(
    self, key: Key, table: jax.Array, spans: Sequence[Span], vector: Vector
  ) -> list[jax.Array]:
    """Return the estimated values of each span, in its dtype."""

  def sketch(self, key: Key, tree: Tree) -> jax.Array:
    return _call(sketch_tree, self, key, tree)

  def desketch(self, key: Key, table: jax.Array, like: Tree) -> Tree:
    want = self.table_type(like)
    if table.shape != want.shape:
      raise ValueError(f'{table.shape=} must be {want.shape}, as of `like`.')
    leaves, treedef = jax.tree.flatten(like)
    types = tuple(map(leaf_type, leaves))
    return treedef.unflatten(_call(desketch_leaves, self, key, table, types))

  def zero_table(self, tree: Tree) -> jax.Array:
    return jnp.zeros_like(self.table_type(tree))

  def table_type(self, tree: Tree) -> jax.ShapeDtypeStruct:
    """Return the table's shape and dtype; ValueError if it is too large."""
    vector = vector_type(tree)
    sizes = {name: getattr(self, name) for name in self.axes}
    shape = tuple(sizes.values()) if sizes else vector.shape
    dtype = jnp.result_type(vector.dtype, self.dtype)
    table = jax.ShapeDtypeStruct(shape, dtype)
    if not self.allow_larger and table.size > vector.size:
      axes = ' * '.join(f'{name}={n}' for name, n in sizes.items())
      raise ValueError(f'{axes} exceeds d={vector.size}; use a smaller table.')
    return table


@dataclasses.dataclass(frozen=True)
class SizedSketch(VectorSketch):
  """Base of unbiased linear operators with tables f32[size], size <= d."""

  size: fields.Count
  axes = ('size',)

  @abc.abstractmethod
  def alpha(self, d: int) -> float:
    """Return `Properties.alpha` of d coordinates."""

  def coordinate_wise(self, d: int) -> float | None:
    """Return `Properties.coordinate_wise` of d coordinates."""
    return 2.0

  @property
  def properties(self):
    return Properties(
      type(self).__name__,
      lambda like: self.size * np.dtype(self.dtype).itemsize // 4,
      alpha=lambda like: self.alpha(dimension(like)),
      coordinate_wise=lambda like: self.coordinate_wise(dimension(like)),
    )  # fmt: skip


# Without `jit` the loops would be compiled at every call.
@jax.jit(static_argnums=0)
def sketch_tree(op: VectorSketch, key: Key, tree: Tree) -> jax.Array:
  """Sketch a tree by the runs of its leaves."""
  op.table_type(tree)
  vector = vector_type(tree)

  def whole(key, leaves):
    runs = []
    for group, span in _walk(list(map(leaf_type, leaves)), vector.dtype):
      parts = [jnp.ravel(leaves[i]).astype(span.dtype) for i in group]
      runs.append(Segment(span.start, jnp.concatenate(parts)))
    return op.sketch_runs(key, runs, vector)

  return _in_lanes(op, vector, whole)(key, jax.tree.leaves(tree))


@jax.jit(static_argnums=(0, 3))
def desketch_leaves(
  op: VectorSketch, key: Key, table: jax.Array,
  types: tuple[jax.ShapeDtypeStruct, ...],
) -> list[jax.Array]:  # fmt: skip
  """Estimate leaves of these shapes and dtypes from a table."""
  vector = vector_type(types)
  walk = _walk(types, vector.dtype)

  def whole(key, table):
    spans = [span for _, span in walk]
    estimates = op.desketch_spans(key, table, spans, vector)
    out = {i: jnp.zeros(t.shape, t.dtype) for i, t in enumerate(types)}
    for (group, _), values in zip(walk, estimates, strict=True):
      parts = jnp.split(values, np.cumsum([types[i].size for i in group])[:-1])
      for i, part in zip(group, parts, strict=True):
        out[i] = part.reshape(types[i].shape).astype(types[i].dtype)
    return list(out.values())

  return _in_lanes(op, vector, whole)(key, table)


def _in_lanes(op, vector, whole):
  large = op.by_lanes and vector.size >= LARGE_TREE
  return primitives.lane_by_lane(whole) if large else whole


def _call(
  program: Callable[..., Result], op: VectorSketch, *args: Any
) -> Result:
  traced = any(isinstance(x, core.Tracer) for x in vars(op).values())
  return (inspect.unwrap(program) if traced else program)(op, *args)
