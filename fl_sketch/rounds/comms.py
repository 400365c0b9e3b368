"""Collectives between clients and server, and their communication cost.

A cohort of C clients is laid out as shards x lanes (client slots of a shard):
`shard_map` splits it over the mesh axis `shard`, and each shard holds its lanes
on a leading axis. A value is *shared* if every client holds the same copy and
*local* if each holds its own; JAX's types say which, since a shared value is
invariant over `shard`. The uplinks are the only way from local to shared and
`downlink` the only way back; `shard_map` refuses any other program.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

from fl_sketch.rounds import stages, workers
from fl_sketch.utils.types import Payload, Tree
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

Decode = Callable[..., Tree]  # (keys, payload, like) -> tree
SHARD = 'shard'
NO_SERVER = (
  'The algorithm has no server, so that it cannot run over messages; simulate '
  'it.'
)


class Bill(NamedTuple):
  """Bytes that one participant sends and receives in a round, uint32[]."""

  up: jax.Array
  down: jax.Array


class PerClient(NamedTuple):
  """Mark of per-client state, one row a client; unmarked state is shared."""

  value: Tree


class LaneSum(NamedTuple):
  """Running sum of the decoded payloads of one shard's lanes."""

  total: Tree  # sum over lanes of weight x decoded payload; f32 or better
  weight: jax.Array  # f32[] or f64[], the sum of the lanes' weights
  nbytes: int  # wire size of one client's payload


def nbytes(tree: Tree) -> int:
  """Return the wire size of `tree`, by its shapes and dtypes, in bytes."""
  return sum(
    math.prod(x.shape) * jnp.dtype(x.dtype).itemsize
    for x in jax.tree.leaves(tree)
  )


def bill(up: int = 0, down: int = 0) -> Bill:
  """Make the bill of payloads; raise ValueError from 2 GiB on."""
  for size in (up, down):
    if size >= 2**31:
      raise ValueError(f'A payload of {size=} bytes must be < {2**31}.')
  return Bill(jnp.uint32(up), jnp.uint32(down))


def downlink(tree: Tree) -> Tree:
  """Give each shard its own copy of a shared `tree`.

  With respect to a *shared* array, `jax.grad` inside `shard_map` would return
  gradients already summed over `shard`.
  """
  if stages.current() is not None:
    return tree
  group = workers.current()
  if group is not None:
    return workers.local(tree, group.axis)
  return jax.tree.map(lambda x: jax.lax.pcast(x, SHARD, to='varying'), tree)


def uplink_mean(
  lane_sum: LaneSum, denominator: jax.Array | float | None = None
) -> tuple[Tree, int]:
  """Average running sums over the shards: (shared mean, bytes of one client).

  The mean of the decoded payloads is 0 if no client participated. The default
  denominator is the sum of weights; under differential privacy it must be a
  constant. Unsigned integers raise TypeError: add them by `sum_over_shards`.
  """
  for x in jax.tree.leaves(lane_sum.total):
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
      raise TypeError(f'A mean is of floats, not of {x.dtype}.')
  total = sum_over_shards(lane_sum.total)
  if denominator is None:
    denominator = sum_over_shards(lane_sum.weight)
  # A float32 denominator would spoil sums of 64-bit numbers.
  wide = jax.dtypes.canonicalize_dtype(jnp.float64)
  denominator = jnp.asarray(denominator, wide)
  scale = jnp.where(denominator > 0, 1 / jnp.maximum(denominator, 1e-38), 0)
  mean = jax.tree.map(lambda x: x * scale.astype(x.dtype), total)
  return mean, lane_sum.nbytes


def uplink_stacked_mean(
  payloads: Payload,
  weight: jax.Array,
  decoded: Tree | None = None,
  denominator: jax.Array | float | None = None,
  decode: Callable[[jax.Array, Payload], Tree] | None = None,
) -> tuple[Tree, int]:
  """Average the stacked payloads of all lanes by weight, as `uplink_mean`.

  Leaves are [lanes, ...]; absent clients have weight 0. The sum is of `decoded`
  if given. Over messages and between workers the payloads travel, and `decode`
  (key of a client, its payload) runs where they arrive.
  """
  first = lambda tree: jax.tree.map(lambda x: x[0], tree)
  size = nbytes(jax.eval_shape(first, payloads))
  if (stage := stages.current()) is not None:
    total = stage.exchange(payloads, decode or (lambda key, payload: payload))
    return uplink_mean(LaneSum(total, total_weight(weight), size), denominator)
  group = workers.current()
  if group is not None and decode is not None:  # each worker has one lane
    rows = workers.gather(group.axis, first(payloads))
    total = workers.sum_decoded(group.keys, rows, decode)
    return jax.tree.map(lambda x: x / group.size, total), size
  add = lambda x: jax.vmap(weighted)(x, weight).sum(0)
  total = jax.tree.map(add, payloads if decoded is None else decoded)
  return uplink_mean(LaneSum(total, total_weight(weight), size), denominator)


