"""Communicator of a round over messages, and what travels in it.

Over messages a protocol runs in pieces: a client computes the payload of an
exchange, the server the sum, and a later message brings the clients what the
server announces. Both sides trace the protocol from its start with a `SiteComm`
as ``comm``, which gives what has already arrived, and ends the trace at the
next exchange.
"""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

from fl_sketch.rounds import comms
from fl_sketch.utils.types import Payload, Tree
import jax
import jax.numpy as jnp


class Facts(NamedTuple):
  """Facts of a round that both sides know before it."""

  flags: tuple[bool, ...] = ()  # of `Comm.cond`
  absent: tuple[str, ...] = ()  # parts of payload and announcements not due

  def without(self, tree: Tree) -> Tree:
    """Return a payload or announcement without the parts that are not due."""
    if not self.absent or not isinstance(tree, dict):
      return tree
    return {name: x for name, x in tree.items() if name not in self.absent}

  def completed(self, tree: Tree, like: Tree) -> Tree:
    """Invert `without`: add zeros for parts that are not due."""
    if not self.absent or not isinstance(like, dict):
      return tree
    absent = {k: comms.zeros(x) for k, x in like.items() if k in self.absent}
    return {**tree, **absent}


class Exchange(NamedTuple):
  """Shapes and dtypes of one exchange of a round."""

  payload: Tree  # what a client sends
  total: Tree  # what the server adds up
  announcements: tuple[Tree, ...]  # what the server announces then


@dataclasses.dataclass
class ReachedError(Exception):
  """Raised to end tracing at a chosen exchange; carries the payload."""

  payload: Payload  # of the first lane, in wire types
  decode: comms.DecodeOne  # (key of a client, its payload) -> what is summed


class SiteComm(comms.Comm):
  """The communicator of one piece of a protocol.

  Args:
    sums: results of past exchanges; None on a client, which computes with
      zeros in their place and uses no result.
    announcements: trees that the server has announced in past exchanges.
    stop: number of the exchange at which the trace ends; None: the last link.
    flags: values of the predicates of `Comm.cond`; None: all True.

  Attributes:
    announced: trees that the server announces in this piece.
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
    """Return the sum of decoded payloads [lanes, ...]; raise ReachedError."""
    one = jax.tree.map(lambda x: x[0], payloads)
    number = self._exchanges_seen
    self._exchanges_seen += 1
    if number == self._stop:
      raise ReachedError(one, decode)
    if self._sums is not None and number < len(self._sums):
      return self._sums[number]
    term = lambda key, x: comms.weighted(decode(key, x), jnp.float32(1))
    return comms.zeros(jax.eval_shape(term, jax.random.key(0), one))

  def sum(self, tree):
    """Return sums of one shard: the exchange has added up the clients'."""
    return tree

  def sum_lanes(self, tree, bounded=lambda x: x):
    """Return the sum of integers over the clients, an exchange."""
    return self.exchange(tree, lambda key, payload: bounded(payload))

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
