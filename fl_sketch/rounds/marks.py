"""Marks in a round's program, by which `privacy.noninterference` reads it.

A mark returns its first arguments, and is gone in the compiled program. Those
of the library are believed: a mark that is bound elsewhere is refused.
Tested with JAX 0.10 and 0.11: uses `jax.extend.core` and `jax.interpreters`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from fl_sketch.utils.types import Key, Tree
import jax
from jax.extend import core
from jax.interpreters import ad, batching, mlir
import jax.numpy as jnp

_Scale = TypeVar('_Scale')


class _Lanes:
  """The name of the axis over which `by_lane` maps."""

  def __repr__(self):
    return 'lanes'


LANES = _Lanes()


def _mark(name: str) -> core.Primitive:
  """A primitive that returns its first `count` arguments.

  Its parameter `batched` has, for each vmap around it, the outermost first,
  (whether it is over lanes, its size, for each argument whether it is mapped).
  A mapped argument has that axis in front.
  """
  mark = core.Primitive(name)
  mark.multiple_results = True
  mark.def_impl(lambda *xs, count, **_: list(xs[:count]))
  mark.def_abstract_eval(lambda *xs, count, **_: list(xs[:count]))
  mlir.register_lowering(mark, lambda ctx, *xs, count, **_: list(xs[:count]))

  def batch(axis, args, dims, *, count, batched, **params):
    mapped = tuple(dim is not None for dim in dims)
    front = lambda x, dim, is_mapped: (
      jnp.moveaxis(x, dim, 0) if is_mapped else x
    )
    args = [*map(front, args, dims, mapped)]
    batched = ((axis.name is LANES, axis.size, mapped), *batched)
    out = mark.bind(*args, count=count, batched=batched, **params)
    to = [0 if x else None for x in mapped[:count]]
    return out, to

  def jvp(primals, tangents, *, count, **params):
    out = mark.bind(*primals, count=count, **params)
    return out, list(tangents[:count])

  batching.fancy_primitive_batchers[mark] = batch
  ad.primitive_jvps[mark] = jvp  # what is released has no cleaner derivative
  return mark


BY_CLIENT = _mark('by_client')
CONTRIBUTION = _mark('contribution')
DISTINCT = _mark('distinct')
DRAWN = _mark('drawn')
OF_SAME = _mark('of_same')
PUBLISHED = _mark('published')
RELEASED = _mark('released')
SAMPLES = _mark('samples')
SCALE = _mark('scale')
TRUSTED = _mark('trusted')


def _bind(mark, tree: Tree, *more: Tree, **params: Any) -> Tree:
  leaves, structure = jax.tree.flatten(tree)
  if not leaves:
    return tree
  given = [*map(jnp.asarray, [*leaves, *jax.tree.leaves(more)])]
  out = mark.bind(*given, count=len(leaves), batched=(), **params)
  return structure.unflatten(out)


def by_client(tree: Tree, axis: int | None = 0) -> Tree:
  """Mark the axis of leaves that has a row for each client.

  None: the leaves are of one client, or of one a lane in `by_lane`.
  """
  return jax.tree.map(lambda x: _bind(BY_CLIENT, x, row_axis=axis), tree)


def by_lane(fn: Callable[..., Tree]) -> Callable[[Tree], Tree]:
  """Map fn over lanes of clients, leaves [lanes, ...], as `jax.vmap`.

  It closes over shared values alone, so that no lane sees another.
  """
  mapped = jax.vmap(fn, axis_name=LANES)
  return lambda lanes: by_client(mapped(by_client(lanes, None)))


def distinct(ids: jax.Array) -> jax.Array:
  """Mark ids of clients, [lanes]: they differ from one another."""
  return _bind(DISTINCT, ids)


def of_same(tree: Tree, like: Tree) -> Tree:
  """Mark what is of the same client as `like`, or of all of its rows."""
  return _bind(OF_SAME, tree, jax.tree.leaves(like)[0])


def samples(batch: Tree) -> Tree:
  """Mark the leading axis of leaves that has a row for each sample."""
  return _bind(SAMPLES, batch)


def scale(
  values: _Scale, clip_norm: Any, noise_multiplier: Any, **law
) -> _Scale:
  """Mark the numbers of a grid: its step first, then of its noise.

  `law` has what the standard deviation of the noise also depends on.
  """
  given = jnp.float32(clip_norm), jnp.float32(noise_multiplier)
  return _bind(SCALE, values, *given, law=tuple(sorted(law.items())))


def contribution(tree: Tree, step: jax.Array, clip_norm: Any) -> Tree:
  """Mark what a client adds to a sum: within C on the grid of this step."""
  return _bind(CONTRIBUTION, tree, step, jnp.float32(clip_norm))


def drawn(noise: Tree, key: Key, scale: Tree) -> Tree:
  """Mark noise that was drawn from a key, and the numbers of its grid."""
  return _bind(DRAWN, noise, key, *jax.tree.leaves(scale))


def released(tree: Tree) -> Tree:
  """Mark a noised sum on the grid, all arrays of one release together."""
  return _bind(RELEASED, tree)


def published(tree: Tree, place: str) -> Tree:
  """Mark what clients or readers see, and where: it must be public."""
  paths = [path for path, _ in jax.tree.leaves_with_path(tree)]
  places = tuple(place + jax.tree_util.keystr(path) for path in paths)
  return _bind(PUBLISHED, tree, places=places)


def trusted(tree: Tree, reason: str, rows: bool) -> Tree:
  """Mark what a user declares public, or rows of one client each."""
  return _bind(TRUSTED, tree, reason=reason, rows=rows)
