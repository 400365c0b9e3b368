"""Protocol steps as optax transformations, for the links of `federated`.

Links run from a client's pseudo-gradient to an update of the parameters::

    per_client(...), sketch(op)     one client at a time, in the client loop
    aggregation.mean_over_cohort()  the uplink: from every client to the server
    broadcast()                     the downlink: what every client receives
    desketch(op), any optax tx      the server step, which clients can redo

Extra arguments, by keyword, to every link:
  keys: `keys.RoundKeys`; in a protocol `keys.client` is key[lanes].
  comm: `comms.Comm`, in a protocol only: how clients and server communicate.
  weight: aggregation weights, 0 for a client that is absent; f32[] before the
    uplink and f32[lanes] in it.
  ids: int32[lanes], in a protocol only: which clients the lanes are.
  clients_per_step: in a protocol only: as in `rounds.cohort_step`.
  noise: `keys.NoiseKeys` of a private round, else None; in a protocol only,
    with a client key of each lane (client slot of a shard).
"""

from collections.abc import Callable
import dataclasses

from fl_sketch import sketches
from fl_sketch.rounds import chain, client_loop, comms, keys as keys_lib
from fl_sketch.utils.types import Tree
import jax
import optax


def per_client(tx: chain.Link | optax.GradientTransformation) -> chain.Link:
  """Run `tx` on each client separately, with per-client state."""
  return dataclasses.replace(chain.as_link(tx), role=chain.CLIENT)


def stateless(fn: Callable[..., Tree]) -> chain.Link:
  """Make a link without state from fn(updates, params, **extra) -> updates."""

  def update(updates, state, params=None, **extra):
    return fn(updates, params, **extra), state

  return chain.Link(optax.init_empty_state, update, chain.SHARED)


def over_lanes(
  fn: Callable[..., Tree], *lanes: Tree, keys: keys_lib.RoundKeys,
  clients_per_step: int | None, **_,
) -> Tree:  # fmt: skip
  """Apply fn(keys of one client, ...) to lanes, leaves [lanes, ...].

  `fn` closes over shared values alone; `keys` are from `keys.for_lanes`.
  """

  def one(lane):
    client, *rest = lane
    return fn(keys._replace(client=client), *rest)

  return client_loop.map_clients(one, (keys.client, *lanes), clients_per_step)


def sketch(
  op: sketches.Sketch, *, hash_rounds: int | None = None
) -> chain.Link:
  """Client: pseudo-gradient -> table; for `hash_rounds` see `keys.hash_key`."""

  def init(params):
    jax.eval_shape(op.zero_table, params)  # raises if b > d
    return optax.EmptyState()

  def update(updates, state, params=None, *, keys, **_):
    return op.sketch(keys_lib.hash_key(keys, hash_rounds), updates), state

  return chain.Link(
    init, update, chain.CLIENT, sketch=op, hash_rounds=hash_rounds,
    by_round=True,
  )  # fmt: skip


def desketch(
  op: sketches.Sketch, *, hash_rounds: int | None = None
) -> chain.Link:
  """Server: mean table -> estimate of the mean pseudo-gradient."""

  def read(table, params, *, keys, **_):
    return op.desketch(keys_lib.hash_key(keys, hash_rounds), table, params)

  return dataclasses.replace(stateless(read), by_round=True)


def broadcast() -> chain.Link:
  """Build the downlink; clients can redo all later links."""

  def update(updates, _, params=None, *, comm, **__):
    updates = comm.announce(updates)
    return updates, comms.bill(down=comms.nbytes(updates))

  init = lambda params: comms.bill()
  return chain.Link(init, update, chain.SHARED, broadcasts=True)
