"""State, gradients and whole steps of workers on a mesh."""

from collections.abc import Callable
import math
from typing import Any

from fl_sketch.distributed import bills, sharded, variation
from fl_sketch.distributed.engine import PerWorker, is_worker
from fl_sketch.distributed.outer_steps import worker_params
from fl_sketch.rounds import axes
from fl_sketch.utils.types import Params, Tree
import jax
from jax import lax
from jax.extend import core
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import optax


def value_and_grad(
  loss: Callable[..., Tree], axis: axes.Axis, **options: Any
) -> Callable[..., tuple[Tree, Tree]]:
  """Return value and gradient of this worker's loss, inside `jax.shard_map`.

  Of parameters that all workers share JAX would add up the gradients of all,
  uncompressed. Loss and options are as of `jax.value_and_grad`; the axis is all
  mesh axes over which gradients are averaged, those of ``dense_axes`` too.
  """
  fn = jax.value_and_grad(loss, **options)
  return lambda *args, **kwargs: fn(*axes.local(args, axis), **kwargs)


def init(
  tx: optax.GradientTransformation, params: Params, mesh: jax.sharding.Mesh,
  specs: Tree = bills.COPIES,
) -> Tree:  # fmt: skip
  """Initialise the state of a transformation on a mesh, rows on their workers.

  `specs` are the parameters' as of `mean_over`.
  """
  of_state = state_specs(tx, params, mesh, specs)
  shardings = jax.tree.map(lambda s: jax.NamedSharding(mesh, s), of_state)
  fn = _over_workers(tx.init, mesh, specs, (bills.COPIES,), of_state)
  return jax.jit(fn, out_shardings=shardings)(params)


def state_specs(
  tx: optax.GradientTransformation, params: Params, mesh: jax.sharding.Mesh,
  specs: Tree = bills.COPIES,
) -> Tree:  # fmt: skip
  """Return the `PartitionSpec`s of the optimizer state that `init` makes.

  Rows of workers lie over their axes. What is like a parameter, of the same
  path and shape, as Adam's moments, has its spec; all else is replicated.

  >>> from fl_sketch.distributed import mean_over
  >>> mesh = jax.make_mesh((1,), ('data',))
  >>> tx = mean_over('data', 'top_k(k=1, error_feedback=True)')
  >>> found = state_specs(tx, {'w': jax.numpy.ones(3)}, mesh)
  >>> [tuple(spec) for spec in jax.tree.leaves(found.encode)]
  [('data',)]
  """
  bills.shards(tx, params, mesh, specs)  # raises what specs do not fit
  inner = sharded.axes_of(specs)
  of_params = sharded.of_leaves(specs, params)
  pairs = zip(jax.tree.leaves_with_path(params), of_params, strict=True)
  known = {(path, x.shape): spec for (path, x), spec in pairs}

  def like(path, shape):
    ends = ((path[i:], shape) for i in range(len(path) + 1))
    return next((known[end] for end in ends if end in known), P())

  def spec(path, x):
    if not is_worker(x):
      return like(path, x.shape)
    if {*x.axes} & {*inner}:  # of a device's shards
      return PerWorker(P(x.axes), x.axes)

    def row(end, node):
      if is_worker(node):  # of a mean in `per_worker`: rows of inner devices
        devices = tuple(a for a in node.axes if a in inner)
        return PerWorker(P(x.axes, devices or None), node.axes)
      return P(x.axes, *like((*path, *end), node.shape[1:]))

    rows = jax.tree.map_with_path(row, x.value, is_leaf=is_worker)
    return PerWorker(rows, x.axes)

  of_worker = _over_workers(tx.init, mesh, specs, (P(),), P())
  state = jax.eval_shape(of_worker, params)
  return jax.tree.map_with_path(spec, state, is_leaf=is_worker)


def train_step(
  loss: Callable[..., Tree], tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh, *, specs: Tree = bills.COPIES,
  has_aux: bool = False, donate: bool = False,
) -> Callable[..., tuple[Params, Tree, Tree]]:  # fmt: skip
  """Build a jitted step: (params, state, batch) -> (params, state, mean loss).

  The loss is (params, batch) -> f32[], of one worker's part of the batch. The
  rest is as of `map_step`. With `has_aux` the loss returns (f32[], tree of
  floats), such as metrics or a new state of batch norm, and the step the means
  of both over the workers::

      step = train_step(loss, tx, mesh, has_aux=True)
      params, state, (value, stats) = step(params, state, batch, stats, key)
  """

  def local(params, state, batch, *shared):
    place = worker_params(params, state)
    of_worker = jax.value_and_grad(loss, has_aux=has_aux)
    value, grads = of_worker(place, batch, *shared)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value

  return map_step(local, tx, mesh, specs=specs, donate=donate)


