"""Server side of a round over messages: checks payloads, sums them, steps.

The server trusts no message, see `Verdict`. A refused message leaves the sum
unchanged, so that the round equals one of `rounds.run_round` without its
sender. Payloads are added in the order of the cohort, whenever they arrive. The
caller provides the transport.
"""

from collections.abc import Collection, Sequence
import enum
from typing import Any, NamedTuple

from fl_sketch import rounds
from fl_sketch.rounds import client_step, comms, fates
from fl_sketch.sites import requests, wire
from fl_sketch.sites.comm import zeros
from fl_sketch.sites.server import Server
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import numpy as np

_is_finite = jax.jit(client_step.all_finite)


class Verdict(enum.Enum):
  """How the server classified a message; only TAKEN payloads are summed."""

  TAKEN = 'taken'
  CORRUPT = 'corrupt'  # truncated, damaged, or of other shapes or dtypes
  OTHER_RUN = 'other_run'
  OTHER_START = 'other_start'  # asked by an earlier start of the server
  NO_PAYLOAD = 'no_payload'  # the client needs something, or refuses
  LATE = 'late'  # of a round or an exchange that is closed
  EARLY = 'early'  # of a round that is not open yet
  UNKNOWN_CLIENT = 'unknown_client'  # not selected in this round
  DUPLICATE = 'duplicate'  # the client has answered in this round already
  NOT_FINITE = 'not_finite'
  TOO_LARGE = 'too_large'


class EmptyRoundError(ValueError):
  """Nobody has answered in a round: it cannot be closed."""


class Closed(NamedTuple):
  """A round that is over."""

  state: rounds.FedState  # after it, without rows of clients
  announcements: tuple[Tree, ...]  # all that the server announced in it
  # Who took part; `outcome` is None if all that were selected did.
  cohort: rounds.Cohort
  metrics: dict[str, Any]  # as of `rounds.run_round`


