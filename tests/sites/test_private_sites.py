"""Sites of a private run release nothing twice."""

import chex
from fl_sketch.sites import site_rounds, wire
from fl_sketch.sites.history import History
from fl_sketch.sites.wire import RequestKind
from messaging_clients import lose, refusal, run_of
import pytest

NAME = 'private_sketched_sgd'  # of two exchanges


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
  monkeypatch.setattr(site_rounds, '_PAUSE', 0)


def announced(run):
  """What was sent between the exchanges of the last round."""
  asks = [x for i in range(4) for x, _ in run.asked(i, RequestKind.GO_ON)]
  number = max(x.round for x in asks)
  return {
    tuple(bytes(part.body) for part in x.parts if part.round == number)
    for x in asks
    if x.round == number
  }


def test_a_private_round_announces_once():
  """Catches a sum without a client beside the sum with it: its difference."""
  whole, run = run_of(NAME), run_of(NAME)
  whole.play()
  run.edit = lose(2, stage=1)
  run.play()
  assert announced(run) == announced(whole)
  assert len(announced(whole)) == 1
  assert run.closed[0].metrics['participants'] == 3
  again = run_of(NAME)
  again.edit = lose(None, stage=1, times=4)
  handle = again.clients[3].handle

  def leaves(request):
    if wire.decode_request(request).stage == 1:
      again.gone.add(3)
    return handle(request)

  again.clients[3].handle = leaves
  again.play()
  assert announced(again) == announced(whole)


class KilledError(Exception):
  """The server ends."""


@pytest.mark.nightly
@pytest.mark.parametrize('lost', [(), (0,), 'dp_fedavg_quantile'])
def test_a_private_server_restarts_between_exchanges(lost, tmp_path):
  """Catches a second announcement, and noise without a sum."""
  name, again = NAME, {RequestKind.GO_ON}
  if isinstance(lost, str):
    name, lost, again = lost, (), {RequestKind.WORK, RequestKind.GO_ON}
  run, want = run_of(name, folder=tmp_path), run_of(name)
  want.play(2)
  run.play()

  def edit(i, reply):
    if wire.decode_reply(reply).stage == 1:
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
    chex.assert_trees_all_equal(run.state, want.state)
  kinds = {wire.decode_request(x[1]).kind for x in run.sent[before:]}
  assert kinds == {RequestKind.HELLO} | again


def test_damaged_announcements_of_a_private_round_are_refused(tmp_path):
  """Catches a server that releases a private round twice."""
  (tmp_path / 'round_2.bin').write_bytes(b'cut')
  with pytest.raises(ValueError, match='round_2'):
    History(run_of('dp_fedavg').programs, 2, tmp_path)


def test_a_private_client_refuses_a_second_release(tmp_path):
  """Catches noise that is used twice, after a restart as well."""
  run = run_of('dp_fedavg', folder=tmp_path)
  run.play(3)
  requested = [x for x, _ in run.asked(1)]
  other = requested[2]._replace(digest=bytes(16))
  for start in ('goes on', 'again', 'damaged'):
    if start == 'damaged':
      (tmp_path / '1' / 'replica_2').write_bytes(b'')
      with pytest.warns(UserWarning, match='replica_2'):
        run.restart(1)
    if start == 'again':
      run.restart(1)
    for request in (requested[1], other):
      reply = run.clients[1].handle(wire.encode_request(request))
      assert 'has answered in round 2' in refusal(reply)
  run.serve(1)
  with (
    pytest.warns(UserWarning, match='released twice'),
    pytest.raises(site_rounds.SitesError),
  ):
    run.play()


def test_a_client_takes_part_in_no_more_rounds_than_agreed():
  """Catches a private site that a server asks for ever."""
  run = run_of('safl_adam')
  run.clients[1].max_rounds = 1
  run.play()
  with pytest.warns(UserWarning, match='rounds=1'):
    run.play()
  assert run.closed[-1].metrics['participants'] == 3