def gather_tables(
  tables: jax.Array, weight: jax.Array, ids: jax.Array, population: int
) -> tuple[jax.Array, int]:
  """All-gathers clients' tables by id: (f32[population, ...], bytes of one).

  Tables are [lanes, ...]; those of weight 0 become 0. Raises ValueError over
  messages, where clients do not see each other's tables.
  """
  if stages.current() is not None:
    raise ValueError(NO_SERVER)
  present = jax.vmap(weighted)(tables, jnp.sign(weight))
  gathered = jnp.zeros((population, *tables.shape[1:]), present.dtype)
  gathered = gathered.at[ids].set(present, mode='drop')
  size = nbytes(jax.eval_shape(lambda x: x[0], tables))
  return jax.lax.psum(gathered, SHARD), size


def sum_over_cohort(x: jax.Array) -> jax.Array:
  """Add up a local number over every client; for counts and metrics."""
  return sum_over_shards(x.sum())


def sum_over_shards(tree: Tree) -> Tree:
  """Add up local arrays over the shards; sums of uint32 are exact."""
  if stages.current() is not None:
    return tree
  group = workers.current()
  if group is not None:
    return workers.total(group.axis, tree)
  return jax.tree.map(lambda x: jax.lax.psum(x, SHARD), tree)


def slots(lanes: int) -> tuple[jax.Array, int]:
  """Return (int32[lanes], positions of lanes in the cohort; its size)."""
  if stages.current() is not None:
    return jnp.arange(lanes), lanes
  first = jax.lax.axis_index(SHARD) * lanes
  return first + jnp.arange(lanes), lanes * jax.lax.axis_size(SHARD)


def shards() -> int:
  """Return the number of shards; 1 over messages."""
  return 1 if stages.current() is not None else jax.lax.axis_size(SHARD)


def sum_exactly(tree: Tree) -> Tree:
  """Add up uint32 leaves [lanes, ...] over the cohort, modulo 2^32."""
  if (stage := stages.current()) is not None:
    return stage.exchange(tree, lambda key, payload: payload)
  return sum_over_shards(jax.tree.map(lambda x: x.sum(0, dtype=x.dtype), tree))


def total_weight(weight: jax.Array) -> jax.Array:
  """Sum f32[lanes]: f32[], or f64[] where 64-bit numbers are enabled."""
  return weight.astype(jax.dtypes.canonicalize_dtype(jnp.float64)).sum()


def weighted(x: jax.Array, weight: jax.Array) -> jax.Array:
  """Multiply a client's leaf by its weight, in f32 or better; 0 x NaN is 0.

  A leaf of uint32 stays whole, or is 0 for an absent client.
  """
  if x.dtype == jnp.uint32:
    return jnp.where(weight > 0, x, 0)
  x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
  return jnp.where(weight > 0, weight.astype(x.dtype) * x, 0)


def where_present(tree: Tree, present: jax.Array) -> Tree:
  """Set leaves [lanes, ...] to 0 where bool[lanes] is false."""
  clear = lambda x: jnp.where(expand_like(present, x), x, 0)
  return jax.tree.map(clear, tree)


def expand_like(values: jax.Array, x: jax.Array) -> jax.Array:
  """Reshape [lanes] to [lanes, 1, ..., 1], which broadcasts against x."""
  return values.reshape((-1,) + (1,) * (x.ndim - 1))


def _is(kind):
  return lambda node: isinstance(node, kind)


def specs(state: Tree) -> Tree:
  """Return `shard_map` specs: per-client state split, the rest replicated."""
  spec = lambda node: P(SHARD) if isinstance(node, PerClient) else P()
  return jax.tree.map(spec, state, is_leaf=_is(PerClient))


def map_per_client(fn: Callable[..., Tree], state: Tree, *rest: Tree) -> Tree:
  """Apply `fn` to the leaves under `PerClient`; others are as in `state`."""

  def visit(node, *others):
    if not isinstance(node, PerClient):
      return node
    return PerClient(jax.tree.map(fn, node.value, *(o.value for o in others)))

  return jax.tree.map(visit, state, *rest, is_leaf=_is(PerClient))


def drop_per_client(state: Tree) -> Tree:
  """Replace per-client state by None."""
  drop = lambda node: None if isinstance(node, PerClient) else node
  return jax.tree.map(drop, state, is_leaf=_is(PerClient))


def with_per_client(shared: Tree, state: Tree) -> Tree:
  """Add the per-client state of `state` to `shared` of `drop_per_client`."""
  pick = lambda old, new: old if isinstance(old, PerClient) else new
  return jax.tree.map(pick, state, shared, is_leaf=_is(PerClient))


def client_rows(state: Tree) -> list[jax.Array]:
  """Return the arrays of per-client state, one row a client."""
  nodes = jax.tree.leaves(state, is_leaf=_is(PerClient))
  return jax.tree.leaves([x for x in nodes if isinstance(x, PerClient)])


def has_client_state(state: Tree) -> bool:
  """Return whether `state` has per-client state with an array."""
  return bool(client_rows(state))


def clear_bills(state: Tree) -> Tree:
  """Set every `Bill` in `state` to zero, for the start of a round."""
  clear = lambda node: bill() if isinstance(node, Bill) else node
  return jax.tree.map(clear, state, is_leaf=_is(Bill))


def total_bill(state: Tree) -> Bill:
  """Sum every `Bill` in `state`."""
  nodes = jax.tree.leaves(state, is_leaf=_is(Bill))
  bills = [node for node in nodes if isinstance(node, Bill)]
  return jax.tree.map(lambda *xs: sum(xs), bill(), *bills)
