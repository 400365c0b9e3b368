"""Compiled pieces of a round over messages, of both sides.

A round has one exchange or several: clients send payloads, the server sums them
and announces. `work` and `send` make a client's payloads, `term` and `answer`
sum them and make the announcements, `redo` is the server's step, which clients
do again, and `keep` is the state of a client after a round in which its payload
was taken.
"""

from collections.abc import Sequence
import functools

from fl_sketch import rounds
from fl_sketch.rounds import comms
from fl_sketch.sites.exchanges import Exchange, Facts, without
from fl_sketch.sites.pieces import Pieces, Work
from fl_sketch.utils.types import Key, Params, Tree
import jax
import jax.numpy as jnp


class Programs(Pieces):
  """The compiled functions of one algorithm.

  Args:
    make: hp -> `Algorithm`, which has a server that sums, or else ValueError.
    hp: hyperparameters.
    params: the model before the first round.
    key: key[], the root of all public keys of the run.
    schedule: see `rounds.run_round`.

  Attributes:
    start: shapes of a client's state before the first round. States of the
      server have no rows of clients, see `comms.drop_per_client`.
  """

  def __post_init__(self, params: Params):
    super().__post_init__(params)
    self._jit = functools.cache(
      lambda name, *static: jax.jit(
        functools.partial(getattr(self, name), *static)
      )
    )
    self.shapes = functools.cache(self._shapes)
    flags, due = jax.eval_shape(self._facts, *self._before(self.start))
    self._varies = bool(flags or due)
    if not self._varies:
      self.shapes(Facts())  # raises

  def check_noise(self, noise_key: Key | None):
    """Raise ValueError unless there is a noise key where it is needed."""
    if self.private != (noise_key is not None):
      raise ValueError(
        f'Give a noise_key if and only if private={self.private}.'
      )

  def _before(self, state):
    """Return the arguments of all programs that both sides know."""
    return self.hp, comms.drop_per_client(state), self.key

  def facts(self, state: rounds.FedState) -> Facts:
    """Return what both sides know of the round that starts from a state."""
    if not self._varies:
      return Facts()
    flags, due = jax.device_get(self._jit('_facts')(*self._before(state)))
    absent = (name for name, flag in due.items() if not flag)
    return Facts(tuple(map(bool, flags)), tuple(absent))

  def _shapes(self, facts: Facts) -> tuple[Exchange, ...]:
    """Return the exchanges of a round, in order."""
    before = self._before(self.start)
    who = self._noise, jnp.int32(0), jnp.float32(1)
    cohort = self._noise, jnp.zeros(1, jnp.int32), jnp.zeros(1)
    payloads = self._payloads(facts)
    exchanges, sums, announcements = [], (), ()
    for number, payload in enumerate(payloads):
      payload = without(payload, facts.absent)
      term = functools.partial(self._term, facts, number)
      args = *before, sums, announcements
      total, *_ = jax.eval_shape(term, *args, payload, *who)
      sums = (*sums, total)
      stop = None if number == len(payloads) - 1 else number + 1
      answer = functools.partial(self._answer, facts, stop)
      new, *_ = jax.eval_shape(answer, *before, sums, announcements, *cohort)
      announcements = (*announcements, *new)
      exchanges.append(Exchange(payload, total, new))
    if not announcements:
      raise ValueError(comms.NO_SERVER)
    return tuple(exchanges)

  def _payloads(self, facts: Facts) -> list[Tree]:
    """Return the shapes of what a client sends in each exchange."""
    hp, state, key = self._before(self.start)
    if self.streamed:
      return [self._payload(self.make(hp), state.params)]

    def sent(number, *before):
      return self._sent(facts, number, (), *self._as_nobody(*before))

    payloads: list[Tree] = []
    while True:
      payload = jax.eval_shape(
        functools.partial(sent, len(payloads)), hp, state, key
      )
      if payload is None:
        return payloads
      payloads.append(payload)

  def work(self, state, batches, noise_key, client_id, weight) -> Work:
    """Do a client's local work on batches, leaves [local_steps, batch, ...]."""
    args = self.hp, state, self.key, batches, noise_key, client_id, weight
    return self._jit('_work')(*args)

  def send(self, facts, number, state, announcements, payload, *who) -> Tree:
    """Return what a client sends in an exchange, of its encoder's payload.

    `who` are the client's noise key, its id and its weight.
    """
    if self.streamed:
      return without(payload, facts.absent)
    args = self.hp, state, self.key, tuple(announcements), payload
    return self._jit('_send', facts, number)(*args, *who)

  def keep(self, facts, state, announcements, payload, *who):
    """Return the protocol's state of a client that took part in a round."""
    if not comms.has_client_state(state.protocol):
      return state.protocol
    args = self.hp, state, self.key, tuple(announcements), payload
    return self._jit('_keep', facts)(*args, *who)

  def redo(self, facts, state, announcements) -> rounds.FedState:
    """Return the state after a round, without rows, from its announcements.

    Both sides compile the same program: on machines of one kind its bits are
    equal. What the protocol keeps on the server alone is not in the result.
    """
    return self._jit('_redo', facts)(*self._before(state), tuple(announcements))

  def term(self, facts, number, state, sums, announcements, payload, *who):
    """(weight x decoded payload, whether it is finite, its Euclidean norm).

    `who` are the server's noise key, the client's id and its weight.
    """
    args = *self._before(state), tuple(sums), tuple(announcements)
    return self._jit('_term', facts, number)(*args, payload, *who)

  def answer(
    self, facts, number, state, sums: Sequence[Tree], announcements, *cohort
  ):
    """(what the server announces after an exchange, protocol state, bill).

    The last two are None before the last exchange. `cohort` are the server's
    noise key, ids and weights; a client that did not send has weight 0.
    """
    stop = None if number == len(self.shapes(facts)) - 1 else number + 1
    args = *self._before(state), tuple(sums), tuple(announcements)
    return self._jit('_answer', facts, stop)(*args, *cohort)
