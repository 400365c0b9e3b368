"""Client side of rounds over messages: local work, encoding; see `server`."""

from collections.abc import Callable
from typing import Any

from fl_sketch import rounds
from fl_sketch.messaging import wire
from fl_sketch.rounds import client_step, comms, keys as keys_lib
from fl_sketch.rounds.algorithm import Algorithm, run_client
import jax
import jax.numpy as jnp


def build(
  make: rounds.Make, *, run: bytes, schedule: rounds.Schedule | None = None
) -> Callable[..., bytes]:
  """Build the function that does a client's local work and encodes a message.

  `make` is hp -> `Algorithm`, one that `check` accepts, and `run` the run's
  `wire.fingerprint`; for the schedule see `rounds.run_round`. The function is
  (hp, params, round, client_id, batches, key) -> bytes, with the parameters
  that the round starts from, batches with leaves [local_steps, batch, ...], and
  the run's root key. It raises FloatingPointError if the update is not finite.
  """

  @jax.jit
  def work(hp, params, round_index, client_id, batches, key):
    if schedule is not None:
      hp = schedule(hp, round_index)
    algorithm = make(hp)
    check(algorithm, params)
    keys = keys_lib.round_keys(key, round_index)
    client_keys = keys_lib.for_client(keys, client_id)
    moved, _ = run_client(algorithm.local, params, batches, client_keys, None)
    payload = client_step.encode_once(algorithm, moved, params, client_keys)
    return payload, client_step.all_finite((moved, payload))

  def message(hp, params, round_index, client_id, batches, key):
    result = work(hp, params, round_index, client_id, batches, key)
    payload, finite = jax.device_get(result)
    if not finite:
      raise FloatingPointError(
        f'Round {round_index}: the update of {client_id=} is not finite.'
      )
    return wire.encode(
      payload, run=run, round_index=round_index, client_id=client_id
    )

  return message


def payload_types(make: rounds.Make, hp: Any, params: Any) -> Any:
  """Shapes and dtypes of a client's payload, as from `jax.eval_shape`."""

  def encode(hp, params, key):
    keys = keys_lib.round_keys(key, jnp.int32(0))
    algorithm = make(hp)
    moved = (algorithm.update_template or (lambda x: x))(params)
    return client_step.encode_once(algorithm, moved, params, keys)

  return jax.eval_shape(encode, hp, params, jax.random.key(0))


def check(algorithm: Algorithm, params: Any):
  """Check that an algorithm can run over messages.

  Raises:
    ValueError: it is private, its payloads are not summed as they arrive, or
      its clients need more than the parameters of the round.
  """
  if algorithm.releases:
    raise ValueError(
      f'A private algorithm, releases={algorithm.releases}, does not run over '
      'messages: the simulation draws its noise.'
    )
  if algorithm.decode is None:
    raise ValueError(
      'The server must sum payloads as they come; this algorithm cannot.'
    )
  state = jax.eval_shape(lambda x: rounds.init(algorithm, x, 1), params)
  if algorithm.correction is not None or comms.has_client_state(state):
    raise ValueError(
      "The algorithm's clients need more than the parameters of the round, "
      'and messages bring nothing else.'
    )
