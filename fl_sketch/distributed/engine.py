"""Algorithms of the federated engine as optax transformations among workers."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any, NamedTuple

from fl_sketch.distributed import workers
from fl_sketch.rounds import axes, comms, keys as keys_lib
from fl_sketch.rounds.algorithm import Algorithm, StatefulLocal, call_of
from fl_sketch.rounds.chain import undecoded
from fl_sketch.rounds.client_step import all_finite
from fl_sketch.rounds.unchecked import where_checked
from fl_sketch.sketches.base import vector_type
from fl_sketch.utils.types import Params, Tree
import jax
from jax import lax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import optax

# Of parameters, or their shapes, and the number of workers; None: no mesh.
Make = Callable[[Params, int | None], Algorithm]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PerWorker:
  """State of a worker: arrays [workers, ...], of which each holds one row."""

  value: Tree  # inside `jax.shard_map` its arrays are [1, ...]
  # Of the mesh, along which the workers lie.
  axes: tuple[str, ...] = dataclasses.field(metadata={'static': True})


def is_worker(node: object) -> bool:
  """Return whether a node of a state is a `PerWorker`."""
  return isinstance(node, PerWorker)


class Mean(optax.GradientTransformationExtraArgs):
  """A mean over the workers of mesh axes, which `outer` reads."""

  axes: tuple[str, ...] = ()
  dense_axes: tuple[str, ...] = ()
  specs: Tree = jax.P()  # of the parameters


class State(NamedTuple):
  """State of `from_algorithm`; what differs by worker is `PerWorker`."""

  step: jax.Array  # int32[], from which the keys follow
  encode: Tree
  protocol: Tree
  server: Tree


def from_algorithm(
  make: Make, axis: axes.Axis, *,
  dense_axes: axes.Axis = (), sharded_axes: axes.Axis = (),
  seed: int = 0, stream: int | None = None, as_vector: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
  """Run an algorithm with one worker as one client: gradients -> updates.

  A step is a round in which all workers take part, worker i as client i. Its
  payload is gathered in the types of the wire and decoded where it arrives;
  payloads without a codec are all-reduced. Keys follow from `seed`, the step
  and the worker, as in a run of the engine; a `stream` sets them apart. Axes
  and seed are as of `compressors.mean_over`. Parameters are split over
  `sharded_axes`, whose devices draw for themselves. With `as_vector` the
  algorithm sees all numbers as one array, whose program is small.

  `make` builds an `Algorithm`, whose local work returns the batches it gets;
  a new one in each call, as JAX caches traces of its functions.

  Inside `jax.shard_map`, or `jax.vmap` with an axis name, updates are the same
  on all workers. A step whose update is not finite leaves the state, but for
  its counter, as it was.
  """
  names, dense_axes = axes.names(axis), axes.names(dense_axes)
  sharded_axes = axes.names(sharded_axes)
  every = *names, *dense_axes, *sharded_axes
  if not names or len({*every}) < len(every):
    raise ValueError(
      f'axis={names}, {dense_axes=}, {sharded_axes=}: one mesh axis at least, '
      'and each once.'
    )

  def seen(tree):
    """Return what the algorithm sees of a tree, and the way back."""
    if not as_vector:
      return tree, lambda x: x
    vector_type(tree)  # raises ValueError for what is no float
    return ravel_pytree(tree)

  def init(params):
    params = _wide(seen(params)[0])
    algorithm = make(params, axes.size_of(axis))
    if algorithm.releases or isinstance(algorithm.local, StatefulLocal):
      raise ValueError(
        'Private algorithms, and local work with state, are not supported '
        'between workers; use fl_sketch.runs.'
      )
    row = lambda x: jnp.asarray(x)[None]
    encode = jax.tree.map(row, algorithm.encode.init(params))
    protocol = comms.map_per_client(row, algorithm.protocol.init(params))
    server = algorithm.server.init(params)
    return wrap(0, comms.PerClient(encode), protocol, server)

  def wrap(step, *parts):
    return State(jnp.int32(step), *_wrap(parts, names, sharded_axes))

  def update(updates, state, params=None, **_) -> Any:
    _check_rows(state)
    workers.check_local(every, updates)
    updates, restore = seen(updates)
    if params is None or as_vector:
      params = comms.zeros(updates)  # shapes are known; updates vary by worker
    params = _wide(params)
    size = lax.axis_size(names)
    algorithm = make(params, size)
    grads = jax.tree.map(lambda g: lax.pmean(g, dense_axes), _wide(updates))
    root = jax.random.key(seed)
    if stream is not None:
      root = jax.random.fold_in(root, stream)
    if sharded_axes:
      root = jax.random.fold_in(root, lax.axis_index(sharded_axes))
    keys = keys_lib.round_keys(root, state.step)
    clients = keys_lib.for_lanes(keys, jnp.arange(size)).client
    old = encode, protocol, server = _unwrap(state[1:], sharded_axes)
    comm = workers.Workers(axis, clients, size)
    payload, encode = _encode(
      algorithm, grads, params, encode, protocol, keys, axis
    )
    shared, protocol, finite = _send(
      algorithm, payload, grads, protocol, params, keys, comm
    )
    moved, server = algorithm.server.update(shared, server, params, keys=keys)
    finite &= all_finite(moved)
    new = encode, protocol, server
    encode, protocol, server = optax.tree.where(finite, new, old)
    # A NaN may stay behind when all that is sent is finite.
    encode = optax.tree.where(all_finite(encode), encode, old[0])
    protocol = comms.clear_bills(protocol)  # which nobody reads here
    moved = jax.tree.map(lambda x: jnp.where(finite, x, jnp.nan), moved)
    new = wrap(state.step + 1, encode, protocol, server)
    return restore(optax.tree.cast_like(moved, updates)), new

  return optax.GradientTransformationExtraArgs(init, update)


def _wide(tree):
  """Cast half-precision floats to float32, in which sums are taken."""
  wide = lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32))
  return jax.tree.map(lambda x: wide(x) if workers.is_float(x) else x, tree)


def _encode(algorithm, grads, params, state, protocol, keys, axis):
  """Return the worker's payload, and the state of its client links."""
  keys = keys_lib.for_client(keys, lax.axis_index(axis))
  correction = algorithm.correction and algorithm.correction(protocol)
  if isinstance(correction, comms.PerClient):
    correction = jax.tree.map(lambda x: x[0], correction.value)

  def work(grads, params, rows, correction, keys):
    local, key = call_of(algorithm.local, keys)
    moved, _ = local(params, grads, key, correction)
    state = jax.tree.map(lambda x: x[0], rows)
    payload, state = algorithm.encode.update(
      moved, state, params, keys=keys, weight=jnp.float32(1), noise=None
    )
    return payload, jax.tree.map(lambda x: x[None], state)

  work = where_checked(work, axis)
  payload, rows = work(grads, params, state.value, correction, keys)
  return payload, comms.PerClient(rows)


