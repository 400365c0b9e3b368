"""The type of linear sketches, and their walk over the leaves of a tree."""

from collections.abc import Callable, Mapping, Sequence
import itertools
from typing import Any, NamedTuple

from fl_sketch.sketches import primitives
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp
import numpy as np

Tree = Any
Table = Any
Vector = jax.ShapeDtypeStruct  # of all d numbers in a row

# Runs of leaves below this are copied side by side and walked as one.
SMALL_LEAF = 2**16
# Several trees of so many numbers are too large for a core's cache.
LARGE_TREE = 2**18


class Properties(NamedTuple):
  """Properties of an operator with matrix R and b numbers in its table.

  The functions take the number of coordinates d, or a tree of d numbers.

  Attributes:
    name: of the factory.
    floats: like -> 32-bit floats on the wire, for a tree of float32.
    alpha: like -> the least constant with E||R^T R x||^2 <= (1 + alpha)
      ||x||^2 for every x. None where no closed form is known.
    coordinate_wise: like -> a with E(h^T R^T R g)^2 <= (h^T g)^2 +
      (a / b) ||g||^2 ||h||^2 for all g and h (Song et al., Definition 4.1); a
      bound, close to the least such constant while b is much smaller than d;
      None where none is known for that d.
    variance: (g, h), two vectors or trees -> the exact variance of
      <g, R^T R h>. None, or a function that returns it, where it is not known.
    printed: like -> the alpha printed in Table 1 of Song et al.; None: no row.
    linear: whether desketch is linear in the table.
    adjoint_scale: c in <sketch x, y> = c <x, desketch y>; None if not linear.
    exact_at_full_size: whether desketch undoes sketch in every draw at b = d,
      where the operator pads nothing.
    orthogonal_rows: whether R R^T = (d / b) I in every draw, likewise.
    embedding: False for a compressor whose `coordinate_wise` grows with d: it
      is unbiased, yet a single draw may lose a spike.
  """

  name: str
  floats: Callable[[Any], int]
  alpha: Callable[[Any], float] | None
  coordinate_wise: Callable[[Any], float | None] | None
  variance: Callable[[Any, Any], float | None] | None = None
  printed: Callable[[Any], float] | None = None
  linear: bool = True
  adjoint_scale: float | None = 1.0
  exact_at_full_size: bool = False
  orthogonal_rows: bool = False
  embedding: bool = True


class Sketch(NamedTuple):
  """Pure functions of one linear sketch; equal keys mean equal hash functions.

  Trees are any pytree of float arrays; their d numbers are accumulated in
  float32, or in float64 where a leaf has it.

  Attributes:
    sketch: (key, tree) -> table; linear in `tree`.
    desketch: (key, table, like) -> tree of the shapes and dtypes of `like`
      (arrays or `jax.ShapeDtypeStruct`), an estimate of what was sketched.
    zero_table: tree -> a table of zeros, for state that lives in table space.
    properties: what the operator promises, for `sketches.properties`.
    linear_reader: an operator that reads the same tables linearly, where
      desketch is not linear and there is one.
  """

  sketch: Callable[[jax.Array, Tree], Table]
  desketch: Callable[[jax.Array, Table, Tree], Tree]
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
    raise ValueError('op.properties is None: it states none; set them.')
  return op.properties


class Span(NamedTuple):
  """Consecutive coordinates of the whole vector, in one or several leaves."""

  start: int
  size: int
  dtype: Any


class Segment(NamedTuple):
  """Consecutive coordinates and their values; a large leaf as it is."""

  start: int
  x: jax.Array


def leaf_type(leaf: Any) -> jax.ShapeDtypeStruct:
  """The shape and dtype of a leaf, of what has them or of a Python number."""
  if not hasattr(leaf, 'dtype'):
    leaf = jnp.asarray(leaf)
  dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
  if not jnp.issubdtype(dtype, jnp.floating):
    raise checks.DtypeError(
      f'A leaf has dtype={str(dtype)!r}; use a float type. (Tables of srft are '
      'complex.)'
    )
  return jax.ShapeDtypeStruct(leaf.shape, dtype)


def wide_type(leaf: Any) -> jax.ShapeDtypeStruct:
  """As `leaf_type`, of float32 at least."""
  t = leaf_type(leaf)
  return t.update(dtype=jnp.result_type(jnp.float32, t.dtype))


def vector_type(tree: Tree) -> jax.ShapeDtypeStruct:
  """The shape (d,) of a tree's numbers in a row, and the dtype of their sums.

  >>> vector_type({'w': jnp.ones((2, 3)), 'b': jnp.ones(2, jnp.bfloat16)})
  ShapeDtypeStruct(shape=(8,), dtype=float32)

  Raises TypeError if a leaf is not of a float type, and ValueError if d is
  beyond the reach of an int32 index.
  """
  types = [leaf_type(leaf) for leaf in jax.tree.leaves(tree)]
  dtype = jnp.result_type(jnp.float32, *(t.dtype for t in types))
  d = sum(t.size for t in types)
  if d >= 2**31:
    raise ValueError(f'{d=} exceeds 2**31 - 1, the largest int32 index.')
  return jax.ShapeDtypeStruct((d,), dtype)


