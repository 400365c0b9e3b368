"""Communicators of clients and server, per-client state, and bills.

A cohort of C clients is laid out as shards x lanes (client slots of a shard). A
value is *shared* if every client holds the same copy and *local* if each holds
its own. A `Comm` has the only ways from local to shared; links get one as
``comm``. `Shards` simulates the cohort on the shards of a mesh axis, where
`shard_map` refuses any other way; `distributed.workers.Workers` are the workers
of a training loop, and `sites.comm.SiteComm` is a round over messages.
"""

import abc
from collections.abc import Callable
import math
from typing import NamedTuple

from fl_sketch.rounds import marks
from fl_sketch.utils.types import Payload, Tree
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

Decode = Callable[..., Tree]  # (keys, payload, like) -> tree
DecodeOne = Callable[[jax.Array, Payload], Tree]  # (key of a client, payload)
SHARD = 'shard'
NO_SERVER = 'The algorithm has no server: only fl_sketch.runs can simulate it.'


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


def zeros(shapes: Tree) -> Tree:
  """Return zeros of these shapes and dtypes."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def bill(up: int = 0, down: int = 0) -> Bill:
  """Make the bill of payloads; raise ValueError from 2 GiB on."""
  for size in (up, down):
    if size >= 2**31:
      raise ValueError(f'A payload of {size=} bytes must be < {2**31}.')
  return Bill(jnp.uint32(up), jnp.uint32(down))


class Comm(abc.ABC):
  """How a round takes what clients hold to the server, and back."""

  simulated: bool = True  # False: real clients, who see only what is announced

  @abc.abstractmethod
  def sum(self, tree: Tree) -> Tree:
    """Add up arrays of the shards; sums of uint32 are exact."""

  @abc.abstractmethod
  def sum_lanes(
    self, tree: Tree, bounded: Callable[[Tree], Tree] = lambda x: x
  ) -> Tree:
    """Add up uint32 leaves [lanes, ...] over the cohort, modulo 2^32.

    A server of real clients applies `bounded` to what each of them sends.
    """

  @abc.abstractmethod
  def slots(self, lanes: int) -> tuple[jax.Array, int]:
    """Return (int32[lanes], positions of lanes in the cohort; its size)."""

  def total(self, x: jax.Array) -> jax.Array:
    """Add up a number of each client, [lanes]; for counts and metrics."""
    return self.sum(x.sum())

  def mean(
    self, lane_sum: LaneSum, denominator: jax.Array | float | None = None
  ) -> tuple[Tree, int]:
    """Average running sums over the shards: (shared mean, bytes of a client).

    The mean of the decoded payloads is 0 if no client participated. The default
    denominator is the sum of weights; under differential privacy it must be a
    constant. Unsigned integers raise TypeError: add them by `sum`.
    """
    for x in jax.tree.leaves(lane_sum.total):
      if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        raise TypeError(f'A mean is of floats, not of {x.dtype}.')
    total = self.sum(lane_sum.total)
    if denominator is None:
      denominator = self.sum(lane_sum.weight)
    # A float32 denominator would spoil sums of 64-bit numbers.
    wide = jax.dtypes.canonicalize_dtype(jnp.float64)
    denominator = jnp.asarray(denominator, wide)
    scale = jnp.where(denominator > 0, 1 / jnp.maximum(denominator, 1e-38), 0)
    mean = jax.tree.map(lambda x: x * scale.astype(x.dtype), total)
    return mean, lane_sum.nbytes

  def stacked_mean(
    self, payloads: Payload, weight: jax.Array, decoded: Tree | None = None,
    decode: DecodeOne | None = None,
  ) -> tuple[Tree, int]:  # fmt: skip
    """Average the stacked payloads of all lanes by weight, as `mean`.

    Leaves are [lanes, ...]; absent clients have weight 0. The sum is of
    `decoded` if given. Over messages and between workers the payloads travel,
    and `decode` (key of a client, its payload) runs where they arrive.
    """
    add = lambda x: jax.vmap(weighted)(x, weight).sum(0)
    total = jax.tree.map(add, payloads if decoded is None else decoded)
    size = nbytes_of_one(payloads)
    return self.mean(LaneSum(total, total_weight(weight), size))

  def gather(
    self, tables: jax.Array, weight: jax.Array, ids: jax.Array, population: int
  ) -> tuple[jax.Array, int]:
    """Give all clients the tables of all: (f32[population, ...], bytes of one).

    Tables are [lanes, ...]; those of weight 0 become 0. Raises ValueError where
    clients do not see each other's tables.
    """
    raise ValueError(NO_SERVER)

  def announce(self, tree: Tree) -> Tree:
    """Mark what the server sends to clients in the middle of a round.

    Client state may depend on sums through announcements alone.
    """
    return marks.published(tree, 'an announcement')

  def cond(
    self, predicate: jax.Array, on_true: Callable[..., Tree],
    on_false: Callable[..., Tree], *args: Tree,
  ) -> Tree:  # fmt: skip
    """`lax.cond` whose branches may communicate.

    The predicate must follow from what all sides know before the round.
    """
    return jax.lax.cond(predicate, on_true, on_false, *args)


class Shards(Comm):
  """A simulated cohort, inside `shard_map` over the mesh axis `SHARD`."""

  def sum(self, tree):
    """Add up arrays of the shards."""
    return jax.tree.map(lambda x: jax.lax.psum(x, SHARD), tree)

  def sum_lanes(self, tree, bounded=None):
    """Add up uint32 leaves [lanes, ...] over the cohort."""
    return self.sum(jax.tree.map(lambda x: x.sum(0, dtype=x.dtype), tree))

  def slots(self, lanes):
    """Return (positions of the lanes, size of the padded cohort)."""
    first = jax.lax.axis_index(SHARD) * lanes
    return first + jnp.arange(lanes), lanes * jax.lax.axis_size(SHARD)

  def gather(self, tables, weight, ids, population):
    """All-gather clients' tables by id."""
    present = jax.vmap(weighted)(tables, jnp.sign(weight))
    gathered = jnp.zeros((population, *tables.shape[1:]), present.dtype)
    gathered = gathered.at[ids].set(present, mode='drop')
    return jax.lax.psum(gathered, SHARD), nbytes_of_one(tables)


