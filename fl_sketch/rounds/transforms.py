"""Protocol steps as optax transformations, for use in one `federated_chain`.

Links run from a client's pseudo-gradient to an update of the parameters:

    per_client(...), sketch(op)   one client at a time, inside the lane loop
    mean_over_cohort()            the uplink: from every client to the server
    broadcast()                   the downlink: what every client receives
    desketch(op), any optax tx    redone by whoever holds the broadcast

Extra arguments, by keyword, to every link:
  keys: `keys.RoundKeys`; in a protocol `keys.client` is key[lanes].
  weight: aggregation weights, 0 for a client that is absent; f32[] before the
    uplink and f32[lanes] in it.
  ids: int32[lanes], in a protocol only: which clients the lanes are.
  noise: `keys.NoiseKeys` of a private round, else None; in a protocol only,
    with a client key of each lane.
"""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import client_loop, comms, keys as keys_lib
import jax
import optax


class Transform(optax.GradientTransformationExtraArgs):
  """A link; its `update` may ask for any of the extra arguments by keyword."""

  def __new__(cls, init: Callable[..., Any], update: Callable[..., Any]):
    """Makes the link."""
    return super().__new__(cls, init, update)


class ClientTransform(Transform):
  """A link that runs on one client; its state is that client's own."""


class Broadcast(Transform):
  """The link after which every client can go on by itself."""


class Uplink(Transform):
  """A link that takes the cohort's payloads, added up as they come.

  Attributes:
    decode: (keys, payload, like) -> what is summed, one client at a time.
  """

  decode: comms.Decode

  def __new__(cls, init, update, decode: comms.Decode | None):
    """Makes the link; a `decode` of None is the identity."""
    self = super().__new__(cls, init, update)
    self.decode = decode or (lambda keys, payload, like: payload)
    return self


class Chain(NamedTuple):
  """A protocol in the parts that a round runs in different places.

  Attributes:
    encode: pseudo-gradient -> payload; one client, inside the lane loop.
    protocol: what the cohort sent -> what the server broadcasts, shared.
    server: broadcast -> update of params; the same on server and clients.
    decode: (keys, payload, like) -> what the lane loop adds up. None: the
      protocol wants the payloads themselves, leaves [lanes, ...].
  """

  encode: optax.GradientTransformationExtraArgs
  protocol: optax.GradientTransformationExtraArgs
  server: optax.GradientTransformationExtraArgs
  decode: comms.Decode | None


def federated_chain(*links: Any) -> Chain:
  """Splits one readable chain into the parts of a round.

  Leading `ClientTransform`s become the encoder. If an `Uplink` follows, the
  payloads are summed lane by lane as they are made, so that a round holds
  O(d + b) numbers whatever the cohort. What follows `broadcast()` is the server
  step, which a client that holds the broadcast can redo.

  >>> links = mean_over_cohort(), broadcast(), optax.scale(-1.0)
  >>> chain = federated_chain(*links)
  >>> chain.decode is not None
  True

  Args:
    *links: optax transformations in the order of the protocol.

  Raises:
    ValueError: a `ClientTransform` stands after the uplink, or no `broadcast()`
      says what the clients receive.
  """
  count = 0
  while count < len(links) and isinstance(links[count], ClientTransform):
    count += 1
  encode, rest = links[:count], links[count:]
  if any(isinstance(link, ClientTransform) for link in rest):
    raise ValueError('Expected per-client links to stand before the uplink.')

  streams = rest and isinstance(rest[0], Uplink)
  if not any(isinstance(link, Broadcast) for link in rest):
    raise ValueError('Expected a broadcast() after the uplink.')
  sent = [i + 1 for i, x in enumerate(rest) if isinstance(x, Broadcast)]
  split = sent[-1] if sent else len(rest)
  return Chain(
    encode=_chain(encode),
    protocol=_chain(rest[:split]),
    server=_chain(rest[split:]),
    decode=rest[0].decode if streams else None,
  )


def _chain(links) -> optax.GradientTransformationExtraArgs:
  chain = optax.chain(*links) if links else optax.identity()
  return optax.with_extra_args_support(chain)


def per_client(tx: optax.GradientTransformation) -> ClientTransform:
  """Runs `tx` on each client by itself, with state of its own."""
  tx = optax.with_extra_args_support(tx)
  return ClientTransform(tx.init, tx.update)


def stateless(fn: Callable[..., Any]) -> Transform:
  """A link without state from fn(updates, params, **extra) -> updates."""

  def update(updates, state, params=None, **extra):
    return fn(updates, params, **extra), state

  return Transform(optax.init_empty_state, update)


def over_lanes(
  fn: Callable[..., Any], keys: keys_lib.RoundKeys, *lanes: Any
) -> Any:
  """Applies fn(keys of one client, ...) to every lane of a protocol.

  Args:
    fn: one client's work.
    keys: with a client key of each lane, as a protocol is given them.
    *lanes: leaves [lanes, ...].
  """

  def one(lane):
    client, *rest = lane
    return fn(keys._replace(client=client), *rest)

  per_step = client_loop.default_lanes_per_step()
  return client_loop.map_clients(one, (keys.client, *lanes), per_step)


def sketch(op: sketches.Sketch, *, hash_key: str = 'round') -> ClientTransform:
  """Client: pseudo-gradient -> table.

  Args:
    op: the operator.
    hash_key: 'round' draws a new hash every round; 'run' keeps one, for
      protocols whose tables outlive the round.
  """
  key_of = _hash_key(hash_key)

  def init(params):
    jax.eval_shape(op.like, params)  # raises if the table exceeds the model
    return optax.EmptyState()

  def update(updates, state, params=None, **extra):
    del params
    return op.sketch(key_of(extra['keys']), updates), state

  return ClientTransform(init, update)


def desketch(op: sketches.Sketch, *, hash_key: str = 'round') -> Transform:
  """Server: mean table -> estimate of the mean pseudo-gradient."""
  key_of = _hash_key(hash_key)
  return stateless(
    lambda table, params, *, keys, **_: op.desketch(key_of(keys), table, params)
  )


def _hash_key(name):
  if name not in ('run', 'round'):
    raise ValueError(f"Expected hash_key={name!r} in ('run', 'round').")
  return lambda keys: getattr(keys, name)


def mean_over_cohort(
  *, decode: comms.Decode | None = None, denominator: Any = None
) -> Uplink:
  """The uplink: every client's payload -> the weighted mean, shared.

  Args:
    decode: (keys, payload, like) -> tree, undoes a non-linear encoding of one
      client before the mean.
    denominator: as in `comms.uplink`.
  """

  def update(payload, _, params=None, *, weight, **extra):
    decoded = None
    if decode is not None and not isinstance(payload, comms.LaneSum):
      decoded = over_lanes(
        functools.partial(_decode, decode, params), extra['keys'], payload
      )
    mean, up = comms.uplink(payload, weight, decoded, denominator)
    return mean, comms.bill(up)

  return Uplink(lambda params: comms.bill(), update, decode)


def _decode(decode, like, keys, payload):
  return decode(keys, payload, like)


def broadcast() -> Broadcast:
  """The downlink: marks what the server sends; clients redo later links."""

  def update(updates, _, params=None, **extra):
    del params, extra
    return updates, comms.bill(down=comms.nbytes(updates))

  return Broadcast(lambda params: comms.bill(), update)
