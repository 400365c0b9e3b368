"""Sites of a private run release nothing twice, and no more than the bound."""

import functools
import re

import cases
import chex
from fl_sketch.sites import replicas, site_rounds, wire
from fl_sketch.sites.history import History
from fl_sketch.sites.wire import RequestKind
import jax
import jax.numpy as jnp
from messaging_clients import lose, refusal, run_of
import numpy as np
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


@pytest.mark.representatives('dp_fedavg')
@pytest.mark.parametrize('name', ['dp_fedavg', NAME])
def test_a_private_round_is_closed_again_with_the_same_clients(name, tmp_path):
  """Catches a sum without a client after the sum with it: its difference."""
  run = run_of(name, folder=tmp_path)
  run.play(absent=[3])
  want = run.state
  for gone in ({1}, set()):  # no checkpoint has the round
    run.serve(0)
    run.gone = gone
    if gone:
      with pytest.raises(
        site_rounds.SitesError, match=r'all of clients \[0, 1'
      ):
        run.play()
  run.play()
  chex.assert_trees_all_equal(run.state, want)


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
  # The server's state with another model, of which nothing is known.
  state = run.states[2]._replace(
    params=jax.tree.map(jnp.add, *2 * [run.state.params])
  )
  part = wire.Part(
    wire.PartKind.STATE, 0, 2, wire.to_bytes(replicas.replicated(state))
  )
  digest = replicas.digest(state.params, state.server)
  other = requested[2]._replace(digest=digest, parts=(part,), taken=-1)
  for start in ('goes on', 'again', 'damaged', 'lost'):
    if start == 'lost':
      for path in (tmp_path / '1').glob('replica_*'):
        path.unlink()
      run.restart(1)
    if start == 'damaged':
      (tmp_path / '1' / 'replica_2').write_bytes(b'')
      with pytest.warns(UserWarning, match='replica_2'):
        run.restart(1)
    if start == 'again':
      run.restart(1)
    for request in (other, requested[1]):
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


CENTRAL = (
  'dp_fedavg', 'dp_fedavg_per_leaf', 'dp_fedavg_quantile', 'private_safl_int8',
  'private_heaprix', 'private_gate_heaprix', 'private_sketched_sgd',
)  # fmt: skip


@pytest.mark.representatives('private_heaprix', 'dp_fedavg_per_leaf')
@pytest.mark.parametrize('name', CENTRAL)
def test_a_server_bounds_what_one_client_sends(name):
  """Catches integers of an exchange that are summed as they come."""
  run = run_of(name)
  programs, state = run.programs, run.programs.first(cases.params_of(
    cases.ALGORITHMS[name].make))  # fmt: skip
  facts, who = programs.facts(state), (cases.SECRET, np.int32(0), np.float32(1))
  work = programs.work(state, run.batches(0, 0), *who)
  huge = jax.tree.map(lambda x: 1e6 * x, work.payload)
  zeros = functools.partial(jax.tree.map, lambda x: np.zeros(x.shape, x.dtype))
  numbers = lambda x: np.full(x.shape, 2**30 if x.dtype.itemsize > 1 else 99)
  steps, sums, announced = [], (), ()
  for stage, shapes in enumerate(programs.shapes(facts)):
    args = facts, run.state, sums, announced
    term = lambda x, args=args: programs.term(*args, x, *who)[0]
    sent = programs.send(facts, stage, state, announced, huge, *who)
    forged = jax.tree.map(lambda x: numbers(x).astype(x.dtype), shapes.payload)
    if not programs.streamed:  # the bits that a client sends stay
      chex.assert_trees_all_equal(term(sent), sent)
    for payload in (forged, sent):
      integers = [np.int32(x).ravel() for x in jax.tree.leaves(term(payload))]
      steps.append(np.linalg.norm(np.concatenate(integers, dtype=float)))
    sums += (zeros(shapes.total),)
    announced += zeros(shapes.announcements)
  moved, bound = np.reshape(steps, (-1, 2)).T
  assert bound.all()
  assert (moved <= bound * (1 + 1e-4)).all()


def test_a_client_sends_one_answer_in_an_exchange(tmp_path):
  """Catches two answers with the same noise to other announcements."""
  run = run_of(NAME, folder=tmp_path)
  run.play()
  ((request, reply),) = run.asked(1, RequestKind.GO_ON)
  handle = lambda x: run.clients[1].handle(wire.encode_request(x))
  (part,) = request.parts
  other = part._replace(body=bytes(len(part.body)))
  for _ in range(2):
    assert 'otherwise' in refusal(handle(request._replace(parts=(other,))))
    assert handle(request) == reply
    run.restart(1)


def test_messages_of_a_hidden_round_name_no_client():
  """Catches warnings and errors that tell whom a Poisson draw has taken."""
  run = run_of('dp_fedavg')
  run.rounds.hides_clients, run.gone = True, {0, 2, 3}
  run.clients[1].max_rounds = 0
  with (
    pytest.warns(UserWarning, match='hides which one') as said,
    pytest.raises(site_rounds.SitesError, match='its clients') as error,
  ):
    run.play()
  for text in (str(error.value), *(str(x.message) for x in said)):
    assert not re.search(r'(lient|ite)s? \[?\d', text)