def dimension(like: Any) -> int:
  """Return the number of coordinates d: of an integer itself, or of a tree.

  >>> dimension(7), dimension({'w': jnp.ones((2, 3))})
  (7, 6)
  """
  is_number = isinstance(like, int | np.integer)
  return int(like) if is_number else vector_type(like).size


def join(runs: Sequence[Segment], size: int, dtype: Any) -> jax.Array:
  """The values of all runs in a row, with zeros up to `size`: f32[size]."""
  parts = [run.x.astype(dtype) for run in runs]
  rest = size - sum(part.size for part in parts)
  return jnp.concatenate([*parts, jnp.zeros(rest, dtype)])


def check_positive(**values: int) -> None:
  """Raise ValueError unless every value is an integer of at least 1."""
  for name, value in values.items():
    if not isinstance(value, int | np.integer) or value < 1:
      raise ValueError(f'{name}={value!r} must be an integer >= 1.')


def cut(values: jax.Array, spans: Sequence[Span]) -> list[jax.Array]:
  """The values of each span, of all d numbers in a row."""
  return [values[s.start : s.start + s.size].astype(s.dtype) for s in spans]


def split(values: jax.Array, types: Sequence[Any]) -> list[jax.Array]:
  """Cut numbers in a row into arrays of some shapes and dtypes."""
  parts = jnp.split(values, np.cumsum([t.size for t in types])[:-1])
  shaped = lambda part, t: part.reshape(t.shape).astype(t.dtype)
  return list(map(shaped, parts, types))


def _walk(types, dtype) -> list[tuple[list[int], Span]]:
  """Leaves, by index, that are walked as one, and their span; no empty ones."""
  sizes = {i: t.size for i, t in enumerate(types) if t.size}
  walk, start = [], 0
  for small, run in itertools.groupby(sizes, lambda i: sizes[i] < SMALL_LEAF):
    for group in [list(run)] if small else [[i] for i in run]:
      size = sum(sizes[i] for i in group)
      kind = types[group[0]].dtype if len(group) == 1 else dtype
      walk.append((group, Span(start, size, kind)))
      start += size
  return walk


def from_runs(
  promises: Properties, axes: Mapping[str, int] | int | None,
  sketch: Callable[[jax.Array, Sequence[Segment], Vector], Table],
  desketch: Callable[[jax.Array, Table, Sequence[Span], Vector], list],
  dtype: Any = jnp.float32, *,
  allow_larger: bool = False, by_lanes: bool = False,
) -> Sketch:  # fmt: skip
  """Make a `Sketch` of trees from functions of runs of coordinates.

  A large leaf is a run of its own, in its own dtype and place, and is never
  copied. Small ones are, side by side, so that a tree of hundreds of leaves
  does not become a program of hundreds of loops.

  >>> total = lambda key, runs, vector: sum(run.x.sum() for run in runs)[None]
  >>> read = lambda key, y, spans, vector: [jnp.full(s.size, y) for s in spans]
  >>> op = from_runs(Properties('sum', None, None, None), 1, total, read)
  >>> op.sketch(None, [jnp.ones(3), jnp.ones(2)]).tolist()
  [5.0]

  Args:
    promises: the operator's properties.
    axes: the table's axes by name, such as {'size': 8}, or that one as a
      number; None for all d numbers.
    sketch: (key, runs, type of the vector of all d numbers) -> table.
    desketch: (key, table, spans, that type) -> values of each, in its dtype.
    dtype: of tables of float32; those of float64 have its wider like.
    allow_larger: whether a table may be larger than the tree.
    by_lanes: whether a `vmap` over large trees is a loop on a CPU, whose cache
      holds one; for operators whose hash costs less than a pass over a tree.
  """
  if isinstance(axes, int | np.integer):
    axes = {'size': axes}

  def checked_type(tree):
    vector = vector_type(tree)
    shape = vector.shape if axes is None else tuple(axes.values())
    table = jax.ShapeDtypeStruct(shape, jnp.result_type(vector.dtype, dtype))
    if not allow_larger and table.size > vector.size:
      label = ' * '.join(f'{name}={n}' for name, n in (axes or {}).items())
      raise ValueError(f'{label} exceeds d={vector.size}; use a smaller table.')
    return table

  def in_lanes(fn, vector):
    large = by_lanes and vector.size >= LARGE_TREE
    return primitives.lane_by_lane(fn) if large else fn

  # Eagerly a loop is compiled at every call, by `jit` once.
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
  return Sketch(sketch_tree, desketch_tree, zero_table, promises)
