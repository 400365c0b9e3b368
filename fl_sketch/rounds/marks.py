"""Marks in a round's program, by which `privacy.noninterference` reads it.

A mark returns its argument, and is gone in the compiled program.
Tested with JAX 0.10 and 0.11: uses `jax.extend.core` and `jax.interpreters`.
"""

from fl_sketch.utils.types import Tree
import jax
from jax.extend import core
from jax.interpreters import ad, batching, mlir


def _mark(name: str) -> core.Primitive:
  """A primitive that is the identity; `axis` follows batching."""
  mark = core.Primitive(name)
  mark.def_impl(lambda x, **_: x)
  mark.def_abstract_eval(lambda x, **_: x)
  mlir.register_lowering(mark, lambda ctx, x, **_: [x])

  def batch(args, dims, **params):
    (x,), (dim,) = args, dims
    if params.get('axis') is not None:
      params['axis'] += dim <= params['axis']
    return mark.bind(x, **params), dim

  def jvp(primals, tangents, **params):
    return mark.bind(*primals, **params), tangents[0]

  batching.primitive_batchers[mark] = batch
  ad.primitive_jvps[mark] = jvp  # what is released has no cleaner derivative
  return mark


RELEASED = _mark('released')
BY_CLIENT = _mark('by_client')


def released(tree: Tree) -> Tree:
  """Mark a noised sum; for the mechanisms of `privacy` alone."""
  return jax.tree.map(RELEASED.bind, tree)


def by_client(tree: Tree, axis: int | None = 0) -> Tree:
  """Mark the axis of leaves that has a row for each client; None: no check."""
  return jax.tree.map(lambda x: BY_CLIENT.bind(x, axis=axis), tree)
