"""The device mesh of a cohort, and the placement of arrays on it."""

from fl_sketch.rounds.comms import SHARD
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np


def cohort_mesh(shards: int | None = None) -> jax.sharding.Mesh:
  """Make a mesh of one axis over the first `shards` devices; None: all.

  Fewer devices than shards raise ValueError.
  """
  devices = jax.devices()
  if shards is not None and not 1 <= shards <= len(devices):
    raise ValueError(f'{shards=} must be 1 to devices={len(devices)}.')
  devices = devices[:shards]
  # Under an Explicit axis, `shard_map` refuses inputs that are not yet sharded.
  auto = (jax.sharding.AxisType.Auto,)
  return jax.make_mesh((len(devices),), (SHARD,), auto, devices=devices)


def place(mesh: jax.sharding.Mesh, tree: Tree, spec: P | None = None) -> Tree:
  """Copy arrays, equal in all processes, to the mesh; None: to every device.

  The arrays of `tree` outlive a round to which the copies are donated.
  """
  sharding = NamedSharding(mesh, P() if spec is None else spec)

  def put(x):
    is_array, key_type = isinstance(x, jax.Array), jax.dtypes.prng_key
    if is_array and jnp.issubdtype(x.dtype, key_type):
      data = put(jax.random.key_data(x))
      return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    # device_put of a device's array would share its buffer, which the round
    # then donates; from host memory each device makes one copy.
    x = np.asarray(x)
    if sharding.is_fully_addressable:
      return jax.device_put(x, sharding, may_alias=False)
    return jax.make_array_from_callback(x.shape, sharding, lambda i: x[i])

  return jax.tree.map(put, tree)


def place_local(mesh: jax.sharding.Mesh, tree: Tree, axis: int = 0) -> Tree:
  """Put this process's lanes (client slots of its shards) on the mesh.

  Leaves are host arrays with lanes on `axis`, as many in every process.
  """
  sharding = NamedSharding(mesh, P(*[None] * axis, SHARD))
  put = jax.make_array_from_process_local_data
  return jax.tree.map(lambda x: put(sharding, np.asarray(x)), tree)


def local_shards(x: jax.Array) -> np.ndarray:
  """Concatenate this process's addressable shards along axis 0."""
  shards = sorted(x.addressable_shards, key=lambda s: s.index[0].start or 0)
  return np.concatenate([np.asarray(s.data) for s in shards])


def shardings_over(mesh: jax.sharding.Mesh, tree: Tree) -> Tree:
  """Return shardings of leaves, each along its longest axis that divides."""

  def spec(x):
    axes = [i for i, n in enumerate(x.shape) if n and n % mesh.size == 0]
    if not axes:
      return NamedSharding(mesh, P())
    longest = max(axes, key=lambda i: x.shape[i])
    return NamedSharding(mesh, P(*[None] * longest, SHARD))

  return jax.tree.map(spec, tree)


def pad(tree: Tree, multiple: int) -> Tree:
  """Pad leaves [n, ...] with zeros; NumPy arrays stay in host memory."""

  def grow(x):
    padding = -x.shape[0] % multiple
    if not padding:
      return x
    xp = np if isinstance(x, np.ndarray) else jnp
    return xp.concatenate([x, xp.zeros((padding, *x.shape[1:]), x.dtype)])

  return jax.tree.map(grow, tree)
