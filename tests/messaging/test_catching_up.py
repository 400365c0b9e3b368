"""Clients and servers that miss rounds, lose their state, or start again."""

import functools
import warnings

import chex
from fl_sketch.engines import site_rounds
from fl_sketch.messaging import requests, wire
from fl_sketch.messaging.client import Client
from fl_sketch.messaging.history import History
from fl_sketch.messaging.requests import Kind, Part, PartKind
from hypothesis import given, settings, strategies as st
import jax
from messaging_clients import RUN, run_of
import pytest

# State of clients in the encoder, in the protocol, and two exchanges.
NAMES = 'cd_adam', 'scaffold', 'sketched_sgd'
each = pytest.mark.parametrize('name', NAMES)
fast = pytest.mark.representatives
PRIVATE = 'private_sketched_sgd'  # of two exchanges


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
  monkeypatch.setattr(site_rounds, '_PAUSE', 0)


def check_same(got, want):
  """The states and what was announced, bit by bit."""
  chex.assert_trees_all_equal(got.state, want.state)
  last = [run.closed[-1].announcements for run in (got, want)]
  chex.assert_trees_all_equal(*last)


def asked(run, client, kind=Kind.WORK):
  """(requests, their replies) of a client, of these kinds alone."""
  pairs = [
    (requests.decode(request), reply)
    for i, request, reply in run.sent
    if i == client
  ]
  return [(x, reply) for x, reply in pairs if x.kind == kind]


@fast('cd_adam', 'scaffold', 'dp_fedavg')
@pytest.mark.parametrize('name', [*NAMES, 'dp_fedavg', PRIVATE])
def test_a_client_that_is_asked_again_sends_the_same_bytes(name, tmp_path):
  """Catches batches, noise or residuals that move when asked again."""
  run = run_of(name, folder=tmp_path)
  run.play(3)
  last = [x for x in run.sent if requests.decode(x[1]).round == 2]
  facts = run.programs.facts(run.state)
  assert len(last) == 4 * len(run.programs.shapes(facts))
  for restarts in (False, True):
    for i in range(4):
      if restarts:
        run.restart(i)
      for client, request, reply in last:
        if client == i:
          assert run.clients[i].handle(request) == reply


@fast('cd_adam-1', 'cd_adam-20', 'scaffold-1')
@pytest.mark.parametrize('missed', [1, 5, 20])
@each
def test_who_missed_rounds_catches_up(name, missed):
  """Catches replicas, residuals and variates that stay behind."""
  run, want = run_of(name), run_of(name)
  run.play(2)
  run.gone = {1}
  run.play(missed)
  run.back(1)
  run.play(2)
  want.play(2)
  want.play(missed, absent=[1])
  want.play(2)
  check_same(run, want)
  kinds = {x.parts[0].kind for x, _ in asked(run, 1) if x.round == 2 + missed}
  # Models are tiny: what was announced is often as large as the state.
  if (name, missed) == ('cd_adam', 1):
    assert kinds == {PartKind.ANNOUNCEMENTS}
  if missed == 20:
    assert kinds == {PartKind.STATE}


@fast('cd_adam')
@pytest.mark.parametrize('name', ['cd_adam', 'feedback_top_k'])
def test_who_lost_its_state_begins_as_a_new_client(name):
  """Catches residuals of payloads that were never sent, without a word."""
  run, fresh = run_of(name), run_of(name)
  run.play(3)
  run.restart(1)
  with pytest.warns(UserWarning, match='Client 1 has lost its state'):
    run.play()
  _, reply = asked(run, 1)[-1]
  state = run.states[3]
  body = wire.to_bytes(jax.tree.leaves(requests.replicated(state)))
  request = requests.Request(
    Kind.WORK, RUN, 0, 3, 1, digest=requests.digest(state.params, state.server),
    parts=(Part(PartKind.STATE, 0, 3, body),),
  )  # fmt: skip
  assert fresh.clients[1].handle(requests.encode(request)) == reply


def test_who_has_no_state_loses_none(recwarn):
  """Catches a warning of every client that starts again."""
  run, want = run_of('safl_adam'), run_of('safl_adam')
  run.play(3)
  run.restart(1)
  run.play()
  want.play(4)
  check_same(run, want)
  assert not recwarn


@fast('cd_adam-True', 'scaffold-False')
@pytest.mark.parametrize('restarts', [False, True])
@each
def test_a_server_that_is_restored_ends_bit_by_bit_the_same(
  name, restarts, tmp_path
):
  """Catches clients that stay ahead with replica, residual or variate."""
  run, want = run_of(name, folder=tmp_path), run_of(name)
  want.play(8)
  run.play(4)
  run.rounds.saved = 3
  run.play(2)
  if restarts:
    for i in range(4):
      run.restart(i)
  run.serve(3)
  run.play(5)
  check_same(run, want)
  # It is behind what clients keep: they take its state.
  run.rounds.saved = 7
  run.play(2)
  run.serve(2)
  with pytest.warns(UserWarning, match='has lost its state'):
    run.play()
  assert run.closed[-1].metrics['participants'] == 4


