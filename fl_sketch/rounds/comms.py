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
from typing import Any, NamedTuple

from fl_sketch.rounds import stages, workers
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

Tree = Any
Decode = Callable[..., Tree]  # (keys, payload, like) -> tree
SHARD = 'shard'
NO_SERVER = (
  "The algorithm's clients exchange tables among themselves: it has no server, "
  'and does not run over messages. Simulate it.'
)


class Bill(NamedTuple):
  """Communication cost of a round: bytes of one participant; both uint32[]."""

  up: jax.Array
  down: jax.Array


class PerClient(NamedTuple):
  """Marks per-client state, one row a client; all unmarked state is shared."""

  value: Tree


class LaneSum(NamedTuple):
  """Running sum of the decoded payloads of one shard's lanes."""

  total: Tree  # sum over lanes of weight x decoded payload; f32 or better
  weight: jax.Array  # f32[] or f64[], the sum of the lanes' weights
  nbytes: int  # wire size of one client's payload


def nbytes(tree: Tree) -> int:
  """Wire size of `tree` from its shapes and dtypes alone, an exact int.

  >>> nbytes({'values': jnp.zeros(5), 'index': jnp.zeros(5, jnp.int32)})
  40
  """
  return sum(
    math.prod(x.shape) * jnp.dtype(x.dtype).itemsize
    for x in jax.tree.leaves(tree)
  )


def bill(up: int = 0, down: int = 0) -> Bill:
  """The bill of payloads of these sizes; uint32 holds the sum of a few bills.

  >>> bill(up=40).up
  Array(40, dtype=uint32)

  A payload of 2 GiB or more raises ValueError.
  """
  for size in (up, down):
    if size >= 2**31:
      raise ValueError(f'A payload of {size=} must be < {2**31} bytes.')
  return Bill(jnp.uint32(up), jnp.uint32(down))


def downlink(tree: Tree) -> Tree:
  """Hands each shard its own copy of a shared `tree`.

  Not a no-op: with respect to a *shared* array, `jax.grad` inside `shard_map`
  returns gradients already summed over `shard`. In the work of clients, which
  is `unchecked`, no array is shared.
  """
  if stages.current() is not None:
    return tree
  if (group := workers.current()) is not None:
    return workers.local(tree, group.axis)
  return jax.tree.map(lambda x: jax.lax.pcast(x, SHARD, to='varying'), tree)


