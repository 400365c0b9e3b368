"""Rounds whose payloads come as messages equal simulated ones."""

import cases
import chex
from fl_sketch import sketches
from fl_sketch.messaging import client as client_lib, server as server_lib
from fl_sketch.messaging.server import Verdict
from fl_sketch.rounds import mesh as mesh_lib, traffic
import jax
import jax.numpy as jnp
import laws
import messaging_clients
from messaging_clients import ALIEN, RUN, flipped, forged
import numpy as np
import pytest
from refusals import refused


def server_of(make, **options):
  book = traffic.Ledger.empty(cases.POPULATION, cases.DENSE)
  params = cases.params_of(make)
  server = server_lib.Server(
    make, cases.HP, params, cases.KEY, run=RUN, book=book, **options
  )
  return server, book


def start(make, **options):
  """A server, its ledger, and the state before the first round."""
  return *server_of(make, **options), cases.start(make, mesh_lib.cohort_mesh(1))


def answer(client, state, cohort, n):
  """The message of the n-th client of a cohort."""
  return client(
    cases.HP, state.params, int(state.round), int(cohort.ids[n]),
    jax.tree.map(lambda x: x[n], cohort.batches), cases.KEY,
  )  # fmt: skip


def check_rounds(make):
  """Three rounds of eight clients: one is not selected, another drops out."""
  server, book = server_of(make)
  client = client_lib.build(make, run=RUN)
  round_fn, want = cases.program(make, 2, 0)
  state, simulated = want, traffic.Ledger.empty(cases.POPULATION, cases.DENSE)
  weight = np.arange(8, dtype=np.float32)
  outcome = np.array([0, 1, 1, 3, 1, 1, 1, 1])
  for r in range(3):
    cohort = cases.full_participation(r)
    box = server.open(state, cohort.ids, weight)
    for n in (5, 1, 7, 2, 6, 4):
      assert box.receive(answer(client, state, cohort, n)) is Verdict.TAKEN
    state, row = box.close()
    participants = cohort._replace(weight=np.where(outcome == 1, weight, 0))
    want, metrics = round_fn(cases.HP, want, participants, cases.KEY)
    chex.assert_trees_all_close(state, want, rtol=0, atol=1e-6)
    moved = simulated.charge(
      cohort.ids, weight, metrics['uplink_bytes'], metrics['downlink_bytes'],
      outcome,
    )  # fmt: skip
    one = {k: metrics[k].item() for k in ('participants', 'finite')}
    assert row == moved | one | {'round': r, 'rejected_clients': 0}
  assert book.totals() == simulated.totals()


def unfit(case):
  """The reason why an algorithm cannot run over messages."""
  try:
    server_of(case.make)
  except ValueError as e:
    return str(e)
  return None


IDENTITY = cases.case(
  'iterative_sketching', cases.DENSE, sketch=sketches.identity()
)
NAMED = {'identity': IDENTITY} | cases.ALGORITHMS
FAST = 'identity', 'fedavg'


@laws.law(NAMED, FAST, long=NAMED.keys() - {*FAST}, group='messages')
def test_a_round_of_messages_is_the_simulated_one(name):
  if why := unfit(NAMED[name]):
    pytest.skip(why)
  check_rounds(NAMED[name].make)


@pytest.mark.parametrize(('name', 'reason'), [
  ('dp_fedavg', 'releases=1, does not run over messages'),
  ('fedsketchgate', 'must sum payloads as they come'),
  ('feedback_sign', 'more than the parameters'),
])  # fmt: skip
def test_what_messages_cannot_play_is_refused(name, reason):
  assert reason in unfit(cases.ALGORITHMS[name])


TABLE = np.ones(4, np.float32)
SAFL = messaging_clients.CASE.make
IDS = np.arange(3, dtype=np.int32)


test_bounds_are_positive = refused(
  lambda options: server_of(SAFL, **options),
  ({'max_norm': 0.0}, r'max_norm=0\.0 must be > 0'),
  ({'late_rounds': 0}, 'late_rounds=0 must be >= 1'),
)


