"""The mesh axes inside `shard_map`, and over which of them a value varies."""

from fl_sketch.utils.types import Tree
import jax
from jax import lax

Axis = str | tuple[str, ...]


def names(axis: Axis) -> tuple[str, ...]:
  """Return one mesh axis name, or several, as a tuple."""
  return (axis,) if isinstance(axis, str) else tuple(axis)


def is_checked(axis: Axis) -> bool:
  """Return whether this `shard_map` checks what varies; ValueError outside."""
  missing = [a for a in names(axis) if size_of(a) is None]
  if missing:
    raise ValueError(
      f'There is no mesh axis {missing[0]!r} here; call the update inside '
      'jax.shard_map over a mesh with that axis, as train_step does.'
    )
  return bool(varying(lax.axis_index(axis)))


def size_of(axis: Axis) -> int | None:
  """Return the number of workers; None if there is no such axis."""
  try:
    return lax.axis_size(axis)
  except NameError:
    return None


def varying(x: jax.Array) -> frozenset[str]:
  """Return the mesh axes over which JAX knows that a value varies."""
  return jax.typeof(x).manual_axis_type.varying


def local(tree: Tree, axis: Axis) -> Tree:
  """Cast arrays to vary over mesh axes, if `shard_map` checks what varies."""
  if not axis or not is_checked(axis):
    return tree

  def cast(x):
    lacking = tuple(a for a in names(axis) if a not in varying(x))
    return lax.pcast(x, lacking, to='varying') if lacking else x

  return jax.tree.map(cast, tree)