def uplink_mean(
  lane_sum: LaneSum, denominator: jax.Array | float | None = None
) -> tuple[Tree, int]:
  """Averages running sums over the shards: (shared mean, bytes of one client).

  The mean is of the decoded payloads; it is 0 if no client participated. The
  denominator, which must be a constant under differential privacy, is by
  default the sum of the weights. Raises TypeError for unsigned integers, whose
  sums `sum_over_shards` adds up.
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
  payloads: Tree,
  weight: jax.Array,
  decoded: Tree | None = None,
  denominator: jax.Array | float | None = None,
  decode: Callable[[jax.Array, Tree], Tree] | None = None,
) -> tuple[Tree, int]:
  """Averages the stacked payloads of all lanes by weight, as `uplink_mean`.

  Leaves are [lanes, ...], payloads in wire dtypes; those of `decoded`, where
  there are, are summed. Absent clients have weight 0. Between workers, each of
  one lane, the payloads travel, and `decode` (key of a client, its payload) is
  called where they arrive, as it is over messages.
  """
  first = lambda tree: jax.tree.map(lambda x: x[0], tree)
  size = nbytes(jax.eval_shape(first, payloads))
  if (stage := stages.current()) is not None:
    total = stage.exchange(payloads, decode or (lambda key, payload: payload))
    return uplink_mean(LaneSum(total, total_weight(weight), size), denominator)
  group = workers.current()
  if group is not None and decode is not None:
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
  """Adds up a local number over every client; for counts and metrics."""
  return sum_over_shards(x.sum())


def sum_over_shards(tree: Tree) -> Tree:
  """Adds up local arrays over the shards: of metrics, or of uint32, exactly."""
  if stages.current() is not None:
    return tree
  if (group := workers.current()) is not None:
    return workers.total(group.axis, tree)
  return jax.tree.map(lambda x: jax.lax.psum(x, SHARD), tree)


def slots(lanes: int) -> tuple[jax.Array, int]:
  """(int32[lanes], this shard's positions in the cohort; the cohort's size)."""
  if stages.current() is not None:
    return jnp.arange(lanes), lanes
  first = jax.lax.axis_index(SHARD) * lanes
  return first + jnp.arange(lanes), lanes * jax.lax.axis_size(SHARD)


def shards() -> int:
  """The number of shards; 1 over messages."""
  return 1 if stages.current() is not None else jax.lax.axis_size(SHARD)


def sum_exactly(tree: Tree) -> Tree:
  """Adds up uint32 leaves [lanes, ...] over the cohort, modulo 2^32."""
  if (stage := stages.current()) is not None:
    return stage.exchange(tree, lambda key, payload: payload)
  return sum_over_shards(jax.tree.map(lambda x: x.sum(0, dtype=x.dtype), tree))


def total_weight(weight: jax.Array) -> jax.Array:
  """The sum of f32[lanes]; f64[] where 64-bit numbers are enabled."""
  return weight.astype(jax.dtypes.canonicalize_dtype(jnp.float64)).sum()


def weighted(x: jax.Array, weight: jax.Array) -> jax.Array:
  """A client's leaf [...] times its weight in f32 or better; 0 x NaN is 0.

  A leaf of uint32 is a contribution to an exact sum: whole, or 0 for an absent
  client.
  """
  if x.dtype == jnp.uint32:
    return jnp.where(weight > 0, x, 0)
  x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
  return jnp.where(weight > 0, weight.astype(x.dtype) * x, 0)


def where_present(tree: Tree, present: jax.Array) -> Tree:
  """Leaves [lanes, ...] with zeros where bool[lanes] is false.

  >>> where_present(jnp.arange(3), jnp.array([True, False, True]))
  Array([0, 0, 2], dtype=int32)
  """
  keep = lambda x: jnp.where(expand_like(present, x), x, 0)
  return jax.tree.map(keep, tree)


def expand_like(values: Any, x: Any) -> Any:
  """Reshapes f[lanes] to [lanes, 1, ..., 1] so that it broadcasts against x.

  >>> expand_like(jnp.ones(3), jnp.ones((3, 2, 5))).shape
  (3, 1, 1)
  """
  return values.reshape((-1,) + (1,) * (x.ndim - 1))


def _is(kind):
  return lambda node: isinstance(node, kind)


def specs(state: Tree) -> Tree:
  """`shard_map` specs: per-client state over `shard`, the rest replicated."""
  spec = lambda node: P(SHARD) if isinstance(node, PerClient) else P()
  return jax.tree.map(spec, state, is_leaf=_is(PerClient))


def map_per_client(fn: Callable[..., Tree], state: Tree, *rest: Tree) -> Tree:
  """Applies `fn` leaf by leaf under `PerClient`; leaves the rest of `state`."""

  def visit(node, *others):
    if not isinstance(node, PerClient):
      return node
    return PerClient(jax.tree.map(fn, node.value, *(o.value for o in others)))

  return jax.tree.map(visit, state, *rest, is_leaf=_is(PerClient))


def drop_per_client(state: Tree) -> Tree:
  """Replaces per-client state by None."""
  drop = lambda node: None if isinstance(node, PerClient) else node
  return jax.tree.map(drop, state, is_leaf=_is(PerClient))


def with_per_client(shared: Tree, state: Tree) -> Tree:
  """Adds the per-client state of `state` to `shared` of `drop_per_client`."""
  pick = lambda old, new: old if isinstance(old, PerClient) else new
  return jax.tree.map(pick, state, shared, is_leaf=_is(PerClient))


def client_rows(state: Tree) -> list[jax.Array]:
  """The arrays of per-client state, one row a client."""
  nodes = jax.tree.leaves(state, is_leaf=_is(PerClient))
  return jax.tree.leaves([x for x in nodes if isinstance(x, PerClient)])


def has_client_state(state: Tree) -> bool:
  """Whether `state` has per-client state with at least one array."""
  return bool(client_rows(state))


def clear_bills(state: Tree) -> Tree:
  """Sets every `Bill` in `state` to zero, for the start of a round."""
  clear = lambda node: bill() if isinstance(node, Bill) else node
  return jax.tree.map(clear, state, is_leaf=_is(Bill))


def total_bill(state: Tree) -> Bill:
  """Sums every `Bill` in `state`."""
  nodes = jax.tree.leaves(state, is_leaf=_is(Bill))
  bills = [node for node in nodes if isinstance(node, Bill)]
  return jax.tree.map(lambda *xs: sum(xs), bill(), *bills)
