"""Rounds whose payloads come as messages equal simulated ones."""

import functools
import itertools

import cases
import chex
from fl_sketch.rounds import comms
from fl_sketch.sites import client as client_lib, wire
from fl_sketch.sites.comm import Facts
from fl_sketch.sites.inbox import EmptyRoundError, Inbox, Verdict
from fl_sketch.sites.programs import Programs
from fl_sketch.sites.server import Server
import jax
import jax.numpy as jnp
import messaging_clients
from messaging_clients import ALIEN, RUN, flipped, forged, run_of
import numpy as np
import pytest
from refusals import refused

# A case for each way in which messages treat an algorithm.
FAST = 'safl_adam', 'scaffold', 'dp_fedavg'
WITHOUT_SERVER = 'decentralised_tree', 'decentralised_gossip'
WITHOUT_SERVER += ('dp_fedavg_masked',)
# Bytes of a client's payloads and of what is announced, beyond the bill: the
# product of the factors in place of them, a count as f32, whole updates.
BEYOND_BILL = {
  'flora': (0, 64 - 80), 'dp_fedavg_quantile': (3, 0), 'private_before': (8, 0),
}  # fmt: skip


def shared(state):
  """What server and clients have in common."""
  links = comms.drop_per_client(state.protocol)
  return jax.device_get((state.params, state.server, links))


@cases.law([k for k in cases.ALGORITHMS if k not in WITHOUT_SERVER], fast=FAST)
def test_rounds_of_messages_are_the_simulated_ones(case):
  """Catches sums, states, metrics and bills that depend on who computes."""
  (name,) = (n for n, x in cases.ALGORITHMS.items() if x is case)
  run = run_of(name, cases.cohorts_of(case.make))
  # It divides by numbers near 0: sums of two shards have other last digits.
  shards = 1 if name == 'onebit_adam' else 2
  want, _ = cases.play(case.make, shards)
  near = {'rtol': 1e-6, 'atol': 1e-6}
  chex.assert_trees_all_close(shared(run.play(5)), shared(want), **near)
  _, rows = cases.play_all(case.make, shards)
  for before, closed, row in zip(run.states, run.closed, rows, strict=False):
    assert row['participants'] < len(closed.cohort.ids)
    chex.assert_trees_all_close(jax.device_get(closed.metrics), row, **near)
    facts = run.programs.facts(before)
    up = sum(comms.nbytes(x.payload) for x in run.programs.shapes(facts))
    down = comms.nbytes([facts.without(x) for x in closed.announcements])
    billed = row['uplink_bytes'], row['downlink_bytes']
    more = BEYOND_BILL.get(name, (0, 0))
    assert (up, down) == tuple(np.add(billed, more))


def made(name):
  return messaging_clients.programs_of(cases.ALGORITHMS[name].make)


PLAIN = made('safl_adam')
# Catches a private run without noise, a bound or server without effect.
test_what_rounds_over_messages_cannot_do_is_refused = refused(
  lambda make: make(),
  *[(lambda name=name: made(name), 'server|trust') for name in WITHOUT_SERVER],
  (lambda: Server(made('sketched_sgd'), run=RUN, max_norm=1.0), 'max_norm'),
  (lambda: Server(made('dp_fedavg'), run=RUN), 'noise_key'),
  (lambda: client_lib.Client(
    made('dp_fedavg'), cases.PARAMS, run=RUN, id=0, batches=None),
    'noise_key'),
)  # fmt: skip


# Payloads are tables of four numbers, of norm 2.
TABLE = np.ones(4, np.float32)
IDS = np.arange(5, dtype=np.int32)


def start():
  return comms.drop_per_client(PLAIN.first(cases.PARAMS))


def test_every_verdict():
  """Catches a message of another time, run, start or form that is taken."""
  server = Server(PLAIN, run=RUN, incarnation=2, max_norm=2.0)
  sent, state = functools.partial(forged, incarnation=2), start()
  box = Inbox(server, state, IDS, np.array([1, 2, 0, 0, 0]))
  late, good = sent(TABLE, 0, 1), sent(TABLE, 1, 0)
  verdicts = {
    sent(1.001 * TABLE, 0, 0): Verdict.TOO_LARGE,
    sent(TABLE, 0, 0): Verdict.DUPLICATE,
    sent(TABLE, 0, 2): Verdict.UNKNOWN_CLIENT,
    sent(TABLE, 1, 1): Verdict.EARLY,
    sent(TABLE, 0, 1, stage=1): Verdict.EARLY,
    sent(TABLE, 0, 1, ALIEN): Verdict.OTHER_RUN,
    forged(TABLE, 0, 1, incarnation=3): Verdict.OTHER_START,
    sent(TABLE, 0, 1, kind=9): Verdict.NO_PAYLOAD,
    sent(TABLE.reshape(2, 2), 0, 1): Verdict.CORRUPT,
    flipped(late): Verdict.CORRUPT,
  }
  for message, verdict in verdicts.items():
    assert box.receive(message) is verdict
  closed = box.close()
  new_state, row = closed.state, closed.metrics
  chex.assert_trees_all_equal(new_state._replace(round=jnp.int32(0)), state)
  assert (row['participants'], row['rejected_clients']) == (0, 1)
  assert (closed.cohort.outcome == [1, 3, 0, 0, 0]).all()
  assert box.receive(late) is Verdict.LATE
  box = Inbox(server, new_state, IDS, np.ones(5))
  no = wire.NO_METRICS | {'accepted': np.float32(0)}
  nan = wire.NO_METRICS | {'train_loss': np.float32(np.nan)}
  verdicts = {
    late: Verdict.LATE,
    good: Verdict.TAKEN,
    sent(np.nan * TABLE, 1, 1): Verdict.NOT_FINITE,
    sent(TABLE, 1, 2, metrics=no): Verdict.NOT_FINITE,
    sent(TABLE, 1, 3, metrics=nan): Verdict.NOT_FINITE,
    sent(1e38 * TABLE, 1, 4): Verdict.NOT_FINITE,
  }
  for message, verdict in verdicts.items():
    assert box.receive(message) is verdict
  row = box.close().metrics
  assert (row['participants'], row['rejected_clients']) == (1, 4)
  assert np.isfinite(row['train_loss'])


