"""Plays rounds over a transport: asks sites, waits, asks again, closes."""

from collections.abc import Iterable
import json
import time
from typing import Any, NamedTuple
import warnings

from fl_sketch import rounds
from fl_sketch.engines.transport import Transport
from fl_sketch.messaging import requests, wire
from fl_sketch.messaging.history import History
from fl_sketch.messaging.server import Closed, EmptyRoundError, Inbox, Server
from fl_sketch.utils import __version__
import numpy as np

_PAUSE = 1.0  # seconds before nobody is asked again


class SitesError(ConnectionError):
  """No site can be asked, or a site refuses to take part."""


class Timeouts(NamedTuple):
  """How long the server waits for replies, in seconds."""

  reply: float = 60.0
  first: float = 600.0  # of a site that has not answered yet: it compiles
  sites: float = 600.0  # until as many sites as are expected have connected
  attempts: int = 10  # of a round to which nobody answers


class _Site(NamedTuple):
  """What the server knows of a site."""

  name: str  # of the transport
  at: int  # the round of its replica
  first: int = 0  # announcements of that round that it knows
  answered: bool = False  # whether it has ever answered with a payload
  lost: bool = False  # whether it did not answer when it was asked last


class SiteRounds:
  """Plays rounds with the clients that sites of a transport are.

  Args:
    transport: of the engine.
    run: `wire.fingerprint` of the run.
    incarnation: how often the server has started.
    timeouts: of all requests.

  Attributes:
    saved: rounds of the oldest checkpoint that may be restored.
    about: client -> what it says of itself.
  """

  server: Server
  history: History

  def __init__(
    self,
    transport: Transport,
    run: bytes,
    incarnation: int = 0,
    timeouts: Timeouts = Timeouts(),  # noqa: B008, a constant
  ):
    self._transport, self._timeouts = transport, timeouts
    self.run, self.incarnation, self.saved = run, incarnation, 0
    self._sites: dict[int, _Site] = {}  # by client
    self._sent = self._received_bytes = self._messages = 0
    self.about: dict[int, dict[str, Any]] = {}

  def begin(self, server: Server, history: History):
    """Sets the server, and what it has announced, before the first round."""
    self.server, self.history = server, history

  def sentence(self, up: int, down: int) -> str:
    """Compares what was sent since this start with the bill of the run."""
    return (
      f'{self._messages} messages since this start: {self._received_bytes:,} '
      f'bytes up and {self._sent:,} down, before the engine wraps them; the '
      f'run has billed {up:,} and {down:,}.'
    )

  # Sites.

  def greet(self, least: int = 0):
    """Greets sites that are new, until at least so many are known.

    Raises:
      SitesError: they did not connect in time, one refuses, or two have the
        same client id.
    """
    end = time.monotonic() + self._timeouts.sites
    while True:
      names = {site.name for site in self._sites.values()}
      new = [name for name in self._transport.sites() if name not in names]
      hello = self._request(requests.Kind.HELLO, 0, -1)
      for name, header, _ in self._ask(dict.fromkeys(new, hello), first=True):
        self._greeted(name, header)
      if len(self._sites) >= least:
        return
      if time.monotonic() > end:
        raise SitesError(
          f'{len(self._sites)} of {least} sites have answered in '
          f'{self._timeouts.sites:g} s. Start the others, and the server again.'
        )
      time.sleep(_PAUSE)

  def _greeted(self, name, header):
    if header.kind == wire.Kind.REFUSED:
      raise SitesError(bytes(header.body).decode())
    about = json.loads(bytes(header.body))
    client = header.client
    old = self._sites.get(client)
    if old is not None and old.name in self._transport.sites():
      raise SitesError(
        f'Sites {old.name} and {name} both are client {client}; start one of '
        'them with another --client.'
      )
    if about['version'] != __version__:
      raise SitesError(
        f'Client {client} has fl_sketch {about["version"]}, the server '
        f'{__version__}; install one release.'
      )
    self.about[client] = about
    self._sites[client] = _Site(name, about['round'])

  def _request(self, kind, number, client, **fields) -> requests.Request:
    return requests.Request(
      kind, self.run, self.incarnation, number, client,
      saved=self.saved, **fields,
    )  # fmt: skip

  def _ask(self, asked: dict[str, requests.Request], first: bool = False):
    """Yields (site, header, reply); damaged replies are dropped."""
    if not asked:
      return
    encoded = {name: requests.encode(x) for name, x in asked.items()}
    self._sent += sum(map(len, encoded.values()))
    self._messages += len(encoded)
    timeout = self._timeouts.first if first else self._timeouts.reply
    for name, reply in self._transport.ask(encoded, timeout):
      self._received_bytes += len(reply)
      try:
        yield name, wire.unpack(reply), reply
      except wire.PayloadError as e:
        warnings.warn(f'Site {name}: {e}', stacklevel=2)

  # Rounds.

  def play(
    self, state: rounds.FedState, ids: np.ndarray, weight: np.ndarray
  ) -> Closed:
    """Plays the round that starts from a state; waits for late sites.

    Raises:
      SitesError: nobody answers, however often they are asked.
    """
    digest = requests.digest(state.params, state.server)
    for attempt in range(self._timeouts.attempts):
      self.greet()
      box = self.server.open(state, ids, weight)
      if self.history.open is not None:
        box.resume(self.history.open.told, self.history.open.taken)
      try:
        self._exchange_all(box, state, digest)
        closed = box.close()
        self.history.open = None
        break
      except EmptyRoundError:
        time.sleep(min(_PAUSE * 2**attempt, self._timeouts.reply))
    else:
      raise SitesError(
        f'Nobody has answered in round {int(state.round)}, asked '
        f'{self._timeouts.attempts} times. Look at the sites, and start the '
        'server again: it goes on from its checkpoint.'
      )
    self.history.add(state, closed.told, box.taken)
    return closed

  def _exchange_all(self, box: Inbox, state, digest):
    while True:
      self._exchange(box, state, digest)
      if lost := box.lost:
        box.leave_out(lost)
        if not self.server.programs.private:
          continue  # what was announced has changed
      if box.stage == box.stages - 1:
        return
      box.advance()
      if self.server.programs.private:  # before it is released
        self.history.hold(state, box.told, box.taken)

  def _exchange(self, box: Inbox, state, digest):
    """Asks the clients of an exchange; twice those that lack something."""
    lacks: dict[int, int] = {}
    for again in (False, True):
      there = lacks if again else box.unanswered
      asked = [client for client in there if client in self._sites]
      if not again:
        lost = [client for client in asked if self._sites[client].lost]
        asked = [client for client in asked if client not in lost]
      by_name = {self._sites[client].name: client for client in asked}
      request = {
        name: self._work(box, state, digest, client, lacks.get(client))
        for name, client in by_name.items()
      }
      # Beside them those that were lost are greeted: nobody waits for them.
      hello = self._request(requests.Kind.HELLO, 0, -1)
      greeted = {} if again else {self._sites[c].name: c for c in lost}
      request = dict.fromkeys(greeted, hello) | request
      first = any(not self._sites[client].answered for client in asked)
      lacks = {}
      for name, header, reply in self._ask(request, first):
        if name in greeted:
          self._back(greeted[name], header)
        elif (client := by_name.pop(name, None)) is not None:
          self._received(box, client, header, reply, lacks)
        if asked and not by_name:
          break
      for client in by_name.values():
        self._sites[client] = self._sites[client]._replace(lost=True)
      if not lacks:
        return

  def _back(self, client, header):
    site = self._sites[client]
    if header.kind == wire.Kind.JSON:
      at = json.loads(bytes(header.body))['round']
      self._sites[client] = site._replace(lost=False, at=at, first=0)

  def _work(self, box, state, digest, client, lacks):
    """The request to a client, with what it lacks of the state."""
    site, number = self._sites[client], box.round
    history = self.history
    if lacks is not None:
      parts = history.catch_up(client, lacks, state)
    elif site.at <= number:
      parts = history.catch_up(client, site.at, state, site.first)
    else:  # it is ahead: perhaps it has the state of this round
      parts = ()
    kind = requests.Kind.GO_ON if box.stage else requests.Kind.WORK
    if box.stage:
      parts = (*parts, box.announced)
    weight = box.weight_of(client)
    return self._request(
      kind, number, client, stage=box.stage, digest=digest, weight=weight,
      taken=history.taken(client, number), parts=parts,
    )  # fmt: skip

  def _received(self, box, client, header, reply, lacks):
    site = self._sites[client]
    if header.kind == wire.Kind.NEED:
      lacks[client] = header.round
    elif header.kind == wire.Kind.REFUSED:
      warnings.warn(
        f'Client {client}: {bytes(header.body).decode()}', stacklevel=2
      )
    else:
      box.receive(reply)
      self._sites[client] = site._replace(
        at=box.round, first=len(box.told), answered=True
      )

  def evaluate(self, state: rounds.FedState) -> Iterable[dict[str, float]]:
    """What each site measures of the parameters on its own samples."""
    digest = requests.digest(state.params, state.server)
    number, found = int(state.round), []
    asked: dict[int, int | None] = {
      client: None for client, site in self._sites.items() if not site.lost
    }
    for _ in range(2):
      request, lacks = {}, {}
      for client, at in asked.items():
        site = self._sites[client]
        at = site.at if at is None else at
        parts = self.history.catch_up(client, at, state, site.first)
        request[site.name] = self._request(
          requests.Kind.EVALUATE, number, client, digest=digest,
          taken=self.history.taken(client, number), parts=parts,
        )  # fmt: skip
      for _, header, _ in self._ask(request):
        if header.kind == wire.Kind.NEED:
          lacks[header.client] = header.round
        elif header.kind == wire.Kind.JSON:
          found.append(json.loads(bytes(header.body)))
          site = self._sites[header.client]
          self._sites[header.client] = site._replace(at=number, first=0)
      asked = lacks
    return found