def map_step(
  step: Callable[..., tuple[Params, Tree, Tree]],
  tx: optax.GradientTransformation, mesh: jax.sharding.Mesh, *,
  specs: Tree = bills.COPIES, donate: bool = False,
) -> Callable[..., tuple[Params, Tree, Tree]]:  # fmt: skip
  """Build a jitted function that runs your training step on every worker.

  The step is (params, state, batch) -> (params, state, tree of floats): it
  takes gradients of its part of the batch and calls `tx.update` once. The
  result has the means of the third tree over the workers. The transformation
  has `mean_over` or `algorithm` in it, over all axes of the mesh but those that
  `specs` name, along which jit shards parameters and work; leaves of `batch`
  are split along axis 0 over all others, and may be split further.

  Further arguments follow the batch, whole on each worker. Of a
  `jax.random.key` among them each worker gets its own, by `fold_in` of its
  number.

  With `donate` the step reuses the memory of params and state: the arrays that
  it gets are deleted. Raises ValueError if an input does not fit the mesh, or
  copies of an array would differ by worker.
  """
  bills.check_kinds(tx, mesh)
  axes = _workers(mesh, specs)

  def own(x):  # a worker's key of a shared one
    if x.dtype == jnp.uint32 and x.shape[-1:] == (2,):  # the same for all
      raise ValueError('A PRNGKey has no own draws; pass jax.random.key().')
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.fold_in(x, lax.axis_index(axes)) if is_key else x

  def local(params, state, batch, *shared):
    shared = jax.tree.map(own, shared)
    params, state, aux = step(params, state, batch, *shared)
    return params, state, lax.pmean(aux, axes)

  @jax.jit(donate_argnums=(0, 1) if donate else ())
  def mapped(params, state, batch, *shared):
    _check_batch(batch, mesh, axes)
    of_state = state_specs(tx, params, mesh, specs)
    _check_state(tx, params, state, mesh, specs, of_state)
    given = P(), of_state, P(axes), *[P()] * len(shared)
    run = _over_workers(local, mesh, specs, given, (P(), of_state, P()))
    args = params, state, batch, *shared
    program, like = jax.make_jaxpr(run, return_shape=True)(*args)
    variation.check_copies(program, mesh, axes, args, of_state)
    made = core.jaxpr_as_fun(program)(*jax.tree.leaves(args))
    made = jax.tree.structure(like).unflatten(made)
    if len(axes) == len(mesh.axis_names):
      return made
    return sharded.placed(made, mesh, (specs, of_state, P()))

  return mapped


def _workers(mesh, specs) -> tuple[str, ...]:
  """Return the axes of a mesh along which the workers lie."""
  inner = sharded.axes_of(specs)
  return tuple(a for a in mesh.axis_names if a not in inner)


def _check_batch(batch, mesh, axes):
  size = math.prod(mesh.shape[a] for a in axes)
  for path, x in jax.tree.leaves_with_path(batch):
    if not x.shape or x.shape[0] % size:
      raise ValueError(
        f'batch{jax.tree_util.keystr(path)} has shape {x.shape}: axis 0 must '
        f'be a multiple of the {size} workers; pass what all share after '
        'the batch.'
      )


def _check_state(tx, params, state, mesh, specs, of_state):
  like = _over_workers(tx.init, mesh, specs, (P(),), of_state)
  like = jax.eval_shape(like, params)
  shapes = lambda tree: [x.shape for x in jax.tree.leaves(tree)]
  same = jax.tree.structure(state) == jax.tree.structure(like)
  if not same or shapes(state) != shapes(like):
    raise ValueError(
      'The state is not of this tx, these params and this mesh: begin with '
      'distributed.init(tx, params, mesh).'
    )


def _over_workers(fn, mesh, specs, in_specs, out_specs):
  """Map fn over the workers of a mesh; XLA splits what lies over other axes."""
  axes = _workers(mesh, specs)
  cut = lambda tree: jax.tree.map(lambda s: sharded.cut(s, axes), tree)
  mapped = jax.shard_map(
    fn, mesh=mesh, in_specs=(of_args := cut(in_specs)),
    out_specs=cut(out_specs), axis_names={*axes}, check_vma=False,
  )  # fmt: skip
  lay = lambda x, spec: sharded.laid(x, mesh, spec, axes)

  def run(*args):
    each = jax.tree.broadcast(of_args, args)
    return mapped(*jax.tree.map(lay, args, each))

  return run
