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
from fl_sketch.sites import wire
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
    selected = self._weight > 0
    pairs = self._ids[selected].tolist(), self._weight[selected].tolist()
    self.weights = dict(zip(*pairs, strict=True))  # by selected client
    if len(self.weights) < selected.sum():
      raise ValueError(f'ids={pairs[0]} must have every client once.')
    self._facts = server.programs.facts(state)
    self._shapes = server.programs.shapes(self._facts)
    self.stages = len(self._shapes)
    # By exchange and client; of an only one they leave once they are added.
    self._payloads: list[dict[int, Tree]] = [{} for _ in self._shapes]
    self._losses: dict[int, float] = {}
    self._answered: set[int] = set()
    self._taken: set[int] = set()
    self._rejected: set[int] = set()
    self._open = True
    self._restart()

  def _restart(self):
    """Begin with the first exchange."""
    self.announcements: tuple[Tree, ...] = ()
    self._sums: tuple[Tree, ...] = ()
    self._begin(0)

  def _begin(self, stage):
    self.stage = stage
    self._total, self._added = comms.zeros(self._shapes[stage].total), 0

  def receive(self, message: bytes) -> Verdict:
    """Take the payload of a message, or return why it is refused."""
    server = self._server
    try:
      header = wire.decode_reply(message)
      if header.run != server.run:
        return Verdict.OTHER_RUN
      if header.kind != wire.ReplyKind.PAYLOAD:
        return Verdict.NO_PAYLOAD
      if header.incarnation != server.incarnation:
        return Verdict.OTHER_START
      at, now = (header.round, header.stage), (self.round, self.stage)
      if at > now:
        return Verdict.EARLY
      if header.round == self.round and header.client not in self.weights:
        return Verdict.UNKNOWN_CLIENT
      like = self._shapes[min(header.stage, self.stages - 1)].payload
      sent = {'metrics': wire.NO_METRICS, 'payload': like}
      reply = wire.read_payload(header, sent)
    except wire.PayloadError:
      return Verdict.CORRUPT
    if header.round < self.round or not self._open:
      return Verdict.LATE
    if at < now or header.client not in self.unanswered:
      return Verdict.DUPLICATE
    return self._take(header.client, reply)

  @property
  def unanswered(self) -> list[int]:
    """Clients that are still to answer in the open exchange, in order."""
    if self.stage == 0:
      return [i for i in self.weights if i not in self._answered]
    return [i for i in self.taken if i not in self._payloads[self.stage]]

  @property
  def lost(self) -> list[int]:
    """Clients whose payloads count in earlier exchanges, not in this one."""
    if self.stage == 0:
      return []
    before, answered = self._payloads[self.stage - 1 : self.stage + 1]
    return sorted((self._taken | before.keys()) - answered.keys())

  @property
  def taken(self) -> list[int]:
    """Clients whose payloads are taken, in order."""
    return [i for i in self.weights if i in self._taken]

  @property
  def announced(self) -> wire.Part:
    """What the server has announced, for a request of a later exchange."""
    sent = [self._facts.without(tree) for tree in self.announcements]
    kind, body = wire.PartKind.ANNOUNCEMENTS, wire.to_bytes(sent)
    return wire.Part(kind, 0, self.round, body)

  def _take(self, client, reply):
    """Check a payload and add it, or keep it until its turn."""
    max_norm, payload = self._server.max_norm, reply['payload']
    term, *about = self._term(client, payload)
    finite, norm = jax.device_get(about)
    if self.stage == 0:
      self._answered.add(client)
      accepted, loss = (reply['metrics'][k] for k in ('accepted', 'train_loss'))
      # Whom a private run leaves out must not depend on what they hold.
      sound = self._server.programs.private or np.isfinite(loss)
      finite = finite and accepted > 0 and sound
      self._losses[client] = loss if finite else 0
    if not finite or (max_norm is not None and norm > max_norm):
      self._rejected.add(client)
      self._taken.discard(client)
      return Verdict.TOO_LARGE if finite else Verdict.NOT_FINITE
    self._taken.add(client)
    self._payloads[self.stage][client] = payload
    self._add_up(in_order=True, known={client: term})
    return Verdict.TAKEN

  def _arguments(self, sums):
    """The first arguments of programs."""
    return self._facts, self._state, sums, self.announcements

  def _term(self, client, payload):
    who = np.int32(client), np.float32(self.weights[client])
    args = *self._arguments(self._sums), payload, self._server.noise_key
    return self._server.programs.term(*args, *who)

  def _add_up(self, in_order=False, known=()):
    """Add payloads in the order of clients; `in_order` stops at a gap.

    `known` has terms that are computed already, by client.
    """
    payloads = self._payloads[self.stage]
    if in_order and self.stages > 1:
      return  # a client that is lost in a later exchange must leave no trace
    for client in [*self.weights][self._added :]:
      if in_order and client not in self._answered:
        return
      self._added += 1
      if client in payloads:
        payload = payloads.pop(client) if self.stages == 1 else payloads[client]
        if client not in known:
          known = {client: self._term(client, payload)[0]}
        self._total = jax.tree.map(jnp.add, self._total, known[client])

  def _finish_exchange(self):
    """Sum the open exchange, and announce what follows from it."""
    # Poisson sampling may select nobody, which a private round must not show.
    if self.weights and not self._taken | self._rejected:
      raise EmptyRoundError(f'Nobody has answered in round {self.round}.')
    self._add_up()
    sums = (*self._sums, self._total)
    cohort = self._ids, self._weights_of(self._taken)
    args = *self._arguments(sums), self._server.noise_key, *cohort
    new, links, bill = self._server.programs.answer(*args)
    self._sums, self.announcements = sums, (*self.announcements, *new)
    return links, bill

  def _weights_of(self, clients):
    return np.where(np.isin(self._ids, [*clients]), self._weight, 0)

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
    self._taken -= {*clients}
    if self.stage == 0 or self._server.programs.private:
      return
    stage, payloads = self.stage, self._payloads
    self._restart()
    for number in range(stage):
      for client in clients:
        payloads[number].pop(client, None)
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
      self._answered = {*self.weights}
    if self.stage:
      self._taken |= self.weights.keys() & taken

  def close(self) -> Closed:
    """Close the round; payloads that arrive later are late.

    The state is the old one a round later if no payload was taken and the run
    is not private. EmptyRoundError: nobody has answered.
    """
    links, bill = self._finish_exchange()
    self._open, server = False, self._server
    if self._taken or server.programs.private:
      new = server.programs.redo(self._facts, self._state, self.announcements)
      new = new._replace(protocol=links)
    else:
      new = self._state._replace(round=self._state.round + 1)
    weight = self._weights_of(self._taken | self._rejected)
    present, selected, outcome = weight > 0, self._weight > 0, None
    if (selected != present).any():
      kinds = fates.PARTICIPATED, fates.DROPPED_OUT
      absent = fates.NOT_SELECTED
      outcome = np.select([present, selected], kinds, absent).astype(np.int8)
    taken = self._weights_of(self._taken)
    losses = [self._losses.get(i, 0) for i in self._ids.tolist()]
    loss: Any = {'train_loss': np.array(losses, np.float32)}
    of_clients: Any = loss, taken, present, taken > 0
    observed = client_step.Observed(*of_clients)
    metrics = server.summarise(self._state.round, observed)
    metrics |= {'uplink_bytes': bill.up, 'downlink_bytes': bill.down}
    metrics |= {'finite': _is_finite(new)}
    cohort = rounds.Cohort(self._ids, weight, None, outcome=outcome)
    return Closed(new, self.announcements, cohort, metrics)
