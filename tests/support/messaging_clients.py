"""Runs over messages in one process, and messages that are forged."""

import functools

import cases
from fl_sketch.rounds import comms
from fl_sketch.sites import (
  client,
  history,
  programs,
  sealed,
  server,
  site_rounds,
  wire,
)
from fl_sketch.sites.answers import Answers
import jax
import numpy as np

RUN = sealed.fingerprint({'seed': 1})
ALIEN = sealed.fingerprint({'seed': 2})


def forged(payload, r, client_id, run=RUN, metrics=wire.NO_METRICS, **header):
  """The message of a client with any payload."""
  return wire.encode_reply(
    {'metrics': metrics, 'payload': payload},
    run=run, round_index=r, client_id=client_id, **header,
  )  # fmt: skip


def lose(client, stage, times=1000):
  """An edit: replies of a client, or of any, to an exchange do not arrive."""
  left = [times]

  def edit(i, reply):
    header = wire.decode_reply(reply)
    here = header.kind == wire.ReplyKind.PAYLOAD and header.stage == stage
    if here and client in (i, None) and left[0] > 0:
      left[0] -= 1
      return None
    return reply

  return edit


def refusal(reply):
  """What the reply of a client that refuses says."""
  header = wire.decode_reply(reply)
  assert header.kind == wire.ReplyKind.REFUSED
  return bytes(header.body).decode()


def flipped(message):
  return message[:-3] + bytes([message[-3] ^ 4]) + message[-2:]


@functools.cache
def programs_of(make):
  return programs.Programs(make, cases.HP, cases.params_of(make), cases.KEY)


def four(r):
  """Clients 0 to 3, all of them selected: the same cohort in every round."""
  return cases.cohort(0, r)._replace(
    ids=np.arange(4, dtype=np.int32), weight=np.array([1, 2, 3, 1], np.float32)
  )


class Run:
  """Clients of a case in this process, and their server; the transport as well.

  `states` has what was before each round and the state now; `sent` is (client,
  request, reply) in order, `edit(client, reply)` what arrives of it, or None;
  `gone` are clients that do not answer, `closed` the rounds that were closed.
  """

  def __init__(self, made, params, cohort_of=four, folder=None, **options):
    self.programs, self.cohort_of = made, cohort_of
    self.folder, self._options = folder, options
    self.secret = cases.SECRET if self.programs.private else None
    self._params = params
    self.gone, self.sent = set(), []
    self.clients, self.closed = {}, []
    self.edit = lambda i, reply: reply
    for i in range(cases.POPULATION):
      self.restart(i)
    first = self.programs.first(self._params)
    self.states = [comms.drop_per_client(first)]
    self.serve(0)

  @property
  def state(self):
    return self.states[-1]

  def batches(self, i, r):
    cohort = self.cohort_of(r)
    (n,) = np.flatnonzero(cohort.ids == i)
    return jax.tree.map(lambda x: x[n], cohort.batches)

  def back(self, *clients):
    """Clients answer again, and greet the server."""
    self.gone -= {*clients}
    self.rounds.greet()

  def restart(self, i):
    """Starts a client, from its folder if there is one."""
    self.clients[i] = client.Client(
      self.programs, self._params, run=RUN, id=i,
      batches=functools.partial(self.batches, i), noise_key=self.secret,
      folder=self.folder and self.folder / f'{i}',
      answers=Answers(self.folder and self.folder / f'{i}' / 'answered'),
    )  # fmt: skip

  def serve(self, done=None):
    """Starts the server from the state after `done` rounds."""
    done = int(self.state.round) if done is None else done
    self.states = self.states[: done + 1]
    self.incarnation = getattr(self, 'incarnation', -1) + 1
    self.server = server.Server(
      self.programs, run=RUN, incarnation=self.incarnation,
      noise_key=self.secret, **self._options,
    )  # fmt: skip
    timeouts = site_rounds.Timeouts(attempts=3)
    of_start = self, RUN, cases.POPULATION, self.incarnation, timeouts
    self.rounds = site_rounds.SiteRounds(*of_start)
    folder = self.folder and self.folder / 'announced'
    self.rounds.server = self.server
    self.rounds.history = history.History(self.programs, done, folder)
    self.rounds.greet()

  def play(self, count=1, absent=()):
    """Plays rounds; returns the state after them."""
    for _ in range(count):
      cohort = self.cohort_of(int(self.state.round))
      away = {*cohort.ids[cohort.weight == 0].tolist(), *absent} - self.gone
      self.gone |= away
      weight = np.where(cohort.weight > 0, cohort.weight, 1)
      self.rounds.greet()  # who is back takes part at once
      closed = self.rounds.play(self.state, cohort.ids, weight)
      self.closed.append(closed)
      self.states.append(closed.state)
      self.back(*away)
    return self.state

  def asked(self, client, kind=wire.RequestKind.WORK):
    """(request, its reply) of a client, of a kind alone."""
    mine = [pair for i, *pair in self.sent if i == client]
    pairs = [(wire.decode_request(x), reply) for x, reply in mine]
    return [pair for pair in pairs if pair[0].kind == kind]

  # The transport.

  def sites(self):
    return [f'{i}' for i in sorted(self.clients.keys() - self.gone)]

  def ask(self, requests, timeout):
    del timeout
    for name, request in requests.items():
      i = int(name)
      if i not in self.gone:
        reply = self.edit(i, self.clients[i].handle(request))
        if reply is not None:
          self.sent.append((i, request, reply))
          yield name, reply


def run_of(name, cohort_of=four, folder=None, **options):
  """The run of a case."""
  make = cases.ALGORITHMS[name].make
  of_case = programs_of(make), cases.params_of(make)
  return Run(*of_case, cohort_of, folder, **options)
