"""State, gradients and whole steps of workers on a mesh."""

from collections.abc import Callable
from typing import Any

from fl_sketch.distributed import bills, variation
from fl_sketch.distributed.engine import PerWorker, is_worker
from fl_sketch.distributed.outer_steps import worker_params
from fl_sketch.rounds import axes
from fl_sketch.utils.types import Params, Tree
import jax
from jax import lax
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

  `specs` is a `PartitionSpec` of the parameters, or a tree of them. Raises
  ValueError if devices would update their copies of an array apart; of
  parameters that all share, `train_step` raises it.
  """
  of_state = state_specs(tx, params, mesh, specs)
  if len({*map(tuple, jax.tree.leaves(specs))}) > 1:
    variation.check_copies(tx, params, mesh, specs, of_state)
  shardings = jax.tree.map(lambda s: jax.NamedSharding(mesh, s), of_state)
  fn = _on(mesh, tx.init, (specs,), of_state)
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
  >>> tuple(state_specs(tx, {'w': jax.numpy.ones(3)}, mesh).encode.value)
  ('data',)
  """
  parts = jax.tree.leaves_with_path(bills.shards(tx, params, mesh, specs))
  of_params = jax.tree.leaves(jax.tree.broadcast(specs, params))
  pairs = zip(parts, of_params, strict=True)
  known = [(p, x.shape, s) for (p, x), s in pairs]

  def spec(path, x):
    if is_worker(x):
      return PerWorker(P(x.axes), x.axes)
    of = lambda p: path[len(path) - len(p) :] == p and len(p) <= len(path)
    return next((s for p, shape, s in known if shape == x.shape and of(p)), P())

  state = jax.eval_shape(_on(mesh, tx.init, (specs,), P()), params)
  return jax.tree.map_with_path(spec, state, is_leaf=is_worker)


def train_step(
  loss: Callable[..., Tree], tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh, *, has_aux: bool = False, donate: bool = False,
) -> Callable[..., tuple[Params, Tree, Tree]]:  # fmt: skip
  """Build a jitted step: (params, state, batch) -> (params, state, mean loss).

  The transformation has `mean_over` or `algorithm` in it, over all axes of the
  mesh, and the loss is (params, batch) -> f32[], of one worker's part of the
  batch: leaves of `batch` are split along axis 0 over all axes. The parameters
  are the same on all.

  Further arguments of the step follow the batch in the loss, whole on each
  worker. Of a `jax.random.key` among them each worker gets its own, by
  `fold_in` of its number. With `has_aux` the loss returns (f32[], tree of
  floats), such as metrics or a new state of batch norm, and the step the means
  of both over the workers::

      step = train_step(loss, tx, mesh, has_aux=True)
      params, state, (value, stats) = step(params, state, batch, stats, key)

  With `donate` the step reuses the memory of params and state: the arrays that
  it gets are deleted. Raises ValueError if an input does not fit the mesh, or
  copies of an array would differ by device, as `init`.
  """
  bills.check_kinds(tx, mesh)
  axes = mesh.axis_names
  of_worker = jax.value_and_grad(loss, has_aux=has_aux)

  def own(x):  # a worker's key of a shared one
    if x.dtype == jnp.uint32 and x.shape[-1:] == (2,):  # the same for all
      raise ValueError('A PRNGKey has no own draws; pass jax.random.key().')
    is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.random.fold_in(x, lax.axis_index(axes)) if is_key else x

  def local(params, state, batch, *shared):
    shared = jax.tree.map(own, shared)
    place = worker_params(params, state)
    value, grads = of_worker(place, batch, *shared)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, lax.pmean(value, axes)

  @jax.jit(donate_argnums=(0, 1) if donate else ())
  def step(params, state, batch, *shared):
    _check_batch(batch, mesh)
    specs = state_specs(tx, params, mesh)
    _check_state(tx, params, state, mesh, specs)
    sent = bills.bytes_per_step(tx, params, mesh).by_axis
    if apart := [a for a in axes if mesh.shape[a] > 1 and a not in sent]:
      raise ValueError(
        f'tx averages nothing over {apart} of the mesh; set them as axis or '
        'dense_axes of mean_over.'
      )
    variation.check_copies(tx, params, mesh, P(), specs)
    given = P(), specs, P(axes), *[P()] * len(shared)
    run = _on(mesh, local, given, (P(), specs, P()))
    return run(params, state, batch, *shared)

  return step


def _check_batch(batch, mesh):
  for path, x in jax.tree.leaves_with_path(batch):
    if not x.shape or x.shape[0] % mesh.size:
      raise ValueError(
        f'batch{jax.tree_util.keystr(path)} has shape {x.shape}: axis 0 must '
        f'be a multiple of the {mesh.size} workers; pass what all share after '
        'the batch.'
      )


def _check_state(tx, params, state, mesh, specs):
  like = jax.eval_shape(_on(mesh, tx.init, (P(),), specs), params)
  shapes = lambda tree: [x.shape for x in jax.tree.leaves(tree)]
  same = jax.tree.structure(state) == jax.tree.structure(like)
  if not same or shapes(state) != shapes(like):
    raise ValueError(
      'The state is not of this tx, these params and this mesh: begin with '
      'distributed.init(tx, params, mesh).'
    )


def _on(mesh, fn, in_specs, out_specs):
  """Map fn over a mesh, whose Explicit axes would not split what is whole."""
  types = (jax.sharding.AxisType.Auto,) * len(mesh.axis_names)
  mesh = mesh.update(axis_types=types)
  return jax.shard_map(
    fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
  )
