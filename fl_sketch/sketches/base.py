"""What a linear sketch is, and how trees become vectors and back."""

from collections.abc import Callable
import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Tree = Any
Table = jax.Array


class Sketch(NamedTuple):
  """Pure functions of one linear sketch; equal keys mean equal hash functions.

  Trees are any pytree of float arrays; their d numbers are accumulated in
  float32, or in float64 where a leaf has it.

  Attributes:
    sketch: (key, tree) -> table; linear in `tree`.
    desketch: (key, table, like) -> tree of the shapes and dtypes of `like`
      (arrays or `jax.ShapeDtypeStruct`), an estimate of what was sketched.
    like: tree -> a zero table, for building state that lives in table space.
  """

  sketch: Callable[[jax.Array, Tree], Table]
  desketch: Callable[[jax.Array, Table, Tree], Tree]
  like: Callable[[Tree], Table]


def leaf_type(leaf: Any) -> jax.ShapeDtypeStruct:
  """The shape and dtype of a leaf, of what has them or of a Python number."""
  if not hasattr(leaf, 'dtype'):
    leaf = jnp.asarray(leaf)
  dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
  if not jnp.issubdtype(dtype, jnp.floating):
    raise TypeError(f'Expected dtype={str(dtype)!r} of a leaf to be floating.')
  return jax.ShapeDtypeStruct(leaf.shape, dtype)


def vector_type(tree: Tree) -> jax.ShapeDtypeStruct:
  """The shape (d,) and dtype of the vector that `flatten` makes of a tree.

  >>> vector_type({'w': jnp.ones((2, 3)), 'b': jnp.ones(2, jnp.bfloat16)})
  ShapeDtypeStruct(shape=(8,), dtype=float32)

  Args:
    tree: leaves are arrays or `jax.ShapeDtypeStruct`.

  Returns:
    A `jax.ShapeDtypeStruct`, float32 or better.

  Raises:
    TypeError: a leaf is not of a float type.
  """
  types = [leaf_type(leaf) for leaf in jax.tree.leaves(tree)]
  dtype = jnp.result_type(jnp.float32, *(t.dtype for t in types))
  return jax.ShapeDtypeStruct((sum(math.prod(t.shape) for t in types),), dtype)


def flatten(tree: Tree) -> jax.Array:
  """The d numbers of a tree, in the order of its leaves.

  >>> flatten({'b': jnp.ones((), jnp.bfloat16), 'w': jnp.zeros((1, 2))})
  Array([1., 0., 0.], dtype=float32)

  Args:
    tree: leaves are float arrays.

  Returns:
    f32[d], or f64[d] if a leaf is float64.

  Raises:
    TypeError: a leaf is not of a float type.
  """
  dtype = vector_type(tree).dtype
  parts = [jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(tree)]
  return jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)


def unflatten(x: jax.Array, like: Tree) -> Tree:
  """Undoes `flatten`: a tree of the shapes and dtypes of `like`.

  >>> unflatten(jnp.arange(3.0), {'b': jnp.ones(()), 'w': jnp.ones((1, 2))})
  {'b': Array(0., dtype=float32), 'w': Array([[1., 2.]], dtype=float32)}

  Args:
    x: f32[d].
    like: leaves are arrays or `jax.ShapeDtypeStruct`, d numbers in all.

  Returns:
    A tree like `like`.
  """
  leaves, treedef = jax.tree.flatten(like)
  out, start = [], 0
  for t in map(leaf_type, leaves):
    stop = start + math.prod(t.shape)
    out.append(x[start:stop].reshape(t.shape).astype(t.dtype))
    start = stop
  return treedef.unflatten(out)


def check_positive(**values: int) -> None:
  """Raises ValueError unless every value is an integer of at least 1."""
  for name, value in values.items():
    if not isinstance(value, int | np.integer) or value < 1:
      raise ValueError(f'Expected {name}={value!r} to be an integer >= 1.')


def from_vector(
  size: str,
  shape: Callable[[int], tuple[int, ...]],
  sketch: Callable[[jax.Array, jax.Array], Table],
  desketch: Callable[[jax.Array, Table, int], jax.Array],
) -> Sketch:
  """Makes a `Sketch` of trees from functions of vectors.

  >>> op = from_vector('d', lambda d: (d,), lambda k, x: x, lambda k, y, d: y)
  >>> op.like({'w': jnp.ones(3)}).shape
  (3,)

  Args:
    size: what the table's size is called in messages, such as 'size=8'.
    shape: d -> shape of the table.
    sketch: (key, f32[d]) -> table.
    desketch: (key, table, d) -> f32[d].

  Returns:
    A `Sketch` whose three functions raise ValueError if a table is larger than
    the tree, or is not of the shape that the tree's d asks for.
  """
  # Eagerly a loop is compiled at every call, by `jit` once.
  sketch = jax.jit(sketch)
  desketch = jax.jit(desketch, static_argnums=2)

  def checked_type(tree):
    vector = vector_type(tree)
    (d,) = vector.shape
    if d >= 2**31:
      raise ValueError(f'Expected {d=} < 2**31, the reach of an int32 index.')
    if math.prod(shape(d)) > d:
      raise ValueError(f'Expected {size} <= {d=}.')
    return jax.ShapeDtypeStruct(shape(d), vector.dtype), d

  def sketch_tree(key, tree):
    checked_type(tree)
    return sketch(key, flatten(tree))

  def desketch_tree(key, table, like):
    want, d = checked_type(like)
    if table.shape != want.shape:
      raise ValueError(f'Expected {table.shape=} == {want.shape}.')
    return unflatten(desketch(key, table, d), like)

  def zero_table(tree):
    table, _ = checked_type(tree)
    return jnp.zeros(table.shape, table.dtype)

  return Sketch(sketch_tree, desketch_tree, zero_table)
