"""Hides the work of clients from `shard_map`'s check, which is for protocols.

A loop that starts from zeros, as that of a recurrent model does, has a carry
that is shared before its first step and local after it. The check refuses that,
and a cast outside of the model cannot prevent it. Nor is the check needed: the
work of one client reads no value of another, and its results are local.
"""

from collections.abc import Callable

from fl_sketch.rounds import workers
import jax
from jax.extend import core

_NO_MESH = jax.sharding.AbstractMesh((), ())


def unchecked(fn: Callable[..., workers.Tree]) -> Callable[..., workers.Tree]:
  """Makes fn one operation of a program in `shard_map`.

  It is a function of arrays without collectives. Values that it closes over are
  shared: what is local must be an argument. Results vary as its arguments do.
  To differentiate them raises NotImplementedError: JAX would have to add up the
  gradients of all shards, and cannot see where.
  """
  hidden = jax.custom_jvp(fn)

  @hidden.defjvp
  def refuse(primals, tangents):
    raise NotImplementedError('The work of clients has no derivative.')

  def run(*args):
    like = jax.tree.map(_like, args)
    with jax.sharding.use_abstract_mesh(_NO_MESH):
      program, out = jax.make_jaxpr(jax.jit(hidden), return_shape=True)(*like)
    leaves = jax.tree.leaves(args)
    results = core.jaxpr_as_fun(program)(*leaves)
    axes = tuple(sorted(set().union(*map(workers.varying, leaves))))
    return workers.local(jax.tree.structure(out).unflatten(results), axes)

  return run


def where_checked(
  fn: Callable[..., workers.Tree], axis: workers.Axis
) -> Callable[..., workers.Tree]:
  """Makes fn `unchecked`, if `shard_map` checks what varies over the axis."""
  return unchecked(fn) if workers.is_checked(axis) else fn


def _like(x):
  weak_type = jax.typeof(x).weak_type
  return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak_type)