def test_every_verdict_and_what_it_costs():
  server, book, state = start(SAFL, max_norm=2.0)
  box = server.open(state, IDS, np.array([1, 2, 0]))
  with pytest.raises(ValueError, match='must have every client once'):
    server.open(state, IDS // 2, np.ones(3))
  before = box.receive(forged(1.001 * TABLE, 0, 0))
  assert before is Verdict.TOO_LARGE  # the norm of TABLE is 2
  assert box.receive(forged(TABLE, 0, 0)) is Verdict.DUPLICATE
  assert box.receive(forged(TABLE, 0, 2)) is Verdict.UNKNOWN_CLIENT
  assert box.receive(forged(TABLE, 1, 1)) is Verdict.EARLY
  assert box.receive(forged(TABLE, 0, 1, ALIEN)) is Verdict.OTHER_RUN
  for damaged in (TABLE.reshape(2, 2), np.int32(TABLE)):
    assert box.receive(forged(damaged, 0, 1)) is Verdict.CORRUPT
  for damaged in (flipped(forged(TABLE, 0, 1)), forged(TABLE, 0, 1)[:50]):
    assert box.receive(damaged) is Verdict.CORRUPT
  new_state, row = box.close()
  chex.assert_trees_all_equal(new_state._replace(round=jnp.int32(0)), state)
  assert (row['participants'], row['rejected_clients']) == (0, 1)
  assert (row['silent_clients'], row['total_uplink_bytes']) == (1, 16)
  assert server.missing == {(0, 1)}
  with pytest.raises(ValueError, match='Round 0 is closed'):
    box.close()

  assert box.receive(forged(TABLE, 0, 2)) is Verdict.UNKNOWN_CLIENT
  late = forged(TABLE, 0, 1)
  for _ in range(2):  # billed once
    assert box.receive(late) is Verdict.LATE
    assert book.uplink_total == 32
  then = server.open(new_state, IDS, np.ones(3))
  for message in (late, forged(TABLE, 0, 2)):
    assert then.receive(message) is Verdict.LATE
  assert then.receive(forged(TABLE, 1, 0)) is Verdict.TAKEN
  assert then.receive(forged(np.nan * TABLE, 1, 1)) is Verdict.NOT_FINITE
  new, row = then.close()
  assert (row['late_clients'], row['total_uplink_bytes']) == (0, 64)
  assert (row['participants'], row['rejected_clients']) == (1, 1)
  size = 48 + 16  # a header and a table
  assert then.received == {
    Verdict.LATE: 2 * size, Verdict.TAKEN: size, Verdict.NOT_FINITE: size,
  }  # fmt: skip
  assert int(new.round) == 2
  assert row['finite']


def test_a_missing_payload_is_given_up_after_a_while():
  """Catches a set of missing clients that grows for ever."""
  server, book, state = start(SAFL, late_rounds=2)
  for r in range(4):
    box = server.open(state, IDS, np.ones(3))
    state, _ = box.close()
    assert server.missing == {(s, n) for s in (r - 1, r) if s >= 0 for n in IDS}
  assert box.receive(forged(TABLE, 1, 0)) is Verdict.LATE
  assert book.uplink_total == 0


def test_an_empty_round_is_as_finite_as_the_state_that_is_kept():
  """Catches a row about the state that an empty round throws away."""
  server, _, state = start(SAFL)
  server.hp = cases.HP._replace(server_lr=np.inf)
  new_state, row = server.open(state, IDS, np.ones(3)).close()
  chex.assert_trees_all_equal(new_state._replace(round=jnp.int32(0)), state)
  assert row['finite']


def test_a_client_without_a_finite_update_says_so():
  _, _, state = start(SAFL)
  cohort = cases.full_participation(0)
  broken = cohort._replace(
    batches=(cohort.batches[0] * np.nan, *cohort.batches[1:])
  )
  client = client_lib.build(SAFL, run=RUN)
  with pytest.raises(FloatingPointError, match=r'Round 0: .*client_id=7'):
    answer(client, state, broken, int(np.flatnonzero(cohort.ids == 7)[0]))


def test_a_schedule_reaches_the_clients_and_the_server():
  decay = lambda hp, r: hp._replace(
    client_lr=hp.client_lr * 0.5**r, server_lr=hp.server_lr * 0.5**r
  )
  make = cases.ALGORITHMS['fedavg'].make
  server, _, state = start(make, schedule=decay)
  client = client_lib.build(make, run=RUN, schedule=decay)
  state = state._replace(round=jnp.int32(1))
  cohort = cases.full_participation(0)
  box = server.open(state, cohort.ids, cohort.weight)
  box.receive(answer(client, state, cohort, 0))
  state, _ = box.close()
  lower = decay(cases.HP, 1)
  local = make(lower).local
  batches = jax.tree.map(lambda x: x[0], cohort.batches)
  moved, _ = local(cases.PARAMS, batches, None, None)
  want = jax.tree.map(lambda p, m: p - lower.server_lr * m, cases.PARAMS, moved)
  chex.assert_trees_all_close(state.params, want, rtol=0, atol=1e-6)
