"""Collectives between the workers of a training loop, in wire types.

The workers of a mesh axis, each with one client's lane, replace the shards of a
cohort in the collectives of `comms`: see `among`. Payloads are gathered and
decoded where they arrive; a sum of decoded payloads would travel as floats.
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
from typing import Any, NamedTuple

from fl_sketch.utils.types import Payload, Tree
import jax
from jax import lax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np

Axis = str | tuple[str, ...]


def names(axis: Axis) -> tuple[str, ...]:
  """Return one mesh axis name, or several, as a tuple."""
  return (axis,) if isinstance(axis, str) else tuple(axis)


class Group(NamedTuple):
  """The workers that average; without an axis no payload has to travel."""

  axis: Axis
  keys: Any  # key[n], of each worker's round; None outside of a mesh
  size: Any  # n; None outside of a mesh


_GROUP = contextvars.ContextVar[Group | None]('group', default=None)


def current() -> Group | None:
  """Return the workers of this trace; None: it has shards of a cohort."""
  return _GROUP.get()


def group() -> Group:
  """Return the workers of this trace; ValueError outside of a mesh."""
  workers = _GROUP.get()
  if workers is None or workers.size is None:
    raise ValueError(
      'The state depends on the number of workers; initialise it with '
      'distributed.init(tx, params, mesh).'
    )
  return workers


@contextlib.contextmanager
def among(group: Group) -> Iterator[None]:
  """Make the collectives of `comms` work among these workers."""
  token = _GROUP.set(group)
  try:
    yield
  finally:
    _GROUP.reset(token)


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


def varying(x) -> frozenset[str]:
  """Return the mesh axes over which JAX knows that a value varies."""
  return jax.typeof(x).manual_axis_type.varying


def check_local(averaged: Axis, grads: Tree):
  """Raise ValueError if JAX has already summed gradients over the axis."""
  leaves = jax.tree.leaves(grads)
  if not leaves:
    raise ValueError('The gradients are a tree without arrays.')
  summed = set().union(*({*averaged} - varying(x) for x in leaves))
  if is_checked(averaged) and summed:
    raise ValueError(
      f'JAX has already summed gradients over {summed}; use '
      f'distributed.value_and_grad(loss, {averaged}).'
    )


def local(tree: Tree, axis: Axis) -> Tree:
  """Cast arrays to vary over mesh axes, if `shard_map` checks what varies."""
  if not axis or not is_checked(axis):
    return tree

  def cast(x):
    lacking = tuple(a for a in names(axis) if a not in varying(x))
    return lax.pcast(x, lacking, to='varying') if lacking else x

  return jax.tree.map(cast, tree)


def gather(axis: Axis, tree: Payload) -> Payload:
  """All-gathers a payload, in one collective: leaves [...] -> [n, ...]."""
  to = 'invarying' if is_checked(axis) else 'varying'
  rows = lax.all_gather(_to_bytes(tree), axis, to=to)
  return jax.vmap(lambda row: _from_bytes(row, tree))(rows)


def transpose(axis: Axis, tree: Payload) -> Payload:
  """Send row j of leaves [n, ...] to worker j; return rows by sender."""
  rows = jax.vmap(_to_bytes)(tree)
  rows = lax.all_to_all(rows, axis, split_axis=0, concat_axis=0)
  one = jax.tree.map(lambda x: x[0], tree)
  return jax.vmap(lambda row: _from_bytes(row, one))(rows)


def has_no_float(payload: Payload) -> bool:
  """Return whether no array of a payload is of floats, so none can be NaN."""
  return not any(map(is_float, jax.tree.leaves(payload)))


def all_true(axis: Axis, flag: jax.Array) -> jax.Array:
  """Return whether a flag holds on all workers, bool[], shared."""
  return lax.pmin(flag.astype(jnp.uint8), axis) > 0


def total(axis: Axis, tree: Tree) -> Tree:
  """All-reduces a tree; leaves of one dtype in one collective."""
  if not axis:
    return tree
  one_dtype = len({x.dtype for x in jax.tree.leaves(tree)}) == 1
  vector, restore = ravel_pytree(tree) if one_dtype else (tree, lambda x: x)
  return restore(lax.psum(vector, axis))


def sum_decoded(
  keys: jax.Array, rows: Payload, decode: Callable[[jax.Array, Payload], Tree]
) -> Tree:
  """Add up decode(keys[i], rows[i]) in the order of the rows.

  Few rows are one fused sum; of many, one decoded tree is held at a time.
  """
  n = keys.shape[0]
  one = lambda i: decode(keys[i], jax.tree.map(lambda x: x[i], rows))
  if n > 8:
    add = lambda total, i: (jax.tree.map(jnp.add, total, one(i)), None)
    return lax.scan(add, one(0), jnp.arange(1, n))[0]
  terms = [one(i) for i in range(n)]
  return jax.tree.map(lambda *xs: sum(xs[1:], xs[0]), *terms)


def _to_bytes(tree: Tree) -> jax.Array:
  """Concatenate the leaves of a payload: uint8[bytes], or the only leaf."""
  leaves = jax.tree.leaves(tree)
  if len(leaves) == 1:  # narrow floats as integers: XLA widens them on CPU
    (x,) = leaves
    narrow = is_float(x) and x.itemsize < 4
    return x.view(f'uint{8 * x.itemsize}') if narrow else x
  return jnp.concatenate([x.ravel().view(jnp.uint8) for x in leaves])


def is_float(x) -> bool:
  """Return whether an array has real floating-point numbers."""
  return jnp.issubdtype(x.dtype, jnp.floating)


def _from_bytes(row: jax.Array, like: Tree) -> Tree:
  leaves, treedef = jax.tree.flatten(like)
  if len(leaves) == 1:
    return treedef.unflatten([row.view(leaves[0].dtype)])
  ends = np.cumsum([x.size * x.dtype.itemsize for x in leaves])
  parts = jnp.split(row, ends[:-1])
  read = lambda part, x: part.view(x.dtype).reshape(x.shape)
  return treedef.unflatten(map(read, parts, leaves))
