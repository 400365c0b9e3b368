"""Clients and servers that miss rounds, lose their state, or start again."""

import functools
import shutil

import cases
import chex
from fl_sketch.sites import replicas, site_rounds, wire
from fl_sketch.sites.client import Client
from fl_sketch.sites.history import History
from fl_sketch.sites.wire import Part, PartKind, RequestKind
from hypothesis import given, settings, strategies as st
from messaging_clients import ALIEN, RUN, lose, programs_of, refusal, run_of
import pytest

# State of clients in the encoder, in the protocol, and two exchanges.
NAMES = 'cd_adam', 'scaffold', 'sketched_sgd'
each = pytest.mark.parametrize('name', NAMES)
fast = pytest.mark.representatives


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
  monkeypatch.setattr(site_rounds, '_PAUSE', 0)


def check_same(got, want):
  """The states and what was announced, bit by bit."""
  chex.assert_trees_all_equal(got.state, want.state)
  last = [run.closed[-1].announcements for run in (got, want)]
  chex.assert_trees_all_equal(*last)


@fast('dp_fedavg')
@pytest.mark.parametrize('name', [*NAMES, 'dp_fedavg', 'private_sketched_sgd'])
def test_a_client_that_is_asked_again_sends_the_same_bytes(name, tmp_path):
  """Catches batches, noise or residuals that move when asked again."""
  run = run_of(name, folder=tmp_path)
  run.play(3)
  last = [x for x in run.sent if wire.decode_request(x[1]).round == 2]
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
@pytest.mark.parametrize('missed', [1, 20])
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
  kinds = {x.parts[0].kind for x, _ in run.asked(1) if x.round == 2 + missed}
  # Models are tiny: what was announced is often as large as the state.
  if (name, missed) == ('cd_adam', 1):
    assert kinds == {PartKind.ANNOUNCEMENTS}
  if missed == 20:
    assert kinds == {PartKind.STATE}


def test_another_state_than_the_servers_is_answered_by_need():
  """Catches a client that trains on a replica unlike the server's state."""
  run = run_of('safl_adam')
  run.play(2)
  request, _ = run.asked(1)[-1]
  other = wire.encode_request(request._replace(digest=bytes(16)))
  reply = wire.decode_reply(run.clients[1].handle(other))
  assert (reply.kind, reply.round) == (wire.ReplyKind.NEED, -1)


@pytest.mark.nightly
def test_only_of_the_first_missed_round_are_announcements_known():
  """Catches later rounds whose first announcements are left out as well."""
  run = run_of('sketched_sgd')
  history = run.rounds.history
  history._dense = 10**6  # else the state, of a tiny model, would be sent
  run.play(3)
  parts = history.catch_up(1, 0, run.state, first=1)
  assert [(part.first, part.round) for part in parts] == [
    (1, 0),
    (0, 1),
    (0, 2),
  ]
  assert len(parts[0].body) < len(parts[1].body) == len(parts[2].body)


@fast('cd_adam')
@pytest.mark.parametrize('name', ['cd_adam', 'feedback_top_k'])
def test_who_lost_its_state_begins_as_a_new_client(name):
  """Catches residuals of payloads that were never sent, without a word."""
  run, fresh = run_of(name), run_of(name)
  run.play(3)
  run.restart(1)
  with pytest.warns(UserWarning, match='Client 1 has lost'):
    run.play()
  _, reply = run.asked(1)[-1]
  state = run.states[3]
  body = wire.to_bytes(replicas.replicated(state))
  digest = replicas.digest(state.params, state.server)
  head = RequestKind.WORK, RUN, 0, 3, 1
  parts = (Part(PartKind.STATE, 0, 3, body),)
  request = wire.Request(*head, digest=digest, parts=parts)
  assert fresh.clients[1].handle(wire.encode_request(request)) == reply


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
  with pytest.warns(UserWarning, match='lost its state'):
    run.play()
  assert run.closed[-1].metrics['participants'] == 4


@pytest.mark.nightly
def test_a_client_lost_between_exchanges_is_absent_from_the_round():
  """Catches its first table in the sums, and in its own residual."""
  run, want = run_of('sketched_sgd'), run_of('sketched_sgd')
  run.edit = lose(2, stage=1)
  run.play()
  run.edit = lambda i, reply: reply
  run.back(2)
  want.play(absent=[2])
  check_same(run, want)
  assert run.closed[0].metrics['participants'] == 3
  run.play(2)
  want.play(2)
  check_same(run, want)


