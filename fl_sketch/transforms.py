"""Protocol steps as optax transformations, for use in one `federated_chain`.

Links run from a client's pseudo-gradient to an update of the parameters:

    per_client(...), sketch(op)   one client at a time, inside the lane loop
    mean_over_cohort()            the uplink: from every client to the server
    broadcast()                   the downlink: what every client receives
    desketch(op), any optax tx    redone by whoever holds the broadcast

Extra arguments, by keyword, to every link:
  keys: `keys.RoundKeys`.
  weight: aggregation weights, 0 for a client that is absent; f32[] before the
    uplink and f32[lanes] in it.
"""

from typing import Any
from typing import NamedTuple

from fl_sketch import comms
from fl_sketch import sketches
import jax
import optax

Transform = optax.GradientTransformationExtraArgs


class ClientTransform(optax.GradientTransformationExtraArgs):
  """A link that runs on one client; its state is that client's own."""


class Broadcast(optax.GradientTransformationExtraArgs):
  """The link after which every client can go on by itself."""


class Uplink(optax.GradientTransformationExtraArgs):
  """A link that takes the cohort's payloads, added up as they come.

  Attributes:
    decode: undoes a non-linear encoding of one client before the sum.
  """

  decode: comms.Decode

  def __new__(cls, init, update, decode: comms.Decode | None):
    """Makes the link; a `decode` of None is the identity."""
    self = super().__new__(cls, init, update)
    self.decode = decode or (lambda payload: payload)
    return self


class Chain(NamedTuple):
  """A protocol in the parts that a round runs in different places.

  Attributes:
    encode: pseudo-gradient -> payload; one client, inside the lane loop.
    protocol: what the cohort sent -> what the server broadcasts, shared.
    server: broadcast -> update of params; the same on server and clients.
    decode: payload -> what the lane loop adds up. None: the protocol wants the
      payloads themselves, leaves [lanes, ...].
  """

  encode: Transform
  protocol: Transform
  server: Transform
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
  if streams and not any(isinstance(link, Broadcast) for link in rest):
    raise ValueError('Expected a broadcast() after the uplink.')
  sent = [i + 1 for i, x in enumerate(rest) if isinstance(x, Broadcast)]
  split = sent[-1] if sent else len(rest)
  return Chain(
    encode=_chain(encode),
    protocol=_chain(rest[:split]),
    server=_chain(rest[split:]),
    decode=rest[0].decode if streams else None,
  )


def _chain(links) -> Transform:
  chain = optax.chain(*links) if links else optax.identity()
  return optax.with_extra_args_support(chain)


def per_client(tx: optax.GradientTransformation) -> ClientTransform:
  """Runs `tx` on each client by itself, with state of its own."""
  tx = optax.with_extra_args_support(tx)
  return ClientTransform(tx.init, tx.update)


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

  def update(updates, state, params=None, **extra):
    return op.desketch(key_of(extra['keys']), updates, params), state

  return Transform(optax.init_empty_state, update)


def _hash_key(name):
  if name not in ('run', 'round'):
    raise ValueError(f"Expected hash_key={name!r} in ('run', 'round').")
  return lambda keys: getattr(keys, name)


def mean_over_cohort(
  *, decode: comms.Decode | None = None, denominator: Any = None
) -> Uplink:
  """The uplink: every client's payload -> the weighted mean, shared.

  Args:
    decode: undoes a non-linear encoding of one client before the mean.
    denominator: as in `comms.uplink`.
  """

  def update(payload, bill, params=None, *, weight, **_):
    mean, up = comms.uplink(payload, weight, decode, denominator)
    return mean, bill._replace(up=bill.up + comms.billed(up))

  return Uplink(lambda params: comms.no_bill(), update, decode)


def broadcast() -> Broadcast:
  """The downlink: marks what the server sends; clients redo later links."""

  def update(updates, state, params=None, **extra):
    del params, extra
    down = comms.billed(comms.nbytes(updates))
    return updates, state._replace(down=state.down + down)

  return Broadcast(lambda params: comms.no_bill(), update)
