"""Hide the work of clients from the checks of `shard_map`.

`shard_map` rejects a loop that starts from zeros, as of a recurrent model: its
carry is shared before the first step and local after it. The work of one client
reads no value of another, so that it needs no check.
Tested with JAX 0.10 and 0.11: uses `custom_jvp` around `make_jaxpr`.
"""

from collections.abc import Callable
import functools

from fl_sketch.rounds import axes
from fl_sketch.utils.types import Tree
import jax
from jax.extend import core

outside_mesh = functools.partial(
  jax.sharding.use_abstract_mesh, jax.sharding.AbstractMesh((), ())
)


def unchecked(fn: Callable[..., Tree]) -> Callable[..., Tree]:
  """Make fn one operation of a program in `shard_map`.

  `fn` has no collectives and closes over shared values alone: local values must
  be arguments, and results vary over the axes over which arguments vary.
  Differentiation raises NotImplementedError: JAX could not tell where to add up
  the gradients of all shards.
  """
  hidden = jax.custom_jvp(fn)

  @hidden.defjvp
  def refuse(primals, tangents):
    raise NotImplementedError('The work of clients has no derivative.')

  def run(*args):
    like = jax.tree.map(type_of, args)
    with outside_mesh():
      program, out = jax.make_jaxpr(jax.jit(hidden), return_shape=True)(*like)
    leaves = jax.tree.leaves(args)
    results = core.jaxpr_as_fun(program)(*leaves)
    names = tuple(sorted(set().union(*map(axes.varying, leaves))))
    return axes.local(jax.tree.structure(out).unflatten(results), names)

  return run


def where_checked(
  fn: Callable[..., Tree], axis: axes.Axis
) -> Callable[..., Tree]:
  """Make fn `unchecked`, if `shard_map` checks what varies over the axis."""
  return unchecked(fn) if axes.is_checked(axis) else fn


def type_of(x: jax.Array) -> jax.ShapeDtypeStruct:
  """Return shape and dtype, without the mesh axes over which x varies."""
  weak_type = jax.typeof(x).weak_type
  return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak_type)