def dies(client, stage, times=1000):
  """An edit: replies of a client to an exchange do not arrive."""
  left = [times]

  def edit(i, reply):
    header = wire.unpack(reply)
    here = header.kind == wire.Kind.PAYLOAD and header.stage == stage
    if here and client in (i, None) and left[0] > 0:
      left[0] -= 1
      return None
    return reply

  return edit


def test_a_client_lost_between_exchanges_is_absent_from_the_round():
  """Catches its first table in the sums, and in its own residual."""
  run, want = run_of('sketched_sgd'), run_of('sketched_sgd')
  run.edit = dies(2, stage=1)
  run.play()
  run.edit = lambda i, reply: reply
  run.back(2)
  want.play(absent=[2])
  check_same(run, want)
  assert run.closed[0].metrics['participants'] == 3
  run.play(2)
  want.play(2)
  check_same(run, want)


def announced(run):
  """What was sent between the exchanges of the last round."""
  asks = [x for i in range(4) for x, _ in asked(run, i, Kind.GO_ON)]
  number = max(x.round for x in asks)
  return {
    tuple(bytes(part.body) for part in x.parts if part.round == number)
    for x in asks
    if x.round == number
  }


def test_a_private_round_announces_once():
  """Catches a sum without a client beside the sum with it: its difference."""
  whole, run = run_of(PRIVATE), run_of(PRIVATE)
  whole.play()
  run.edit = dies(2, stage=1)
  run.play()
  assert announced(run) == announced(whole)
  assert len(announced(whole)) == 1
  assert run.closed[0].metrics['participants'] == 3
  again = run_of(PRIVATE)
  again.edit = dies(None, stage=1, times=4)
  handle = again.clients[3].handle

  def leaves(request):
    if requests.decode(request).stage == 1:
      again.gone.add(3)
    return handle(request)

  again.clients[3].handle = leaves
  again.play()
  assert announced(again) == announced(whole)


class KilledError(Exception):
  """The server ends."""


@fast('lost1')
@pytest.mark.parametrize('lost', [(), (0,), 'dp_fedavg_quantile'])
def test_a_private_server_restarts_between_exchanges(lost, tmp_path):
  """Catches a second announcement, and noise without a sum."""
  name, again = PRIVATE, {Kind.GO_ON}
  if isinstance(lost, str):
    name, lost, again = lost, (), {Kind.WORK, Kind.GO_ON}
  run, want = run_of(name, folder=tmp_path), run_of(name)
  want.play(2)
  run.play()

  def edit(i, reply):
    if wire.unpack(reply).stage == 1:
      raise KilledError
    return reply

  run.edit = edit
  with pytest.raises(KilledError):
    run.play()
  run.edit = lambda i, reply: reply
  before = len(run.sent)
  run.gone = {*lost}
  run.serve()
  run.play()
  assert announced(run) == announced(want)
  if not lost:
    check_same(run, want)
  kinds = {requests.decode(x[1]).kind for x in run.sent[before:]}
  assert kinds == {Kind.HELLO} | again


def refusal(reply):
  header = wire.unpack(reply)
  assert header.kind == wire.Kind.REFUSED
  return bytes(header.body).decode()


def test_a_private_client_refuses_a_second_release(tmp_path):
  """Catches noise that is used twice, after a restart as well."""
  run = run_of('dp_fedavg', folder=tmp_path)
  run.play(3)
  requested = [x for x, _ in asked(run, 1)]
  other = requested[2]._replace(digest=bytes(16))
  for start in ('goes on', 'again', 'damaged'):
    if start == 'damaged':
      (tmp_path / '1' / 'replica_2').write_bytes(b'')
      with pytest.warns(UserWarning, match='replica_2 cannot be read'):
        run.restart(1)
    if start == 'again':
      run.restart(1)
    for request in (requested[1], other):
      reply = run.clients[1].handle(requests.encode(request))
      assert 'has answered in round 2 of this private run' in refusal(reply)
  run.serve(1)
  with (
    pytest.warns(UserWarning, match='would be released twice'),
    pytest.raises(site_rounds.SitesError, match='Nobody has answered in r'),
  ):
    run.play()


def test_a_client_takes_part_in_no_more_rounds_than_agreed():
  """Catches a private site that a server asks for ever."""
  run = run_of('safl_adam')
  run.clients[1]._most = 1
  run.play()
  with pytest.warns(UserWarning, match='takes part in rounds=1; the server'):
    run.play()
  assert run.closed[-1].metrics['participants'] == 3


def test_a_greeting_of_a_start_that_fails_ends_no_run():
  """Catches a second server, refused for its folder, that stops the first."""
  run = run_of('safl_adam')
  site_rounds.SiteRounds(run, RUN, 8, 9).greet()
  run.play()
  assert run.closed[-1].metrics['participants'] == 4