class Inbox:
  """The server's side of the round that starts from a state, until `close`.

  Ids, int32[C], are as of `rounds.Cohort`, each client once; weights, f32[C],
  are 0 for clients that are not selected. Another C compiles again. Of the
  round's exchanges, `stages` in number, `stage` is open; `announcements` is
  what the server has announced so far. One thread calls `receive`.
  """

  def __init__(
    self, server: Server, state: rounds.FedState, ids: np.ndarray,
    weight: np.ndarray,
  ):  # fmt: skip
    self._server, self.round = server, int(state.round)
    self._state = comms.drop_per_client(state)
    self._ids, self._weight = np.asarray(ids), np.asarray(weight, np.float32)
    if server.programs.private:
      self._weight = np.sign(self._weight)  # more would be beyond the bound
    selected = np.flatnonzero(self._weight > 0)
    self._slot = {int(self._ids[n]): int(n) for n in selected}
    if len(self._slot) < len(selected):
      ids = self._ids[selected]
      raise ValueError(f'{ids=} must have every client once.')
    self._facts = server.programs.facts(state)
    self._shapes = server.programs.shapes(self._facts)
    self.stages = len(self._shapes)
    # Of each exchange, by slot; those of an only one leave once they are added.
    self._payloads: list[dict[int, Tree]] = [{} for _ in self._shapes]
    self._loss = np.zeros(len(self._ids), np.float32)
    flags = np.zeros((3, len(self._ids)), bool)
    self._answered, self._taken, self._rejected = flags
    self._open = True
    self._restart()

  def _restart(self):
    """Begin with the first exchange."""
    self.announcements: tuple[Tree, ...] = ()
    self._sums: tuple[Tree, ...] = ()
    self._begin(0)

  def _begin(self, stage):
    self.stage = stage
    self._total, self._next = zeros(self._shapes[stage].total), 0

  def receive(self, message: bytes) -> Verdict:
    """Take the payload of a message, or return why it is refused."""
    server = self._server
    try:
      header = wire.unpack(message)
      if header.run != server.run:
        return Verdict.OTHER_RUN
      if header.kind != wire.Kind.PAYLOAD:
        return Verdict.NO_PAYLOAD
      if header.incarnation != server.incarnation:
        return Verdict.OTHER_START
      slot = self._slot.get(header.client)
      at, now = (header.round, header.stage), (self.round, self.stage)
      if at > now:
        return Verdict.EARLY
      if header.round == self.round and slot is None:
        return Verdict.UNKNOWN_CLIENT
      like = self._shapes[min(header.stage, self.stages - 1)].payload
      sent = {'metrics': wire.NO_METRICS, 'payload': like}
      reply = wire.read(header, sent)
    except wire.PayloadError:
      return Verdict.CORRUPT
    if header.round < self.round or not self._open:
      return Verdict.LATE
    if at < now or header.client not in self.unanswered:
      return Verdict.DUPLICATE
    return self._take(slot, reply)

  @property
  def unanswered(self) -> list[int]:
    """Clients that are still to answer in the open exchange, in order."""
    if self.stage == 0:
      slots = np.flatnonzero((self._weight > 0) & ~self._answered)
    else:
      answered = self._payloads[self.stage]
      slots = [n for n in np.flatnonzero(self._taken) if n not in answered]
    return [int(self._ids[n]) for n in slots]

  @property
  def lost(self) -> list[int]:
    """Clients whose payloads count in earlier exchanges, not in this one."""
    if self.stage == 0:
      return []
    before, answered = self._payloads[self.stage - 1 : self.stage + 1]
    slots = {*np.flatnonzero(self._taken).tolist(), *before}
    return [int(self._ids[n]) for n in sorted(slots - answered.keys())]

  @property
  def taken(self) -> list[int]:
    """Clients whose payloads are taken."""
    return self._ids[self._taken].tolist()

  @property
  def announced(self) -> requests.Part:
    """What the server has announced, for a request of a later exchange."""
    sent = [self._facts.without(tree) for tree in self.announcements]
    body = wire.to_bytes(jax.tree.leaves(jax.device_get(sent)))
    return requests.Part(requests.PartKind.ANNOUNCEMENTS, 0, self.round, body)

  def weight_of(self, client: int) -> float:
    """Return the weight of a selected client."""
    return float(self._weight[self._slot[client]])

  def _take(self, slot, reply):
    """Check a payload and add it, or keep it until its turn."""
    server, payload = self._server, reply['payload']
    term, *about = self._term(slot, payload)
    finite, norm = jax.device_get(about)
    if self.stage == 0:
      self._answered[slot] = True
      self._loss[slot] = reply['metrics']['train_loss']
      finite = finite and reply['metrics']['accepted'] > 0
    too_large = server.max_norm is not None and norm > server.max_norm
    if not finite or too_large:
      self._rejected[slot] = True
      self._taken[slot] = False
      return Verdict.TOO_LARGE if finite else Verdict.NOT_FINITE
    self._taken[slot] = True
    self._payloads[self.stage][slot] = payload
    self._add_up(in_order=True, known={slot: term})
    return Verdict.TAKEN

  def _before(self, sums):
    """The first arguments of programs."""
    return self._facts, self._state, sums, self.announcements

  def _term(self, slot, payload):
    who = np.int32(self._ids[slot]), np.float32(self._weight[slot])
    args = *self._before(self._sums), payload, self._server.noise_key
    return self._server.programs.term(*args, *who)

  def _add_up(self, in_order=False, known=()):
    """Add payloads in the order of the slots; `in_order` stops at a gap.

    `known` has terms that are computed already, by slot.
    """
    payloads = self._payloads[self.stage]
    if in_order and self.stages > 1:
      return  # a client that is lost in a later exchange must leave no trace
    while self._next < len(self._ids):
      slot = self._next
      if in_order and self._weight[slot] > 0 and not self._answered[slot]:
        return
      self._next += 1
      if slot in payloads:
        payload = payloads.pop(slot) if self.stages == 1 else payloads[slot]
        term = known[slot] if slot in known else self._term(slot, payload)[0]
        self._total = jax.tree.map(jnp.add, self._total, term)

  def _finish_exchange(self):
    """Sum the open exchange, and announce what follows from it."""
    # Poisson sampling may select nobody, which a private round must not show.
    if self._slot and not (self._taken | self._rejected).any():
      raise EmptyRoundError(f'Nobody has answered in round {self.round}.')
    self._add_up()
    sums = (*self._sums, self._total)
    weight = np.where(self._taken, self._weight, 0)
    args = *self._before(sums), self._server.noise_key, self._ids, weight
    new, links, bill = self._server.programs.answer(*args)
    self._sums, self.announcements = sums, (*self.announcements, *new)
    return links, bill

  def advance(self) -> bool:
    """End an exchange that is not the last; return if anything is announced."""
    count = len(self.announcements)
    self._finish_exchange()
    self._begin(self.stage + 1)
    return len(self.announcements) > count

  def leave_out(self, clients: Sequence[int]) -> None:
    """Leave clients out of a round that they were lost in.

    Earlier exchanges are summed without them, which changes what is announced:
    the others are to be asked again. In a private round that is released: there
    the clients are absent from this exchange on.
    """
    for client in clients:
      self._taken[self._slot[client]] = False
    if self.stage == 0 or self._server.programs.private:
      return
    stage, payloads = self.stage, self._payloads
    self._restart()
    for number in range(stage):
      of_stage = payloads[number]
      for client in clients:
        of_stage.pop(self._slot[client], None)
      self.advance()
    payloads[stage].clear()

  def resume(self, bodies: Sequence[bytes], taken: Collection[int]) -> None:
    """Resume after exchanges whose announcements have been released.

    `bodies` are of all announcements, as of `History`; `taken` are the clients
    that had answered.
    """
    facts = self._facts
    while self.stage < self.stages - 1:
      like = self._shapes[self.stage].announcements
      due = bodies[len(self.announcements) :][: len(like)]
      if not like or len(due) < len(like):
        break  # nothing was released: it is asked for again
      self.announcements += tuple(
        facts.completed(wire.from_bytes(memoryview(b), facts.without(x)), x)
        for b, x in zip(due, like, strict=True)
      )
      self._sums = (*self._sums, self._total)  # no longer used
      self._begin(self.stage + 1)
      self._answered[:] = True
    slots = [self._slot[i] for i in taken if self.stage and i in self._slot]
    self._taken[slots] = True

  def close(self) -> Closed:
    """Close the round; payloads that arrive later are late.

    The state is the old one a round later if no payload was taken and the run
    is not private. EmptyRoundError: nobody has answered.
    """
    links, bill = self._finish_exchange()
    self._open, server = False, self._server
    if self._taken.any() or server.programs.private:
      new = server.programs.redo(self._facts, self._state, self.announcements)
      new = new._replace(protocol=links)
    else:
      new = self._state._replace(round=self._state.round + 1)
    selected = self._weight > 0
    missing = selected & ~(self._taken | self._rejected)
    present, outcome = selected & ~missing, None
    if missing.any():
      kinds = fates.DROPPED_OUT, fates.PARTICIPATED
      absent = fates.NOT_SELECTED
      outcome = np.select([missing, selected], kinds, absent).astype(np.int8)
    weights: Any = lambda clients: np.where(clients, self._weight, 0)
    loss, taken = {'train_loss': self._loss}, self._taken
    observed: Any = loss, weights(taken), present, taken
    observed = client_step.Observed(*observed)
    metrics = server.summarise(self._state.round, observed)
    metrics |= {'uplink_bytes': bill.up, 'downlink_bytes': bill.down}
    metrics |= {'finite': _is_finite(new)}
    cohort = rounds.Cohort(self._ids, weights(present), None, outcome=outcome)
    return Closed(new, self.announcements, cohort, metrics)
