"""Client side of rounds over messages: a request comes in, a reply goes out.

A client holds a replica of the server's state and catches up by what the server
has announced, or takes the state. It keeps replicas until the server has saved
a later one: for a server that was restored it returns to that round's replica.
"""

from collections.abc import Callable
import dataclasses
import json
import logging
import pathlib
from typing import Any, NamedTuple
import warnings

from fl_sketch import rounds
from fl_sketch.rounds import comms
from fl_sketch.sites import replicas, wire
from fl_sketch.sites.answers import Answers
from fl_sketch.sites.programs import Programs, Work
from fl_sketch.sites.replicas import Replica, Store
from fl_sketch.sites.wire import PartKind, ReplyKind, RequestKind
from fl_sketch.utils import __version__
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import numpy as np

_LOG = logging.getLogger(__name__)


class Answer(NamedTuple):
  """The result of a client's work in a round."""

  round: int
  digest: bytes  # of the state from which the round started
  work: Work
  announcements: tuple[Tree, ...] = ()  # of the server, in this round


class _NeedError(Exception):
  """What was announced in a round is missing; -1: no announcement helps."""


class RefusedError(ValueError):
  """A request that this client does not answer; the server reads why."""


@dataclasses.dataclass(eq=False)
class Client:
  """A client of a run; `handle` answers requests."""

  programs: Programs  # of the run's algorithm
  params: dataclasses.InitVar[Params]  # the model before the first round
  run: bytes  # the run's `sealed.fingerprint`
  id: int  # the client's number, from 0
  # Round -> this client's batches, leaves [local_steps, batch, ...].
  batches: Callable[[int], Tree]
  _: dataclasses.KW_ONLY
  # key[], root of this client's secret noise; of a private run only.
  noise_key: jax.Array | None = None
  send_loss: bool = True  # whether the server gets the training loss
  # Parameters -> sums of metrics on the client's own samples.
  evaluate: Callable[[Params], dict[str, float]] | None = None
  samples: int = 1  # how many it holds
  tells_samples: bool = True  # whether it tells the server that number
  folder: dataclasses.InitVar[pathlib.Path | None] = None  # of the replicas
  # What a private client has answered.
  answers: Answers = dataclasses.field(default_factory=Answers)
  max_rounds: int | None = None  # from this round on it refuses

  def __post_init__(self, params, folder):
    self.programs.check_noise(self.noise_key)
    self.about: dict[str, Any] = {
      'version': __version__, 'client': self.id,
      'evaluates': self.evaluate is not None,
    }  # fmt: skip
    if self.tells_samples:
      self.about['samples'] = self.samples
    self._answer: Answer | None = None
    self._incarnation, self._last_asked = 0, -1
    self._replicas = {0: Replica.of(self.programs.first(params))}
    self._store = Store(folder, self.run, self.id)
    for number, replica, incarnation in self._store.load(self.programs.start):
      self._last_asked = number
      if replica is not None:
        self._replicas[number] = replica
        self._incarnation = max(self._incarnation, incarnation)
    self._last_asked = max(self._last_asked, self.answers.round)

  def handle(self, message: bytes) -> bytes:
    """Answer a request; the reply to a bad one says why."""
    request = wire.Request(RequestKind.HELLO, self.run, 0, 0, self.id)
    try:
      request = wire.decode_request(message)
      self._check(request)
      kind, payload = self._reply(request)
    except _NeedError as e:
      kind, payload = ReplyKind.NEED, b''
      request = request._replace(round=e.args[0])
    except (wire.PayloadError, RefusedError, OSError) as e:  # a full disk
      _LOG.warning('A request is refused: %s', e)
      kind, payload = ReplyKind.REFUSED, str(e).encode()
    return wire.encode_reply(
      payload, kind=kind, run=self.run, round_index=request.round,
      client_id=self.id, incarnation=request.incarnation, stage=request.stage,
    )  # fmt: skip

  def _check(self, request):
    if request.run != self.run:
      raise RefusedError(
        f'Client {self.id} has another config or version of fl_sketch than the '
        'server; start both with the same.'
      )
    if request.kind != RequestKind.HELLO and request.client != self.id:
      raise RefusedError(f'This is client {self.id}, not {request.client}.')
    # A start that says hello may not come to a round.
    if request.kind == RequestKind.HELLO:
      return
    if request.round < 0:
      raise RefusedError(f'{request.round=} is negative.')
    if request.incarnation < self._incarnation:
      raise RefusedError(
        f'A server of incarnation={self._incarnation} has asked since, this is '
        f'{request.incarnation}; for a new workdir give sites new folders.'
      )
    if self.max_rounds is not None and request.round >= self.max_rounds:
      raise RefusedError(
        f'Client {self.id} has rounds={self.max_rounds}, the server asks for '
        f'round {request.round}; start both with the same config.'
      )
    self._incarnation = request.incarnation

  def _reply(self, request) -> tuple[ReplyKind, Any]:
    if request.kind == RequestKind.HELLO:
      about = self.about | {'round': max(self._replicas)}
      return ReplyKind.JSON, json.dumps(about).encode()
    replica = self._replica_for(request)
    if request.kind == RequestKind.EVALUATE:
      evaluate = self.evaluate or (lambda params: {})
      metrics = evaluate(replica.state.params)
      return ReplyKind.JSON, json.dumps(metrics).encode()
    answer = self._work_once(replica, request.weight)
    facts = self.programs.facts(replica.state)
    if request.stage >= len(self.programs.shapes(facts)):
      raise RefusedError(f'Round {request.round} has no {request.stage=}.')
    if request.stage:
      announcements = self._announcements(request, replica.state, answer)
      self._answer = answer = answer._replace(announcements=announcements)
    payload = self.programs.send(
      facts, request.stage, replica.state, answer.announcements,
      answer.work.payload, *self._who(request.weight),
    )  # fmt: skip
    metrics = answer.work.metrics if self.send_loss else wire.NO_METRICS
    sent = {'metrics': metrics, 'payload': payload}
    asked = request.round, request.stage
    if self.programs.private and not self.answers.allows(
      *asked, wire.to_bytes(sent)
    ):
      raise RefusedError(
        f'Client {self.id} has answered {request.stage=} of private round '
        f'{request.round} otherwise: it would be released twice.'
      )
    return ReplyKind.PAYLOAD, sent

  def _who(self, weight):
    return self.noise_key, np.int32(self.id), np.float32(weight)

  def _work_once(self, replica: Replica, weight: float = 1.0) -> Answer:
    """Return the answer in the round that starts from a replica, made once."""
    number, answer = int(replica.state.round), self._answer
    if answer is not None and (number, replica.digest) == answer[:2]:
      return answer
    args = replica.state, self.batches(number), *self._who(weight)
    work = self.programs.work(*args)
    if jax.local_device_count() > 1:  # to one, to which nothing is committed
      work = jax.tree.map(jnp.asarray, jax.device_get(work))
    self._answer = Answer(number, replica.digest, work)
    return self._answer

  def _replica_for(self, request) -> Replica:
    """Return the replica from which a round starts; drop later ones."""
    number = request.round
    replica = self._replicas.get(number)
    same = replica is not None and replica.digest == request.digest
    if self.programs.private and self._last_asked >= number + same:
      raise RefusedError(
        f'Client {self.id} has answered in round {self._last_asked} of this '
        f'private run: round {number} would be released twice; restore the '
        'newest checkpoint of the server.'
      )
    if self.programs.private and request.taken > self._last_asked:
      raise RefusedError(
        f'Client {self.id} has lost what it released in round {request.taken} '
        'of this private run; restore its folder.'
      )
    if replica is None or not same:
      replica = self._catch_up(request)
    earlier = {n: x for n, x in self._replicas.items() if n < number}
    oldest = max((n for n in earlier if n <= request.saved), default=0)
    self._replicas = {n: x for n, x in earlier.items() if n >= oldest}
    self._replicas[number] = replica
    if not (same and self._last_asked == number):
      self._store.save(self._replicas, number, self._incarnation)
    self._last_asked = number
    return replica

  def _catch_up(self, request) -> Replica:
    """Build the replica of a round from what the request brings."""
    states = [x for x in request.parts if x.kind == PartKind.STATE]
    if states:
      replica = self._from_state(request, states[0])
    else:
      earlier = (n for n in self._replicas if n <= request.round)
      number = max(earlier, default=-1)
      if number < 0:
        raise _NeedError(-1)
      if request.taken > number:
        self._warn_of_loss(request.taken)
      replica = self._replicas[number]
      for _ in range(number, request.round):
        replica = self._next_replica(request, replica)
    if replica.digest != request.digest:
      raise _NeedError(-1)
    return replica

  def _next_replica(self, request, replica: Replica) -> Replica:
    """Return the replica after the round that starts from this one."""
    number = int(replica.state.round)
    # What it sent in a round whose replica it has lost cannot be made again.
    took_part = request.taken == number and number in self._replicas
    answer = self._work_once(replica) if took_part else None
    announcements = self._announcements(request, replica.state, answer)
    facts = self.programs.facts(replica.state)
    new = self.programs.redo(facts, replica.state, announcements)
    new = comms.with_per_client(new, replica.state)
    if answer is None:
      return Replica.of(new, replica.taken)
    rest = replica.state, announcements, answer.work.payload, *self._who(1.0)
    links = self.programs.keep(facts, *rest)
    links = comms.with_per_client(new.protocol, links)
    new = new._replace(encode=answer.work.rows, protocol=links)
    return Replica.of(new, number)

  def _announcements(self, request, state, answer) -> tuple[Tree, ...]:
    """Return what was announced in the round that starts from a state."""
    number = int(state.round)
    of_round = PartKind.ANNOUNCEMENTS, number
    parts = (x for x in request.parts if (x.kind, x.round) == of_round)
    part = next(parts, None)
    earlier = () if answer is None else answer.announcements
    if part is None or part.first > len(earlier):
      raise _NeedError(number)
    facts = self.programs.facts(state)
    exchanges = self.programs.shapes(facts)
    if number == request.round:  # what comes before this exchange
      exchanges = exchanges[: request.stage]
    like = [tree for x in exchanges for tree in x.announcements][part.first :]
    trees = wire.from_bytes(part.body, [facts.without(x) for x in like])
    new = map(facts.completed, trees, like)
    return (*earlier[: part.first], *new)

  def _from_state(self, request, part) -> Replica:
    """Return the server's state with the client's own rows."""
    like = replicas.replicated(self.programs.start)
    params, protocol, server = wire.from_bytes(part.body, like)
    rows = self._rows(request)
    protocol = comms.with_per_client(protocol, rows.protocol)
    number = jnp.int32(request.round)
    state = rounds.FedState(number, params, rows.encode, protocol, server)
    return Replica.of(state, request.taken)

  def _rows(self, request) -> rounds.FedState:
    """Return a state with the client's rows after its last taken round."""
    last = request.taken
    for replica in self._replicas.values():
      if replica.taken == last:
        return replica.state
    if last in self._replicas:
      replica = self._replicas[last]
      if comms.client_rows(replica.state.protocol):
        return self._next_replica(request, replica).state
      return replica.state._replace(encode=self._work_once(replica).work.rows)
    self._warn_of_loss(last)
    return self.programs.first(self._replicas[min(self._replicas)].state.params)

  def _warn_of_loss(self, number: int):
    if comms.client_rows(self.programs.start):
      said = f'Client {self.id} has lost its state after round {number}'
      warnings.warn(f'{said}: it begins as a new client.', stacklevel=2)
