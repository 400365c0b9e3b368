"""A round in stages: traces a protocol up to a point where messages travel.

Over messages a protocol runs in pieces: the payload of an exchange is computed
on a client, the sum on the server, and what the server announces reaches the
clients with a later message. A `Stage` is one such piece. Both sides trace the
whole protocol; the collectives of `comms` take from the stage what has arrived
already, and end the trace at the exchange that comes next.
"""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import contextvars
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp

Tree = Any


class Reached(Exception):
  """The trace has come to the exchange at which it stops."""

  def __init__(self, payload: Tree, decode: Callable[[jax.Array, Tree], Tree]):
    super().__init__()
    self.payload = payload  # of the first lane, in wire types
    self.decode = decode  # (key of a client, its payload) -> what is summed


class Stage:
  """One piece of a protocol.

  Args:
    sums: of the exchanges that are over; None on a client, which knows none:
      what it computes of them is not used.
    told: what the server has announced.
    stop: number of the exchange at which the trace ends; None is the last link.
    flags: values of the predicates of `cond`; None collects them in `asked`.

  Attributes:
    announced: what the server announces in this stage, after `told`.
  """

  def __init__(
    self,
    sums: Sequence[Tree] | None = (),
    told: Sequence[Tree] = (),
    stop: int | None = None,
    flags: Sequence[bool] | None = (),
  ):
    self._sums, self._told, self._stop, self._flags = sums, told, stop, flags
    self._exchanges = self._announcements = 0
    self.announced: list[Tree] = []
    self.asked: list[jax.Array] = []

  def exchange(
    self, payloads: Tree, decode: Callable[[jax.Array, Tree], Tree]
  ) -> Tree:
    """The sum of decoded payloads, leaves [lanes, ...], or the end."""
    number, one = self._exchanges, jax.tree.map(lambda x: x[0], payloads)
    self._exchanges += 1
    if number == self._stop:
      raise Reached(one, decode)
    if self._sums is not None and number < len(self._sums):
      return self._sums[number]
    like = jax.eval_shape(decode, jax.random.key(0), one)
    wide = lambda x: jnp.promote_types(x.dtype, jnp.float32)
    kept = lambda x: x.dtype if x.dtype == jnp.uint32 else wide(x)
    return jax.tree.map(lambda x: jnp.zeros(x.shape, kept(x)), like)

  def announce(self, tree: Tree) -> Tree:
    """What the server has announced here; on the server, what it does now."""
    number = self._announcements
    self._announcements += 1
    if number < len(self._told):
      return self._told[number]
    self.announced.append(tree)
    return tree

  def flag(self, predicate: jax.Array) -> bool:
    """The value of a predicate that both sides know before the round."""
    self.asked.append(predicate)
    return self._flags is None or self._flags[len(self.asked) - 1]


_STAGE: contextvars.ContextVar[Stage | None] = contextvars.ContextVar(
  'stage', default=None
)


def current() -> Stage | None:
  """The stage of this trace; None in a simulated round."""
  return _STAGE.get()


@contextlib.contextmanager
def inside(stage: Stage) -> Iterator[None]:
  """Lets the collectives of `comms` work in a stage."""
  token = _STAGE.set(stage)
  try:
    yield
  finally:
    _STAGE.reset(token)


def announce(tree: Tree) -> Tree:
  """Marks what the server sends to the clients, in the middle of a round.

  What a protocol keeps on clients may depend on sums by announcements alone. In
  a simulated round it is the identity.
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
  if (stage := current()) is None:
    return lax.cond(predicate, on_true, on_false, *args)
  return (on_true if stage.flag(predicate) else on_false)(*args)