def test_a_site_answers_for_its_own_client_alone():
  """Catches a payload in the place of another client's."""
  run, want = run_of('safl_adam'), run_of('safl_adam')
  own, honest = run.clients[1].handle, run.clients[2].handle

  def handle(message):
    request = requests.decode(message)
    if request.kind != Kind.WORK:
      return own(message)
    return honest(requests.encode(request._replace(client=2)))

  run.clients[1].handle = handle
  with pytest.warns(UserWarning, match='answers as client 2'):
    run.play()
  want.play(absent=[1])
  check_same(run, want)


def test_an_earlier_start_of_the_server_is_refused():
  """Catches two servers of one run, of which each moves the replicas."""
  run = run_of('safl_adam')
  run.play()
  ((request, _),) = asked(run, 1)
  run.serve()
  run.play()
  reply = run.clients[1].handle(requests.encode(request))
  assert refusal(reply).startswith('A server of incarnation 1 has asked since;')


def test_a_round_without_a_reply_is_played_when_somebody_is_back():
  """Catches an empty round that is closed, and clients that stay lost."""
  run, want = run_of('safl_adam'), run_of('safl_adam')
  run.gone = {*range(8)}
  with pytest.raises(site_rounds.SitesError, match='round 0, asked 3 t'):
    run.play()
  run.back(*range(8))
  run.edit = dies(None, stage=0, times=4)  # they are asked once more
  run.play()
  want.play()
  check_same(run, want)
  assert len(run.closed) == 1
  run.edit = dies(2, stage=0, times=1)
  run.play(3)
  seen = [int(x.metrics['participants']) for x in run.closed]
  assert (seen[:2], seen[-1]) == ([4, 3], 4)  # lost, greeted, back


def flip(content, position):
  """Another bit at a position, or, beyond the end, half of the content."""
  if position >= len(content):
    return content[: len(content) // 2]
  changed = bytes([content[position] ^ 1])
  return content[:position] + changed + content[position + 1 :]


def test_a_damaged_replica_is_passed_over(tmp_path):
  """Catches a client that cannot start, or that works with damaged numbers."""
  run = run_of('cd_adam', folder=tmp_path)
  run.play(3)
  path = tmp_path / '1' / 'replica_2'
  path.write_bytes(flip(path.read_bytes(), 300))
  with pytest.warns(UserWarning, match='replica_2'):
    run.restart(1)
  with pytest.warns(UserWarning, match='lost its state after round 2'):
    run.play()
  assert run.closed[-1].metrics['participants'] == 4
  with pytest.raises(ValueError, match='another run'):
    Client(
      run.programs, run.state.params, run=bytes(16), client_id=1, batches=None,
      folder=tmp_path / '1',
    )  # fmt: skip


@pytest.fixture(scope='module')
def announced_rounds(tmp_path_factory):
  """The announcements of three rounds in a folder; the programs."""
  folder = tmp_path_factory.mktemp('run')
  run = run_of('cd_adam', folder=folder)
  run.play(3)
  return run.programs, folder / 'announced'


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.integers(0, 1000))
def test_damaged_announcements_are_passed_over(announced_rounds, position):
  """Catches a server that cannot start, or announces damaged numbers."""
  programs, folder = announced_rounds
  path = folder / 'round_2.bin'
  content = path.read_bytes()
  want = History(programs, 3, folder).announcements(2)
  path.write_bytes(flip(content, position))
  try:
    with warnings.catch_warnings(record=True) as said:
      warnings.simplefilter('always')
      past = History(programs, 3, folder)
    if not said:  # a byte that nothing depends on
      assert past.announcements(2) == want
  finally:
    path.write_bytes(content)


def test_damaged_announcements_of_a_private_round_are_refused(announced_rounds):
  """Catches a server that releases a private round twice."""
  _, folder = announced_rounds
  path = folder / 'round_2.bin'
  content = path.read_bytes()
  path.write_bytes(content[:100])
  with pytest.raises(ValueError, match='released twice'):
    History(run_of('dp_fedavg').programs, 2, folder)
  path.write_bytes(content)


REQUESTED = {
  'run': st.sampled_from([RUN, bytes(16)]),
  'client': st.sampled_from([1, 2, -1]),
  'kind': st.sampled_from([*Kind]),
  'round': st.sampled_from([0, 1, -5, 2**31 - 1]),
  'stage': st.sampled_from([0, 1, 7]),
  'parts': st.lists(
    st.builds(
      Part, st.sampled_from([*PartKind]), st.sampled_from([0, 9]),
      st.integers(0, 1), st.binary(max_size=5),
    ),
    max_size=2,
  ).map(tuple),
}  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.fixed_dictionaries({}, optional=REQUESTED))
def test_nothing_that_a_server_sends_makes_a_client_raise(fields):
  """Catches a worker that dies of a request whose checksum is right."""
  run = played_once()
  good = asked(run, 1)[0][0]
  client = run.clients[1]
  wire.unpack(client.handle(requests.encode(good._replace(**fields))))
  again = client.handle(requests.encode(good))
  assert wire.unpack(again).kind == wire.Kind.PAYLOAD


@functools.cache
def played_once():
  run = run_of('sketched_sgd')
  run.play()
  return run
