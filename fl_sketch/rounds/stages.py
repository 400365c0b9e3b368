"""A round in stages: traces a protocol up to a point where messages travel.

Over messages a protocol runs in pieces: a client computes the payload of an
exchange, the server the sum, and a later message brings the clients what the
server announces. A `Stage` is one such piece. Both sides trace the protocol
from its start; the collectives of `comms` take from the stage what has already
arrived, and end the trace at the next exchange.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import contextvars

from fl_sketch.utils.types import Payload, Tree
import jax
from jax import lax
import jax.numpy as jnp


class Reached(Exception):
  """Raised to end tracing at a chosen exchange; carries the payload."""

  def __init__(
    self, payload: Payload, decode: Callable[[jax.Array, Payload], Tree]
  ):
    super().__init__()
    self.payload = payload  # of the first lane, in wire types
    self.decode = decode  # (key of a client, its payload) -> what is summed


class Stage:
  """One piece of a protocol.

  Args:
    sums: results of past exchanges; None on a client, which computes with
      zeros in their place and uses no result.
    announcements: trees that the server has announced in past stages.
    stop: number of the exchange at which the trace ends; None: the last link.
    flags: values of the predicates of `cond`; None: all True.

  Attributes:
    announced: trees that the server announces in this stage.
    asked: the predicates of `cond`.
  """

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

  def exchange(
    self, payloads: Payload, decode: Callable[[jax.Array, Payload], Tree]
  ) -> Tree:
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

  def announce(self, tree: Tree) -> Tree:
    """Return the past announcement, or add `tree` to the new ones."""
    number = self._announcements_seen
    self._announcements_seen += 1
    if number < len(self._announcements):
      return self._announcements[number]
    self.announced.append(tree)
    return tree

  def flag(self, predicate: jax.Array) -> bool:
    """Return a predicate's value, which all sides know before the round."""
    self.asked.append(predicate)
    return self._flags is None or self._flags[len(self.asked) - 1]


_STAGE: contextvars.ContextVar[Stage | None] = contextvars.ContextVar(
  'stage', default=None
)


def current() -> Stage | None:
  """Return the stage of this trace; None in a simulated round."""
  return _STAGE.get()


@contextlib.contextmanager
def inside(stage: Stage) -> Iterator[None]:
  """Make the collectives of `comms` work in a stage."""
  token = _STAGE.set(stage)
  try:
    yield
  finally:
    _STAGE.reset(token)


def announce(tree: Tree) -> Tree:
  """Mark what the server sends to clients in the middle of a round.

  Client state may depend on sums through announcements alone. In a simulated
  round this is the identity.
  """
  stage = current()
  return tree if stage is None else stage.announce(tree)


def cond(
  predicate: jax.Array,
  on_true: Callable[..., Tree],
  on_false: Callable[..., Tree],
  *args: Tree,
) -> Tree:
  """`lax.cond` whose branches may have collectives.

  The predicate must follow from what all sides know before the round.
  """
  stage = current()
  if stage is None:
    return lax.cond(predicate, on_true, on_false, *args)
  return (on_true if stage.flag(predicate) else on_false)(*args)
