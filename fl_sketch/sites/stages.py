"""A round in stages: traces a protocol up to a point where messages travel.

Over messages a protocol runs in pieces: a client computes the payload of an
exchange, the server the sum, and a later message brings the clients what the
server announces. A `Stage` is one such piece. Both sides trace the protocol
from its start with a stage as ``comm``, which gives what has already arrived,
and ends the trace at the next exchange.
"""

from collections.abc import Sequence

from fl_sketch.rounds import comms
from fl_sketch.utils.types import Payload, Tree
import jax
import jax.numpy as jnp


class Reached(Exception):
  """Raised to end tracing at a chosen exchange; carries the payload."""

  def __init__(self, payload: Payload, decode: comms.DecodeOne):
    super().__init__()
    self.payload = payload  # of the first lane, in wire types
    self.decode = decode  # (key of a client, its payload) -> what is summed


class Stage(comms.Comm):
  """One piece of a protocol.

  Args:
    sums: results of past exchanges; None on a client, which computes with
      zeros in their place and uses no result.
    announcements: trees that the server has announced in past stages.
    stop: number of the exchange at which the trace ends; None: the last link.
    flags: values of the predicates of `Comm.cond`; None: all True.

  Attributes:
    announced: trees that the server announces in this stage.
    asked: the predicates of `Comm.cond`.
  """

  simulated = False

  def __init__(
    self,
    sums: Sequence[Tree] | None = (),
    announcements: Sequence[Tree] = (),
    stop: int | None = None,
    flags: Sequence[bool] | None = (),
  ):
    self._sums, self._stop, self._flags = sums, stop, flags
    self._announcements = announcements
    self._exchanges_seen = self._announcements_seen = 0
    self.announced: list[Tree] = []
    self.asked: list[jax.Array] = []

  def exchange(self, payloads: Payload, decode: comms.DecodeOne) -> Tree:
    """Return the sum of decoded payloads [lanes, ...]; raise `Reached`."""
    one = jax.tree.map(lambda x: x[0], payloads)
    number = self._exchanges_seen
    self._exchanges_seen += 1
    if number == self._stop:
      raise Reached(one, decode)
    if self._sums is not None and number < len(self._sums):
      return self._sums[number]
    like = jax.eval_shape(decode, jax.random.key(0), one)

    def zeros(x):
      if x.dtype == jnp.uint32:
        return jnp.zeros(x.shape, x.dtype)
      return jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32))

    return jax.tree.map(zeros, like)

  def sum(self, tree):
    """Return sums of one shard: the exchange has added up the clients'."""
    return tree

  def sum_lanes(self, tree):
    """Return the sum of integers over the clients, an exchange."""
    return self.exchange(tree, lambda key, payload: payload)

  def slots(self, lanes):
    """Return (positions of the lanes, their number)."""
    return jnp.arange(lanes), lanes

  def stacked_mean(self, payloads, weight, decoded=None, decode=None):
    """Average payloads, which are decoded where they arrive: an exchange."""
    total = self.exchange(payloads, decode or (lambda key, payload: payload))
    size = comms.nbytes_of_one(payloads)
    return self.mean(comms.LaneSum(total, comms.total_weight(weight), size))

  def announce(self, tree):
    """Return the past announcement, or add `tree` to the new ones."""
    number = self._announcements_seen
    self._announcements_seen += 1
    if number < len(self._announcements):
      return self._announcements[number]
    self.announced.append(tree)
    return tree

  def cond(self, predicate, on_true, on_false, *args):
    """Take the branch of a predicate that all sides know before the round."""
    self.asked.append(predicate)
    is_true = self._flags is None or self._flags[len(self.asked) - 1]
    return (on_true if is_true else on_false)(*args)
