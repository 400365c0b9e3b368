"""State, gradients and whole steps of workers on a mesh."""

from collections.abc import Callable
from typing import Any
import zlib

from fl_sketch.distributed import bills, compressors
from fl_sketch.distributed.algorithm import PerWorker, from_algorithm, is_worker
from fl_sketch.distributed.outer import worker_params
from fl_sketch.rounds import chain, workers
import jax
from jax import lax
from jax.sharding import PartitionSpec as P
import optax

_COPIES = P()


def mean_over(
  axis: workers.Axis,
  compressor: Any = 'dense',
  *,
  both_ways: bool = False,
  dense_axes: tuple[str, ...] = (),
  sharded_axes: tuple[str, ...] = (),
  seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
  """Average the workers' gradients through a compressor.

  Each worker's own gradient becomes the same estimate of their mean, for any
  optax transformation behind it. To use inside `jax.shard_map`, on gradients of
  `value_and_grad`.

  >>> tx = mean_over('data', 'top_k(k=0.01, error_feedback=True)')
  >>> int(tx.init({'w': jax.numpy.ones(200)}).step)
  0

  Args:
    axis: mesh axis, or axes, of the workers.
    compressor: a text, see `compressors`, a `codecs.Codec` or a
      `sketches.Sketch`.
    both_ways: whether the mean is encoded as well, so that two payloads leave a
      worker, however many there are; see `two_stage.two_stage_mean`.
    dense_axes: fast mesh axes, over which gradients are first averaged as they
      are.
    sharded_axes: mesh axes over which parameters are sharded: each shard is
      compressed by itself.
    seed: of the public random draws, the same on all workers.

  Raises:
    ValueError: no such compressor; of its functions, an option does not suit
      the model, or there is no such axis.
  """
  make = compressors.mean(compressor, both_ways=both_ways)
  axes = workers.names(axis)
  roles = {'dense_axes': dense_axes, 'sharded_axes': sharded_axes}
  # Two means of one chain, over two axes, draw for themselves.
  stream = zlib.crc32(repr(axes).encode())
  tx = from_algorithm(make, axis, seed=seed, stream=stream, **roles)
  return chain.Transform(*tx, axes=axes, **roles)  # which `outer` reads


def algorithm(
  name: str, axis: workers.Axis, learning_rate: Any, *, seed: int = 0,
  dense_axes: tuple[str, ...] = (), sharded_axes: tuple[str, ...] = (),
  **options: Any,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
  """Run a registered algorithm among workers: gradients -> updates.

  For algorithms whose step is more than a mean: `onebit_adam`, `demo`,
  `preconditioned_sketching` and others of `algorithms.names()`. A worker is a
  client, and its gradient the client's pseudo-gradient.

  >>> tx = algorithm('onebit_adam', 'data', 1e-3, warmup=100)

  Args:
    name: of the registry `algorithms`.
    axis: mesh axis, or axes, of the workers.
    learning_rate: of the server, f32[].
    seed: of the public random draws, the same on all workers.
    dense_axes: as of `mean_over`.
    sharded_axes: as of `mean_over`.
    **options: of the algorithm; `sketch`, `codec` and `downlink_codec` may be
      texts with fractions, as compressors.

  Raises:
    ValueError: no such algorithm or option.
  """
  make = compressors.algorithm(name, learning_rate, **options)
  return from_algorithm(
    make, axis, dense_axes=dense_axes, sharded_axes=sharded_axes, seed=seed
  )


def value_and_grad(
  loss: Callable[..., Any], axis: workers.Axis, **options: Any
) -> Callable[..., Any]:
  """Return value and gradient of this worker's loss, inside `jax.shard_map`.

  With respect to parameters that all workers share, JAX would add up the
  gradients of all, uncompressed; here all arguments are marked as the worker's.

  Args:
    loss: as of `jax.value_and_grad`.
    axis: all mesh axes over which gradients are to be averaged, those of
      ``dense_axes`` too.
    **options: as of `jax.value_and_grad`.
  """
  fn = jax.value_and_grad(loss, **options)

  def run(*args, **kwargs):
    return fn(*workers.local(args, axis), **kwargs)

  return run


def init(
  tx: optax.GradientTransformation,
  params: Any,
  mesh: jax.sharding.Mesh,
  specs: Any = _COPIES,
) -> Any:
  """Initialise the state of a transformation on a mesh, rows on their workers.

  Args:
    tx: a transformation with `mean_over` or `algorithm` in it.
    params: the parameters.
    mesh: of the workers.
    specs: a `PartitionSpec` of the parameters, or a tree of them; by default
      all workers have copies.
  """
  of_state = state_specs(tx, params, mesh, specs)
  place = lambda spec: jax.NamedSharding(mesh, spec)
  shardings = jax.tree.map(place, of_state)
  fn = _on(mesh, tx.init, (specs,), of_state)
  return jax.jit(fn, out_shardings=shardings)(params)


def state_specs(
  tx: optax.GradientTransformation,
  params: Any,
  mesh: jax.sharding.Mesh,
  specs: Any = _COPIES,
) -> Any:
  """Return the `PartitionSpec`s of the state of `tx`, as of `init`.

  Rows of workers lie over their axes. What is like a parameter, of the same
  path and shape, as Adam's moments, has its spec; all else is replicated.

  >>> mesh = jax.make_mesh((1,), ('data',))
  >>> tx = mean_over('data', 'top_k(k=1, error_feedback=True)')
  >>> tuple(state_specs(tx, {'w': jax.numpy.ones(3)}, mesh).encode.value)
  ('data',)
  """
  here = lambda fn: jax.eval_shape(_on(mesh, fn, (specs,), P()), params)
  spread = jax.tree.broadcast(specs, params, is_leaf=_is_spec)
  own, _ = jax.tree.flatten_with_path(here(lambda params: params))
  of_params = jax.tree.leaves(spread, is_leaf=_is_spec)
  known = [(p, x.shape, s) for (p, x), s in zip(own, of_params, strict=True)]

  def spec(path, x):
    if is_worker(x):
      return PerWorker(P(x.axes), x.axes)
    of = lambda p: path[len(path) - len(p) :] == p and len(p) <= len(path)
    alike = (s for p, shape, s in known if shape == x.shape and of(p))
    return next(alike, P())

  return jax.tree.map_with_path(spec, here(tx.init), is_leaf=is_worker)


def train_step(
  loss: Callable[..., jax.Array],
  tx: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
) -> Callable[..., tuple[Any, Any, jax.Array]]:
  """Build a jitted step: (params, state, batch) -> (params, state, loss).

  Args:
    loss: (params, batch) -> f32[], of one worker's part of the batch.
    tx: a transformation with `mean_over` or `algorithm` in it.
    mesh: all its axes together are the workers' parts of a batch: leaves of
      `batch` are split along axis 0. Its parameters are the same on all.

  Returns:
    The step; its loss is the mean over the workers. The first two arguments are
    donated. It raises ValueError if `tx` averages over fewer axes.
  """
  axes = mesh.axis_names

  def local(params, state, batch):
    place = worker_params(params, state)
    value, grads = jax.value_and_grad(loss)(place, batch)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, lax.pmean(value, axes)

  @jax.jit(donate_argnums=(0, 1))
  def step(params, state, batch):
    specs = state_specs(tx, params, mesh)
    sent = bills.bytes_per_step(tx, params, mesh).by_axis
    if apart := [a for a in axes if mesh.shape[a] > 1 and a not in sent]:
      raise ValueError(
        f'tx averages nothing over {apart} of the mesh: give these axes to '
        'mean_over, as axis or dense_axes.'
      )
    run = _on(mesh, local, (P(), specs, P(axes)), (P(), specs, P()))
    return run(params, state, batch)

  return step


def _is_spec(x) -> bool:
  return isinstance(x, P)


def _on(mesh, fn, in_specs, out_specs):
  """Maps fn over a mesh, whose Explicit axes would not split what is whole."""
  types = (jax.sharding.AxisType.Auto,) * len(mesh.axis_names)
  mesh = mesh.update(axis_types=types)
  return jax.shard_map(
    fn, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
  )
