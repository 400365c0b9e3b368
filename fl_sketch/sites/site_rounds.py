"""Play rounds over a transport: ask sites, wait, ask again, close."""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import json
import time
from typing import Any, NamedTuple
import warnings

from fl_sketch import rounds
from fl_sketch.sites import replicas, wire
from fl_sketch.sites.history import History
from fl_sketch.sites.inbox import Closed, EmptyRoundError, Inbox, Verdict
from fl_sketch.sites.server import Server
from fl_sketch.sites.transport import Transport
from fl_sketch.sites.wire import ReplyKind, RequestKind
from fl_sketch.utils import __version__, fields
import numpy as np

_PAUSE = 1.0  # seconds before nobody is asked again
_GREETING = 15.0  # seconds for a greeting, at most
_MOST = 2**31  # samples of a site
_REJECTED = Verdict.NOT_FINITE, Verdict.TOO_LARGE
_HIDDEN = (
  'A site that was asked in a round has refused, or sent what cannot be read. '
  'This run hides which one: the log of the site says why.'
)


class SitesError(ConnectionError):
  """No site can be asked, or a site refuses to take part."""


class Timeouts(NamedTuple):
  """Seconds that the server waits for replies."""

  reply: float = 60.0
  first: float = 600.0  # of a site that has not answered yet: it compiles
  sites: float = 600.0  # until as many sites as are expected have connected
  attempts: int = 10  # of a round to which nobody answers


class _Site(NamedTuple):
  """A site, as the server knows it."""

  name: str  # of the transport
  at: int  # the round of its replica
  first: int = 0  # announcements of that round that it knows
  answered: bool = False  # whether it has ever answered with a payload
  lost: bool = False  # whether it did not answer when it was asked last


