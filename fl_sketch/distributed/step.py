"""State, gradients and whole steps of workers on a mesh."""

from collections.abc import Callable
import math
from typing import Any

from fl_sketch.distributed import bills
from fl_sketch.distributed.engine import PerWorker, is_worker
from fl_sketch.distributed.outer_steps import worker_params
from fl_sketch.rounds import axes
from fl_sketch.utils.types import Params, Tree
import jax
from jax import lax
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
  ValueError if devices would update their copies of an array apart.
  """
  of_state = state_specs(tx, params, mesh, specs)
  shardings = jax.tree.map(lambda s: jax.NamedSharding(mesh, s), of_state)
  fn = _on(mesh, tx.init, (specs,), of_state)
  state = jax.jit(fn, out_shardings=shardings)(params)
  if len({*map(tuple, jax.tree.leaves(specs))}) > 1:
    _check_copies(tx, params, state, mesh, specs, of_state)
  return state


def _check_copies(tx, params, state, mesh, specs, of_state):
  """Let JAX check that copies of an array on several devices stay equal."""

  def update(params, state):
    return tx.update(axes.local(params, mesh.axis_names), state, params)[0]

  try:
    fn = _on(mesh, update, (specs, of_state), specs, check_vma=True)
    jax.eval_shape(fn, params, state)
  except ValueError as e:
    if 'out_specs' not in str(e):
      raise
    raise ValueError(
      'Devices would update their copies of an array apart: average what is '
      'not sharded by a mean_over with dense_axes (optax.partition).'
    ) from e


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
  shapes = lambda fn: jax.eval_shape(_on(mesh, fn, (specs,), P()), params)
  leaves, _ = jax.tree.flatten_with_path(shapes(lambda params: params))
  of_params = jax.tree.leaves(jax.tree.broadcast(specs, params))
  pairs = zip(leaves, of_params, strict=True)
  known = [(p, x.shape, s) for (p, x), s in pairs]

  def spec(path, x):
    if is_worker(x):
      return PerWorker(P(x.axes), x.axes)
    of = lambda p: path[len(path) - len(p) :] == p and len(p) <= len(path)
    return next((s for p, shape, s in known if shape == x.shape and of(p)), P())

  return jax.tree.map_with_path(spec, shapes(tx.init), is_leaf=is_worker)


def train_step(
  loss: Callable[..., jax.Array], tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
) -> Callable[..., tuple[Params, Tree, jax.Array]]:  # fmt: skip
  """Build a jitted step: (params, state, batch) -> (params, state, mean loss).

  The transformation has `mean_over` or `algorithm` in it, over all axes of the
  mesh, and the loss is (params, batch) -> f32[], of one worker's part of the
  batch: leaves of `batch` are split along axis 0 over all axes. The parameters
  are the same on all; they and the state are donated.
  """
  axes = mesh.axis_names

  def local(params, state, batch):
    value, grads = jax.value_and_grad(loss)(worker_params(params, state), batch)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, lax.pmean(value, axes)

  @jax.jit(donate_argnums=(0, 1))
  def step(params, state, batch):
    specs = state_specs(tx, params, mesh)
    for node in filter(is_worker, jax.tree.leaves(state, is_leaf=is_worker)):
      n = math.prod(mesh.shape[a] for a in node.axes)
      if any(x.shape[0] != n for x in jax.tree.leaves(node)):
        raise ValueError(
          f'The state lacks rows of {n} workers; use distributed.init.'
        )
    sent = bills.bytes_per_step(tx, params, mesh).by_axis
    if apart := [a for a in axes if mesh.shape[a] > 1 and a not in sent]:
      raise ValueError(
        f'tx averages nothing over {apart} of the mesh; set them as axis or '
        'dense_axes of mean_over.'
      )
    run = _on(mesh, local, (P(), specs, P(axes)), (P(), specs, P()))
    return run(params, state, batch)

  return step


def _on(mesh, fn, in_specs, out_specs, check_vma=False):
  """Map fn over a mesh, whose Explicit axes would not split what is whole."""
  types = (jax.sharding.AxisType.Auto,) * len(mesh.axis_names)
  mesh = mesh.update(axis_types=types)
  return jax.shard_map(
    fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma
  )
