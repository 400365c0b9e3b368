"""Body of `shard_map`: trains, encodes and aggregates one shard's clients."""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch.rounds import client_loop, comms, fates, keys as keys_lib, marks
from fl_sketch.rounds.algorithm import (
  Algorithm,
  Hyper,
  Metrics,
  StatefulLocal,
  call_of,
  check_cohort,
)
from fl_sketch.utils.types import Params, Payload, Tree
import jax
import jax.numpy as jnp
import optax

Make = Callable[[Hyper], Algorithm]
Fetch = Callable[[Tree, Tree], Tree]  # (data, a client's indices) -> batches


class Observed(NamedTuple):
  """Metrics of a shard's clients, before they are summed."""

  metrics: Metrics  # of local work, [lanes]; 0 where rejected
  weight: jax.Array  # f32[lanes], 0 of clients that do not take part
  present: jax.Array  # bool[lanes], who was in the cohort
  participates: jax.Array  # bool[lanes], whose update was accepted as well


# (observed, comm, hp, releases of a round, noise keys) -> metrics of the round
Summary = Callable[
  [Observed, comms.Comm, Hyper, int, keys_lib.NoiseKeys | None], Metrics
]


def means_and_counts(
  observed: Observed, comm: comms.Comm, *_: object
) -> Metrics:
  """Return means of local metrics, `participants` and `rejected_clients`.

  Updates of rejected clients were not finite, or exceeded `max_payload_norm`.
  """
  means = comm.stacked_mean(observed.metrics, observed.weight)[0]
  count = lambda mask: comm.total(mask.astype(jnp.int32))
  taken = count(observed.participates)
  rejected = count(observed.present & ~observed.participates)
  return means | {'participants': taken, 'rejected_clients': rejected}


def build(
  make: Make, fetch: Fetch | None, clients_per_step: int | None,
  skip_absent: bool, attack: fates.Behaviour | None,
  max_payload_norm: float | None, summary: Summary,
) -> Callable[..., tuple[Tree, Tree, Metrics]]:  # fmt: skip
  """Build what `round.cohort_step` runs on each shard; see its arguments.

  The program takes the size of the cohort and the number of rows of state.
  """

  def program(size, rows, hp, params, state, cohort, keys, noise, data):
    algorithm, comm = make(hp), comms.Shards()
    check_cohort(algorithm, size, rows)
    private = algorithm.releases > 0
    if private != (noise is not None):
      needs = 'requires' if private else 'does not take'
      raise ValueError(f'The algorithm {needs} a noise_key: {private=}.')
    if max_payload_norm is not None and algorithm.decode is None:
      raise ValueError(
        f'{max_payload_norm=} requires an algorithm that decodes payloads one '
        'by one; unset it.'
      )
    cohort = marks.by_client(cohort)
    state = comms.map_per_client(marks.by_client, state)
    encode, protocol = state
    correction = algorithm.correction and algorithm.correction(protocol)
    by_lane = isinstance(correction, comms.PerClient)
    lane_correction = correction.value if by_lane else None
    start = params, None if by_lane else correction
    work = client_work(
      algorithm, start, keys, noise, fetch, data, attack, max_payload_norm
    )
    is_present = (lambda lane: lane[0].weight > 0) if skip_absent else None
    inputs = cohort, encode.value, lane_correction
    lanes = inputs, clients_per_step, is_present
    if algorithm.decode is None:
      payload, _, _, rest = client_loop.map_clients(work, *lanes)
    else:
      payload, rest = client_loop.sum_over_lanes(work, *lanes)
    weight, encode, metrics, accepted = rest
    broadcast, protocol = algorithm.protocol.update(
      payload, protocol, params, comm=comm, weight=weight, ids=cohort.ids,
      keys=keys_lib.for_lanes(keys, cohort.ids),
      noise=None if noise is None else keys_lib.for_lanes(noise, cohort.ids),
      clients_per_step=clients_per_step,
    )  # fmt: skip

    present = cohort.weight > 0
    participates = present & accepted

    def pick(new, old):  # the state of absent and rejected clients stays
      return jnp.where(comms.expand_like(participates, new), new, old)

    new_state = comms.PerClient(encode), protocol
    state = comms.map_per_client(pick, new_state, state)
    weight = jnp.where(participates, cohort.weight, 0)
    observed = Observed(metrics, weight, present, participates)
    metrics = summary(observed, comm, hp, algorithm.releases, noise)
    return broadcast, state, metrics

  return program


def client_work(
  algorithm, start, keys, noise, fetch=None, data=None, attack=None,
  max_norm=None,
):  # fmt: skip
  """Build the work of a lane, (cohort entry, state, correction) -> results.

  These are (payload, decoded payload, weight, (weight, state, metrics, whether
  the payload is accepted)).
  """
  params, shared_correction = start
  private = noise is not None
  keeps_state = isinstance(algorithm.local, StatefulLocal)

  def work(lane):
    client, state, correction = lane
    client_keys = keys_lib.for_client(keys, client.ids)
    batches = client.batches
    if fetch is not None:  # the sampler gives each client indices of its own
      batches = marks.of_same(fetch(data, batches), batches)
    correction = shared_correction if correction is None else correction
    source = keys_lib.for_client(noise, client.ids) if private else client_keys
    local_state = ()
    if keeps_state:
      *local_state, state = state
    local, key = call_of(algorithm.local, source)
    moved, metrics, *local_state = local(
      params, batches, key, correction, *local_state
    )
    if attack is not None and client.byzantine is not None:
      attacked = attack(moved, keys_lib.attack_key(client_keys))
      pick = lambda x, y: jnp.where(client.byzantine, x, y)
      moved = jax.tree.map(pick, attacked, moved)
    payload, state = algorithm.encode.update(
      moved, state, params, keys=client_keys, weight=client.weight
    )
    if keeps_state:
      state = *local_state, state
    accepted = all_finite((moved, payload))
    decode = algorithm.decode and (
      lambda payload: algorithm.decode(client_keys, payload, params)
    )
    if max_norm is not None:
      accepted &= optax.tree.norm(decode(payload)) <= max_norm
    zero = lambda tree: jax.tree.map(lambda x: jnp.where(accepted, x, 0), tree)
    # A private client keeps weight and noise: dropping it would leak.
    weight = client.weight if private else zero(client.weight)
    if decode is None or private:
      payload = zero(payload)
    decoded = None if decode is None else decode(payload)
    return payload, decoded, weight, (weight, state, zero(metrics), accepted)

  return work


def encode_once(
  algorithm: Algorithm, moved: Tree, params: Params, keys: keys_lib.RoundKeys
) -> Payload:
  """Encode a pseudo-gradient of a client without state of earlier rounds."""
  state = algorithm.encode.init(params)
  extra = {'keys': keys, 'weight': jnp.float32(1)}
  return algorithm.encode.update(moved, state, params, **extra)[0]


def all_finite(tree: Tree) -> jax.Array:
  """Return whether every float of a tree is finite, bool[]."""
  is_float = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)
  floats = filter(is_float, jax.tree.leaves(tree))
  finite = jnp.array([jnp.isfinite(x).all() for x in floats], bool)
  # Of .all() XLA makes one `and` for each leaf, which it repeats in all that
  # depends on it: compilation would be quadratic in the leaves.
  return finite.sum() == finite.size