@dataclasses.dataclass(eq=False)
class SiteRounds:
  """Rounds with the clients that sites of a transport are.

  `server` and `history`, what it has announced, are set before the first round.
  """

  transport: Transport
  run: bytes  # as of `Server`
  population: int
  incarnation: int = 0  # as of `Server`
  timeouts: Timeouts = Timeouts()  # noqa: RUF009, a constant
  hides_clients: bool = False  # no message names the clients of a round

  def __post_init__(self):
    self.server: Server
    self.history: History
    self.saved = 0  # rounds of the last checkpoint; sites drop earlier replicas
    self.about: dict[int, dict[str, Any]] = {}  # what clients say of themselves
    self._sites: dict[int, _Site] = {}  # by client
    self._why = ''  # a site has refused

  def greet(self, wait: bool = False):
    """Greet the sites that are connected; `wait`: until all clients are.

    SitesError: with `wait` one is late, refuses, or is another's client.
    """
    end = time.monotonic() + self.timeouts.sites
    everybody = set(range(self.population if wait else 0))
    patience = min(self.timeouts.reply, _GREETING)
    while True:
      for name, header, _ in self._ask(self._greetings(), patience):
        self._add_site(name, header, strict=wait)
        if everybody and everybody <= self._sites.keys():
          return
      if not wait:
        return
      if time.monotonic() > end:
        missing = sorted(everybody - self._sites.keys())
        raise SitesError(
          f'Clients {missing} have not answered in '
          f'{self.timeouts.sites:g} s. Start their sites, then the server.'
        )
      time.sleep(_PAUSE)

  def _greetings(self) -> dict[str, wire.Request]:
    """Greetings of the sites that are new, or were lost."""
    known = {site.name for site in self._sites.values() if not site.lost}
    new = [name for name in self.transport.sites() if name not in known]
    # Of the same bytes in every round, so that a transport sends it once.
    head = RequestKind.HELLO, self.run, self.incarnation, 0, -1
    return dict.fromkeys(new, wire.Request(*head))

  def _add_site(self, name, header, strict=False):
    """Add a site to the run; `strict` ends the run with what is wrong."""
    client, about = header.client, _json(header)
    old, why = self._sites.get(client), None
    if header.kind == ReplyKind.REFUSED:
      why = _text(header)
    elif not _is_greeting(about) or client not in range(self.population):
      why = f'Site {name} sends no valid greeting: {fields.shown(about)}.'
    elif about['version'] != __version__:
      why = (
        f'Client {client} has fl_sketch {about["version"]}, the server '
        f'{__version__}; install one release.'
      )
    elif old is not None and old.name != name and not old.lost:
      why = (
        f'Sites {old.name} and {name} both are client {client}; start one of '
        'them with another --client.'
      )
    if why is None:
      self.about[client] = about
      # Who has compiled before may be asked with the shorter timeout.
      compiled = old is not None and old.answered
      self._sites[client] = _Site(name, about['round'], answered=compiled)
    elif strict:
      raise SitesError(why)
    else:
      self._warn(why)

  def _warn(self, why, of_round=False):
    why = _HIDDEN if of_round and self.hides_clients else why
    self._why = f' The last of them says: {why}'
    warnings.warn(why, stacklevel=2)

  def _warn_of(self, client: int, verdict: Verdict):
    """Name a client whose payload is not counted, if the run shows clients."""
    if verdict in _REJECTED and not self.hides_clients:
      self._warn(f'Client {client} is left out: {verdict.value}.')

  def _ask(self, asked: dict[str, wire.Request], timeout: float):
    """Yield (site, header, reply); damaged replies are dropped."""
    if not asked:
      return
    encoded = {name: wire.encode_request(x) for name, x in asked.items()}
    for name, reply in self.transport.ask(encoded, timeout):
      try:
        yield name, wire.decode_reply(reply), reply
      except wire.PayloadError as e:
        self._warn(f'Site {name}: {e}', of_round=True)

  def _collect(
    self, clients: Iterable[int],
    make: Callable[[int, int | None], wire.Request],
  ) -> Iterator[tuple[int, wire.Reply, bytes]]:  # fmt: skip
    """Ask clients; yield (client, header, reply) as they come.

    `make` is (client, round of its replica or None) -> its request: those that
    lack something are asked again. Sites that are lost or new are greeted
    beside them, and nobody waits for those.
    """
    lacks: dict[int, int | None] = dict.fromkeys(clients)
    for _ in range(2):
      connected = {i: self._sites[i] for i in lacks if i in self._sites}
      asked = {i: site for i, site in connected.items() if not site.lost}
      waiting = {site.name: i for i, site in asked.items()}
      if not waiting:
        return
      wanted = {site.name: make(i, lacks[i]) for i, site in asked.items()}
      new = any(not site.answered for site in asked.values())
      timeout, lacks = self.timeouts.first if new else self.timeouts.reply, {}
      for name, header, reply in self._ask(self._greetings() | wanted, timeout):
        client = waiting.pop(name, None)
        if client is None:
          self._add_site(name, header)
        elif header.client != client:
          text = f'Site {name} answers as client {header.client}.'
          self._warn(text, of_round=True)
        elif header.kind == ReplyKind.NEED:
          lacks[client] = header.round
        elif header.kind == ReplyKind.REFUSED:
          self._warn(_text(header), of_round=True)
        else:
          yield client, header, reply
        if not waiting:
          break
      for client in waiting.values():
        self._sites[client] = self._sites[client]._replace(lost=True)

  def play(
    self, state: rounds.FedState, ids: np.ndarray, weight: np.ndarray
  ) -> Closed:
    """Play the round that starts from a state; SitesError if nobody answers."""
    closed_by = self.history.closed_by(state)
    if closed_by is not None:  # with other clients it would be another sum
      weight = np.where(np.isin(ids, [*closed_by]), weight, 0)
    for attempt in range(self.timeouts.attempts):
      box = Inbox(self.server, state, ids, weight)
      if self.history.open is not None:
        box.resume(self.history.open.announcements, self.history.open.taken)
      try:
        self._exchange_all(box, state)
        if closed_by not in (None, {*box.taken}):
          raise EmptyRoundError('Clients of a sum that was released lack.')
        closed = box.close()
      except EmptyRoundError:
        time.sleep(min(_PAUSE * 2**attempt, self.timeouts.reply))
        self.greet()
        continue
      self.history.add(state, closed.announcements, box.taken)
      return closed
    who = 'its clients'
    if not self.hides_clients:
      who = f'clients {ids[weight > 0].tolist()}'
    some = 'None' if closed_by is None else 'Not all'
    raise SitesError(
      f'{some} of {who} has answered in round {int(state.round)}; start their '
      f'sites, then the server.{self._why}'
    )

  def _exchange_all(self, box: Inbox, state):
    private = self.server.programs.private
    draft = self._draft(state, RequestKind.WORK)

    def work(client, lacks):
      request = draft._replace(weight=box.weights[client])
      if box.stage:
        more = {'stage': box.stage, 'parts': (box.announced,)}
        request = request._replace(kind=RequestKind.GO_ON, **more)
      return self._address(request, client, lacks, state)

    while True:
      for client, _, reply in self._collect(box.unanswered, work):
        self._warn_of(client, box.receive(reply))
        self._note_replica(client, box.round, len(box.announcements))
      if lost := box.lost:
        box.leave_out(lost)
        if not private:
          continue  # what was announced has changed
      if box.stage == box.stages - 1:
        return
      if box.advance() and private:  # on the disk before it is released
        self.history.add(state, box.announcements, box.taken, is_open=True)

  def _draft(self, state, kind) -> wire.Request:
    """Begin a request about a state."""
    head = kind, self.run, self.incarnation, int(state.round), -1
    digest = replicas.digest(state.params, state.server)
    return wire.Request(*head, digest=digest, saved=self.saved)

  def _address(self, request, client, lacks, state) -> wire.Request:
    """Address a request to a client, with what that lacks of the state."""
    site, number, history = self._sites[client], request.round, self.history
    at, first = (site.at, site.first) if lacks is None else (lacks, 0)
    parts = request.parts
    if at <= number:  # one that is ahead may still have this state
      parts = (*history.catch_up(client, at, state, first), *parts)
    taken = history.taken(client, number)
    return request._replace(client=client, taken=taken, parts=parts)

  def _note_replica(self, client, number, first=0):
    """Record the round and announcements that a client now knows."""
    name = self._sites[client].name
    self._sites[client] = _Site(name, number, first, answered=True)

  def evaluate(self, state: rounds.FedState) -> list[dict[str, float]]:
    """Return what each site measures of the parameters on its own samples."""
    draft, replies = self._draft(state, RequestKind.EVALUATE), []

    def ask(client, lacks):
      return self._address(draft, client, lacks, state)

    able = [i for i in self._sites if self.about[i].get('evaluates')]
    for client, header, _ in self._collect(able, ask):
      replies.append(_json(header))
      self._note_replica(client, int(state.round))
    return replies


def _text(header) -> str:
  text = bytes(header.body).decode(errors='replace')
  return ''.join(filter(str.isprintable, text))


def _is_greeting(about: dict[str, Any]) -> bool:
  number, samples = about.get('round', -2), about.get('samples', 1)
  whole = type(number) is int and type(samples) is int
  return whole and 'version' in about and -1 <= number < _MOST > samples > 0


def _json(header) -> dict[str, Any]:
  """Return what a site says of itself; nothing if it is damaged."""
  try:
    content = json.loads(bytes(header.body))
  except (ValueError, RecursionError):
    return {}
  return content if isinstance(content, dict) else {}
