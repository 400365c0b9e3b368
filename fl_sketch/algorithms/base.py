"""What a federated algorithm is: local work and one chain."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from fl_sketch import comms
from fl_sketch import local as local_work
from fl_sketch import transforms
import jax
import optax


class Hyper(NamedTuple):
  """The numbers a sweep may vary: arrays, so `vmap` can range over them.

  Attributes:
    client_lr: f32[], step size of local work.
    server_lr: f32[], step size of the server.
  """

  client_lr: jax.Array
  server_lr: jax.Array


_IDENTITY = optax.with_extra_args_support(optax.identity())


class Algorithm(NamedTuple):
  """A federated algorithm.

  Attributes:
    local: (params, batches, key, drift) -> (pseudo-gradient, metrics), for one
      client.
    encode: pseudo-gradient -> payload, for one client.
    protocol: from what the cohort sent to what the server broadcasts.
    drift: protocol state -> what local work may read of it, leaves
      [lanes, ...]; None for most algorithms.
    server: from the broadcast to an update of params.
    decode: payload -> what the lane loop adds up; None if the protocol wants
      the payloads themselves.
  """

  local: local_work.Local
  encode: transforms.Transform = _IDENTITY
  protocol: transforms.Transform = _IDENTITY
  drift: Callable[[Any], Any] | None = None
  server: transforms.Transform = _IDENTITY
  decode: comms.Decode | None = None


def federated(
  local: local_work.Local,
  *links: Any,
  drift: Callable[[Any], Any] | None = None,
) -> Algorithm:
  """An algorithm from its local work and the links of one chain."""
  chain = transforms.federated_chain(*links)
  return Algorithm(local=local, drift=drift, **chain._asdict())