def _send(algorithm, payload, grads, state, params, keys, comm):
  """Run the links up to the broadcast: (what all get, state, if finite)."""
  if algorithm.decode is None:  # it has collectives of its own
    lanes = jax.tree.map(lambda x: x[None], payload)
    me = lax.axis_index(comm.axis)[None]
    keys = keys_lib.for_lanes(keys, me)
    shared, state = algorithm.protocol.update(
      lanes, state, params, keys=keys, comm=comm, weight=jnp.ones(1), ids=me,
      clients_per_step=None, noise=None,
    )  # fmt: skip
    return shared, state, all_finite(shared)
  size = comms.nbytes(payload)
  if algorithm.decode is undecoded:
    total = comm.sum(payload)
  else:
    rows = _gather(comm, payload, algorithm.due and algorithm.due(state))
    decode = where_checked(algorithm.decode, comm.axis)
    decode_one = lambda key, x: decode(keys._replace(client=key), x, params)
    total = workers.sum_decoded(comm.keys, rows, decode_one)
  lane_sum = comms.LaneSum(total, jnp.float32(comm.size), size)
  finite = all_finite(total)
  if workers.has_no_float(payload):
    finite = workers.all_true(comm.axis, all_finite(grads))
  shared, state = algorithm.protocol.update(
    lane_sum, state, params, keys=keys._replace(client=comm.keys),
    comm=dataclasses.replace(comm, axis=()),  # the sum is here
    weight=jnp.ones(comm.size), noise=None,
  )  # fmt: skip
  return shared, state, finite


def _gather(comm, payload, due):
  """Gather all payloads; parts that are not due are zeros, and stay."""
  send = functools.partial(workers.gather, comm.axis)
  if not due:
    return send(payload)
  zero = lambda x: jnp.zeros((comm.size, *x.shape), x.dtype)
  rows = send({k: v for k, v in payload.items() if k not in due})
  for name, flag in due.items():
    zeros = functools.partial(jax.tree.map, zero)
    rows[name] = lax.cond(flag, send, zeros, payload[name])
  return rows


def _wrap(parts, names, sharded_axes):
  """Mark rows of the engine's state as rows of workers, or of all devices."""
  axes = *names, *sharded_axes
  is_row = lambda x: isinstance(x, comms.PerClient)
  mark = lambda x: PerWorker(x.value, axes) if is_row(x) else x
  parts = jax.tree.map(mark, parts, is_leaf=is_row)
  if not sharded_axes:
    return parts
  # What workers share is one value for each shard.
  row = lambda x: x if is_worker(x) else PerWorker(x[None], sharded_axes)
  return jax.tree.map(row, parts, is_leaf=is_worker)


def _check_rows(state):
  nodes = jax.tree.leaves(state[1:], is_leaf=is_worker)
  rows = jax.tree.leaves([x for x in nodes if is_worker(x)])
  if state.step.shape or any(x.shape[:1] != (1,) for x in rows):
    raise ValueError(
      'The state has rows of several workers; set in_specs to '
      'distributed.state_specs(...), or in_axes=0 under vmap.'
    )


def _unwrap(parts, sharded_axes):
  def unwrapped(node):
    if not is_worker(node):
      return node
    shared = sharded_axes and node.axes == sharded_axes
    return node.value[0] if shared else comms.PerClient(node.value)

  return jax.tree.map(unwrapped, parts, is_leaf=is_worker)