def test_a_round_without_a_payload_is_as_finite_as_the_state_that_is_kept():
  """Catches a row about a state that is thrown away."""
  hp = cases.HP._replace(server_lr=np.inf)
  programs = Programs(
    cases.ALGORITHMS['safl_adam'].make, hp, cases.PARAMS, cases.KEY
  )
  box = Inbox(Server(programs, run=RUN), start(), IDS, np.ones(5))
  with pytest.raises(EmptyRoundError):
    box.close()
  box.receive(forged(np.nan * TABLE, 0, 0))
  closed = box.close()
  kept = closed.state._replace(round=jnp.int32(0))
  chex.assert_trees_all_equal(kept, start())
  assert closed.metrics['finite']


@pytest.fixture(scope='module', params=['safl_adam', 'sketched_sgd'])
def played(request):
  """A run of one round, or of one round of two exchanges."""
  run = run_of(request.param)
  run.play()
  return run


def replay(run, messages):
  """The round closed again; `messages` makes what arrives of a reply."""
  cohort = run.cohort_of(0)
  box = Inbox(run.server, run.states[0], cohort.ids, cohort.weight)
  replies = [x for _, _, x in run.sent]
  work = [
    x for x in replies if wire.decode_reply(x).kind == wire.ReplyKind.PAYLOAD
  ]
  for number in range(box.stages):
    mine = [x for x in work if wire.decode_reply(x).stage == number]
    for message in messages(box, mine):
      box.receive(message)
    if number < box.stages - 1:
      box.advance()
  return box.close()


def test_neither_order_nor_what_is_refused_changes_a_bit(played):
  """Catches sums in the order of messages, and what a bad one has moved."""

  def with_bad(box, replies):
    stage = box.stage
    payload = played.programs.shapes(Facts())[stage].payload
    ones = jax.tree.map(lambda x: np.ones(x.shape, x.dtype), payload)
    for reply in replies:
      client = wire.decode_reply(reply).client
      longer = jax.tree.map(lambda x: np.ones((9, *x.shape), x.dtype), payload)
      yield from (reply[:-1], reply + b'0', flipped(reply), bytes(999))
      for r, number in ((0, stage + 1), (1, 0), (-1, stage)):
        yield forged(ones, r, client, stage=number)
      yield forged(longer, 0, client, stage=stage)
      for other in {'run': ALIEN}, {'incarnation': 1}:
        yield forged(ones, 0, client, stage=stage, **other)
      yield forged(ones, 0, client + 4, stage=stage)
      yield from (reply, reply, forged(ones, 0, client, stage=stage))
      if stage:
        yield forged(ones, 0, client, stage=0)

  orders = [
    lambda box, x, order=order: [x[n] for n in order]
    for order in itertools.permutations(range(4))
  ]
  for messages in (*orders, with_bad):
    closed = replay(played, messages)
    jax.tree.map(np.testing.assert_array_equal, closed, played.closed[0])


@pytest.mark.parametrize(('name', 'stage', 'bad'), [
  ('safl_adam', 0, np.nan), ('safl_adam', 0, 1e38),
  ('sketched_sgd', 0, np.nan), ('sketched_sgd', 1, np.nan),
])  # fmt: skip
def test_a_poisoned_payload_is_a_client_that_is_absent(name, stage, bad):
  """Catches what it sent before in the sums, and silence about whose it is."""
  poisoned, without_it = (run_of(name) for _ in range(2))

  def edit(i, reply):
    header = wire.decode_reply(reply)
    if (i, header.kind, header.stage) != (2, wire.ReplyKind.PAYLOAD, stage):
      return reply
    like = poisoned.programs.shapes(Facts())[stage].payload
    poison = jax.tree.map(lambda x: np.full(x.shape, bad, x.dtype), like)
    return forged(poison, header.round, i, stage=stage)

  poisoned.edit = edit
  with pytest.warns(UserWarning, match='Client 2 .* not_finite'):
    got = poisoned.play()
  want = without_it.play(absent=[2])
  chex.assert_trees_all_equal(got, want)
  rows = poisoned.closed[0].metrics, without_it.closed[0].metrics
  assert [int(x['participants']) for x in rows] == [3, 3]
  assert [int(x['rejected_clients']) for x in rows] == [1, 0]