def test_a_site_answers_for_its_own_client_alone():
  """Catches a payload in the place of another client's."""
  run, want = run_of('safl_adam'), run_of('safl_adam')
  own, other = run.clients[1].handle, run.clients[2].handle

  def handle(message):
    request = wire.decode_request(message)
    if request.kind != RequestKind.WORK:
      return own(message)
    return other(wire.encode_request(request._replace(client=2)))

  run.clients[1].handle = handle
  with pytest.warns(UserWarning, match='as client 2'):
    run.play()
  want.play(absent=[1])
  check_same(run, want)


def test_a_site_whose_disk_refuses_says_so(tmp_path):
  """Catches silence about a full disk, or a worker that dies of it."""
  run = run_of('safl_adam', folder=tmp_path)
  run.play()
  shutil.rmtree(tmp_path / '1')
  tmp_path.joinpath('1').write_text('no folder')
  with pytest.warns(UserWarning, match='File exists'):
    run.play()
  assert run.closed[-1].metrics['participants'] == 3


def test_an_earlier_start_of_the_server_is_refused():
  """Catches two servers of one run, and a greeting that ends the first."""
  run = run_of('safl_adam')
  run.play()
  site_rounds.SiteRounds(run, RUN, 8, 9).greet()  # never comes to a round
  ((request, _),) = run.asked(1)
  run.serve()
  run.play()
  assert run.closed[-1].metrics['participants'] == 4
  reply = run.clients[1].handle(wire.encode_request(request))
  assert 'incarnation=1' in refusal(reply)


def test_a_negative_round_is_refused():
  """Catches a request whose checksum is right, and which ends the worker."""
  run = run_of('safl_adam')
  run.play()
  ((request, _),) = run.asked(1)
  message = wire.encode_request(request._replace(round=-3))
  assert 'negative' in refusal(run.clients[1].handle(message))


def test_a_round_without_a_reply_is_played_when_somebody_is_back():
  """Catches an empty round that is closed, and clients that stay lost."""
  run, want = run_of('safl_adam'), run_of('safl_adam')
  run.gone = {*range(8)}
  with pytest.raises(site_rounds.SitesError):
    run.play()
  run.back(*range(8))
  run.edit = lose(None, stage=0, times=4)  # they are asked once more
  run.play()
  want.play()
  check_same(run, want)
  run.edit = lose(2, stage=0, times=1)
  run.play(3)
  seen = [int(x.metrics['participants']) for x in run.closed]
  assert (seen[:2], seen[-1]) == ([4, 3], 4)  # lost, greeted, back


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """What a client and a server have written in three rounds, by path."""
  folder = tmp_path_factory.mktemp('run')
  run = run_of('cd_adam', folder=folder)
  run.play(3)
  paths = folder / '1' / 'replica_2', folder / 'announced' / 'round_2.bin'
  return {path: path.read_bytes() for path in paths}


def start(folder, run=RUN):
  """Starts what has written a folder: a client, or a server."""
  make = cases.ALGORITHMS['cd_adam'].make
  programs, params = programs_of(make), cases.params_of(make)
  if folder.name == 'announced':
    return History(programs, 3, folder)
  return Client(programs, params, run=run, id=1, batches=None, folder=folder)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.data(), st.integers(0, 1), st.integers(0, 8))
def test_a_damaged_file_is_passed_over(files, data, which, bit):
  """Catches a client or server that cannot start, or has damaged numbers."""
  path, content = [*files.items()][which]
  at = data.draw(st.integers(0, len(content) - 1))
  damaged = content[:at]
  if bit < 8:  # else it is cut
    damaged += bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
  path.write_bytes(damaged)
  with pytest.warns(UserWarning, match=path.name):
    start(path.parent)
  path.write_bytes(content)


def test_the_folder_of_another_run_is_refused(files):
  """Catches a client that goes on with the state of another config."""
  folder, _ = (path.parent for path in files)
  with pytest.raises(ValueError, match=folder.name):
    start(folder, ALIEN)


REQUESTED = {
  'run': st.sampled_from([RUN, ALIEN]),
  'client': st.sampled_from([1, 2, -1]),
  'kind': st.sampled_from([*RequestKind]),
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


@pytest.mark.nightly
@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.fixed_dictionaries({}, optional=REQUESTED))
def test_nothing_that_a_server_sends_makes_a_client_raise(fields):
  """Catches a worker that dies of a request whose checksum is right."""
  run = played_once()
  good = run.asked(1)[0][0]
  client = run.clients[1]
  wire.decode_reply(client.handle(wire.encode_request(good._replace(**fields))))
  again = client.handle(wire.encode_request(good))
  assert wire.decode_reply(again).kind == wire.ReplyKind.PAYLOAD


@functools.cache
def played_once():
  run = run_of('sketched_sgd')
  run.play()
  return run
