"""The first half of a round as one shard of the mesh sees it: its own lanes."""

from collections.abc import Callable
from typing import Any

from fl_sketch.data import byzantine
from fl_sketch.rounds import client_loop, comms, keys as keys_lib
from fl_sketch.rounds.algorithm import Algorithm
import jax
import jax.numpy as jnp
import optax

Make = Callable[[Any], Algorithm]  # hyperparameters -> algorithm
Fetch = Callable[[Any, Any], Any]  # (data, one client's batches) -> batches


def build(
  make: Make,
  *,
  fetch: Fetch | None,
  lanes_per_step: int | None,
  skip_absent: bool,
  attack: byzantine.Behaviour | None,
  max_payload_norm: float | None,
):
  """Builds the program; see `rounds.cohort_step`."""

  def program(hp, params, rows, cohort, keys, noise, data):
    algorithm = make(hp)
    if max_payload_norm is not None and algorithm.decode is None:
      raise ValueError(
        f'Expected no {max_payload_norm=} with payloads that are not added up '
        'as they come: what they stand for has no norm by itself.'
      )
    encode, protocol = rows
    own, shared = _drift(algorithm, protocol)
    start = comms.downlink((params, shared))
    work = _client_work(
      algorithm, start, keys, noise, fetch, data, attack, max_payload_norm
    )
    lanes = cohort, encode.value, own
    present = (lambda lane: lane[0].weight > 0) if skip_absent else None
    if algorithm.decode is None:
      payload, weight, *rest = client_loop.map_clients(
        work, lanes, lanes_per_step, present
      )
    else:
      work = _decoded(work, algorithm.decode, start[0], keys)
      payload, (weight, *rest) = client_loop.sum_over_lanes(
        work, lanes, lanes_per_step, present
      )
    row, metrics, accepted = rest
    shared, new = algorithm.protocol.update(
      payload,
      protocol,
      params,
      keys=keys_lib.for_lanes(keys, cohort.ids),
      weight=weight,
      ids=cohort.ids,
      noise=None if noise is None else keys_lib.for_lanes(noise, cohort.ids),
      lanes_per_step=lanes_per_step,
    )

    came = cohort.weight > 0
    taken = came & accepted

    def keep(row, old):  # an absent client's row does not change
      return jnp.where(comms.beside(taken, row), row, old)

    rows = comms.map_per_client(keep, (comms.PerClient(row), new), rows)
    metrics, _ = comms.uplink_stacked(
      metrics, jnp.where(taken, cohort.weight, 0)
    )
    count = lambda who: comms.sum_over_cohort(who.astype(jnp.int32))
    who = {
      'participants': count(taken),
      'rejected_clients': count(came & ~taken),
    }
    return shared, rows, metrics | who

  return program


def _drift(algorithm, protocol):
  """What local work reads of the protocol's state: (of its lane, shared)."""
  drift = None if algorithm.drift is None else algorithm.drift(protocol)
  if isinstance(drift, comms.PerClient):
    return drift.value, None
  return None, drift


def _client_work(algorithm, start, keys, noise, fetch, data, attack, max_norm):
  """One client: (its entry, row, drift) -> (payload, weight, row, ...).

  What is not finite is left out. A private client then sends zeros, with its
  noise: that it does not take part would tell.
  """
  params, shared = start
  private = noise is not None

  def work(lane):
    client, row, drift = lane
    own = keys_lib.for_client(keys, client.ids)
    batches = client.batches if fetch is None else fetch(data, client.batches)
    drift = shared if drift is None else drift
    source = own if noise is None else keys_lib.for_client(noise, client.ids)
    key = keys_lib.local_key(source)  # secret in a private round
    moved, metrics = algorithm.local(params, batches, key, drift)
    if attack is not None and client.byzantine is not None:
      other = attack(moved, keys_lib.attack_key(own))
      pick = lambda x, y: jnp.where(client.byzantine, x, y)
      moved = jax.tree.map(pick, other, moved)
    payload, row = algorithm.encode.update(
      moved, row, params, keys=own, weight=client.weight
    )
    accepted = all_finite((moved, payload))
    if max_norm is not None:
      accepted &= _norm(algorithm, own, payload, params) <= max_norm
    zero = lambda tree: jax.tree.map(lambda x: jnp.where(accepted, x, 0), tree)
    weight = client.weight if private else zero(client.weight)
    if algorithm.decode is None or private:
      payload = zero(payload)
    return payload, weight, row, zero(metrics), accepted

  return work


def _norm(algorithm, keys, payload, like):
  """The Euclidean norm of what a payload stands for."""
  return optax.tree.norm(algorithm.decode(keys, payload, like))


def _decoded(work, decode, like, keys):
  """The same where payloads are summed as what they stand for, lane by lane."""

  def sent(lane):
    payload, weight, *rest = work(lane)
    own = keys_lib.for_client(keys, lane[0].ids)
    return payload, decode(own, payload, like), weight, (weight, *rest)

  return sent


def encode_once(
  algorithm: Algorithm, moved: Any, params: Any, keys: keys_lib.RoundKeys
) -> Any:
  """The payload of a client that keeps nothing from earlier rounds.

  Args:
    algorithm: whose encoder it is.
    moved: what local work returned, a pseudo-gradient.
    params: of the round.
    keys: of the client.
  """
  row = algorithm.encode.init(params)
  extra = {'keys': keys, 'weight': jnp.float32(1)}
  return algorithm.encode.update(moved, row, params, **extra)[0]


def all_finite(tree: Any) -> jax.Array:
  """Whether every number of a tree is finite, bool[]."""
  floats = [
    x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)
  ]
  return jnp.all(jnp.array([jnp.isfinite(x).all() for x in floats]))
