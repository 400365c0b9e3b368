"""Types of a federated algorithm: local work and one chain of links."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch.rounds import chain, comms
import jax
import optax

LossFn = Callable[[Any, Any], jax.Array]  # (params, batch) -> f32[]
Local = Callable[..., tuple[Any, dict[str, jax.Array]]]


class Hyper(NamedTuple):
  """The hyperparameters that a sweep may vary: arrays, so that it can `vmap`.

  Attributes:
    client_lr: f32[], step size of local work.
    server_lr: f32[], step size of the server.
    clip_norm: f32[], L2 bound where an algorithm clips; None where none does.
    noise_multiplier: f32[], standard deviation of the noise on a sum, in units
      of ``clip_norm``; None where no privacy is claimed.
    noise_stddev: f32[], of DiffSketch's noise, which gives no privacy; None
      where there is none.
  """

  client_lr: jax.Array
  server_lr: jax.Array
  clip_norm: jax.Array | None = None
  noise_multiplier: jax.Array | None = None
  noise_stddev: jax.Array | None = None


_IDENTITY = optax.with_extra_args_support(optax.identity())


class Algorithm(NamedTuple):
  """A federated algorithm.

  Attributes:
    local: (params, batches, key, drift) -> (pseudo-gradient, metrics), for one
      client.
    encode: pseudo-gradient -> payload, for one client.
    protocol: the cohort's payloads -> what the server broadcasts.
    drift: protocol state -> the part that local work reads: a `PerClient`, or
      anything shared; None for most algorithms.
    server: broadcast -> update of params.
    decode: (keys, payload, like) -> what the client loop adds up; None if the
      protocol takes the payloads themselves, leaves [lanes, ...].
    releases: number of noisy releases in a round that protect a client
      (user-level DP) or, in local work, a sample (example-level DP); those of
      the links are added up, and infinite if their noise is not of a law that
      is accounted for. If not 0, a round takes a secret key, local work
      draws from it, weights count as 0 or 1, and a round without participants
      updates the state as any other.
    sensitivity: f32[] for each release of the links, see
      `chain.Transform`.
    everyone: how many clients must take part in every round; True is as many
      as have a row of state, False any number.
  """

  local: Local
  encode: optax.GradientTransformationExtraArgs = _IDENTITY
  protocol: optax.GradientTransformationExtraArgs = _IDENTITY
  drift: Callable[[Any], Any] | None = None
  server: optax.GradientTransformationExtraArgs = _IDENTITY
  decode: comms.Decode | None = None
  releases: float = 0
  sensitivity: tuple[Any, ...] = ()
  everyone: int = False


def federated(
  local: Local,
  *links: Any,
  drift: Callable[[Any], Any] | None = None,
  everyone: int = False,
) -> Algorithm:
  """Builds an algorithm from its local work and the links of one chain.

  Its releases are the sum of those that the links declare.

  Args:
    local: as in `Algorithm`.
    *links: as in `chain.federated_chain`.
    drift: as in `Algorithm`.
    everyone: as in `Algorithm`.
  """
  parts = chain.federated_chain(*links)
  return Algorithm(local, drift=drift, everyone=everyone, **parts._asdict())


def check_cohort(algorithm: Algorithm, state: Any, size: int) -> None:
  """Refuses a cohort with too few slots for those who must all take part.

  Shapes alone tell, so that it costs nothing when a round runs.

  Args:
    algorithm: of the round.
    state: a `rounds.FedState`.
    size: slots of the cohort.

  Raises:
    ValueError: there are fewer than `Algorithm.everyone`.
  """
  expected = algorithm.everyone
  if expected is True:
    expected = len(comms.client_rows(state)[0])
  if size < expected:
    raise ValueError(
      f'Expected a cohort of {size=} to be all {expected} clients: each takes '
      'part in every round of this algorithm.'
    )