def nbytes_of_one(stacked: Tree) -> int:
  """Return the wire size of one lane of leaves [lanes, ...], in bytes."""
  one = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
  return nbytes(jax.tree.map(one, stacked))


def total_weight(weight: jax.Array) -> jax.Array:
  """Sum f32[lanes]: f32[], or f64[] where 64-bit numbers are enabled."""
  return weight.astype(jax.dtypes.canonicalize_dtype(jnp.float64)).sum()


def weighted(tree: Tree, weight: jax.Array) -> Tree:
  """Multiply a client's leaves by its weight, in f32 or better; 0 x NaN is 0.

  A leaf of uint32 stays whole, or is 0 for an absent client.
  """

  def leaf(x):
    if x.dtype == jnp.uint32:
      return jnp.where(weight > 0, x, 0)
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jnp.where(weight > 0, weight.astype(x.dtype) * x, 0)

  return jax.tree.map(leaf, tree)


def where_present(tree: Tree, present: jax.Array) -> Tree:
  """Set leaves [lanes, ...] to 0 where bool[lanes] is false."""
  clear = lambda x: jnp.where(expand_like(present, x), x, 0)
  return jax.tree.map(clear, tree)


def expand_like(values: jax.Array, x: jax.Array) -> jax.Array:
  """Reshape [lanes] to [lanes, 1, ..., 1], which broadcasts against x."""
  return values.reshape((-1,) + (1,) * (x.ndim - 1))


_is_row = lambda node: isinstance(node, PerClient)
_is_bill = lambda node: isinstance(node, Bill)


def specs(state: Tree) -> Tree:
  """Return `shard_map` specs: per-client state split, the rest replicated."""
  spec = lambda node: P(SHARD) if _is_row(node) else P()
  return jax.tree.map(spec, state, is_leaf=_is_row)


def map_per_client(fn: Callable[..., Tree], state: Tree, *rest: Tree) -> Tree:
  """Apply `fn` to the leaves under `PerClient`; others are as in `state`."""

  def visit(node, *others):
    if not isinstance(node, PerClient):
      return node
    return PerClient(jax.tree.map(fn, node.value, *(o.value for o in others)))

  return jax.tree.map(visit, state, *rest, is_leaf=_is_row)


def drop_per_client(state: Tree) -> Tree:
  """Replace per-client state by None."""
  drop = lambda node: None if _is_row(node) else node
  return jax.tree.map(drop, state, is_leaf=_is_row)


def with_per_client(shared: Tree, state: Tree) -> Tree:
  """Add the per-client state of `state` to `shared` of `drop_per_client`."""
  pick = lambda old, new: old if _is_row(old) else new
  return jax.tree.map(pick, state, shared, is_leaf=_is_row)


def client_rows(state: Tree) -> list[jax.Array]:
  """Return the arrays of per-client state, one row a client."""
  nodes = jax.tree.leaves(state, is_leaf=_is_row)
  return jax.tree.leaves(list(filter(_is_row, nodes)))


def clear_bills(state: Tree) -> Tree:
  """Set every `Bill` in `state` to zero, for the start of a round."""
  clear = lambda node: bill() if isinstance(node, Bill) else node
  return jax.tree.map(clear, state, is_leaf=_is_bill)


def total_bill(state: Tree) -> Bill:
  """Sum every `Bill` in `state`."""
  nodes = jax.tree.leaves(state, is_leaf=_is_bill)
  bills = filter(_is_bill, nodes)
  return jax.tree.map(lambda *xs: sum(xs), bill(), *bills)
