"""Schedules, keys, placement of state, skipped lanes, replay of rounds."""

import cases
from cases import ALGORITHMS, HP, KEY, jit, one_absent, start
import chex
from fl_sketch import codecs, rounds
from fl_sketch.rounds import (
  client_loop,
  comms,
  error_feedback,
  keys,
  mesh as mesh_lib,
)
from fl_sketch.runs import client_state
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest


def each_make(fast):
  return cases.law(cases.ONE_EACH, fast=[fast], field='make')


@each_make('scaffold')
def test_rows_on_the_host_and_lanes_that_are_skipped(make, tmp_path):
  want, _ = cases.play(make)
  mesh = mesh_lib.cohort_mesh(2)
  one = rounds.init(make(cases.HP), cases.params_of(make), 1)
  round_fn, _ = cases.program(make, 2, rows_of='cohort', skip_absent=True)
  rows = client_state.OnHost(mesh, one, range(cases.POPULATION), tmp_path)
  state = mesh_lib.place(mesh, one)
  for r in range(5):
    cohort = cases.cohorts_of(make)(r)
    state = rows.attach(state, cohort.ids)
    state, _ = round_fn(cases.HP, state, cohort, cases.KEY, *cases.secret(make))
    rows.keep(state, cohort.ids)
  chex.assert_trees_all_close(state.params, want.params, atol=1e-6)
  chex.assert_trees_all_close(state.server, want.server, atol=1e-6)
  host = rows.saved(state)
  for row, all_rows in zip(host.rows, client_state.leaves(want), strict=True):
    np.testing.assert_allclose(row, all_rows[host.ids], atol=1e-6)


@pytest.mark.nightly
@each_make('safl_adam')
def test_a_server_in_parts_is_the_server(make):
  want, _ = cases.play(make)
  round_fn, state = cases.program(make, 2, shard_server=True)
  for r in range(5):
    rest = cases.cohorts_of(make)(r), cases.KEY, *cases.secret(make)
    state, _ = round_fn(cases.HP, state, *rest)
  chex.assert_trees_all_close(state.params, want.params, atol=1e-6)
  chex.assert_trees_all_close(state.server, want.server, atol=1e-6)
  slices = mesh_lib.shardings_over(mesh_lib.cohort_mesh(2), state.server)

  def check(x, sharding):
    assert x.sharding.is_equivalent_to(sharding, x.ndim)
    if x.ndim:  # every array of these models has an even axis
      assert 2 * x.addressable_shards[0].data.size == x.size

  jax.tree.map(check, state.server, slices)
  assert all(x.is_fully_replicated for x in jax.tree.leaves(state.params))


@pytest.mark.parametrize('clients_per_step', [1, 2])
def test_lanes_that_are_skipped_are_not_worked_on(clients_per_step):
  """Catches a chunk that is skipped whole because of one absent client."""
  calls = []

  def work(weight):
    jax.debug.callback(lambda: calls.append(1))
    return weight, weight, weight, ()

  def body(weight):
    present = lambda lane: lane > 0
    sums, _ = client_loop.sum_over_lanes(
      work, weight, clients_per_step, present
    )
    one = lambda lane: work(lane)[0]
    each = client_loop.map_clients(one, weight, 1, present)
    return comms.Shards().total(sums.total), each

  out = jax.P(), jax.P(comms.SHARD)
  mesh = mesh_lib.cohort_mesh(1)
  fn = jax.shard_map(body, mesh=mesh, in_specs=out[1], out_specs=out)
  weight = jnp.array([0.0, 0.0, 3.0, 2.0, 0.0, 1.0, 0.0])
  total, each = jax.jit(fn)(weight)
  jax.effects_barrier()
  assert float(total) == 14.0
  np.testing.assert_array_equal(each, weight)
  assert len(calls) == {1: 3, 2: 2}[clients_per_step] + 3  # one of a chunk


# Broadcasts that are codes, or of which clients make directions again.
CODED = [
  name
  for name, case in cases.ALGORITHMS.items()
  if 'downlink_codec' in case.options
  or case.name in ('decomfl', 'fedkseed', 'ferret')
]
NAMES = dict.fromkeys([*cases.ONE_EACH, 'safl_amsgrad', 'safl_yogi', *CODED])


@cases.law(NAMES, fast=['fedkseed'])
@pytest.mark.nightly
def test_a_client_that_was_away_replays_what_it_missed(case):
  """Bit for bit through the server's program; within 1e-6 of whole rounds."""
  mesh = mesh_lib.cohort_mesh(2)
  cohort_fn = cases.jit(rounds.cohort_step(case.make, mesh))
  server_fn = cases.jit(rounds.server_step(case.make))
  server, heard, states = cases.start(case.make, mesh), [], []
  rest = KEY, *cases.secret(case.make)
  for r in range(51):
    states.append(server)
    cohort = cases.cohorts_of(case.make)(r)
    sent, server, metrics = cohort_fn(HP, server, cohort, *rest)
    server = server_fn(HP, sent, server, KEY)
    if isinstance(sent, dict) and 'factors' in sent:
      if metrics['downlink_bytes'] < comms.nbytes(sent):  # they are not due
        lost = lambda x: jnp.full_like(x, np.nan)
        sent = sent | {'factors': jax.tree.map(lost, sent['factors'])}
        assert metrics['downlink_bytes'] == comms.nbytes(sent['table'])
    heard.append(sent)
  replicated = lambda state: jax.device_get((state.params, state.server))
  for missed in (1, 5, 50):
    client = states[-missed]
    for sent in heard[-missed:]:
      client = server_fn(HP, sent, client, KEY)
    chex.assert_trees_all_equal(replicated(client), replicated(server))
  fused, _ = cases.play(case.make)
  chex.assert_trees_all_close(states[5].params, fused.params, atol=1e-6)
  if case.name in ('safl', 'cd_adam', 'onebit_adam'):
    assert optax.tree.norm(server.server) > 1e-3  # there are moments


def test_a_schedule_sets_what_a_round_is_given():
  make, mesh = ALGORITHMS['fedavg'].make, mesh_lib.cohort_mesh()

  def halved(hp, r):
    return hp._replace(client_lr=hp.client_lr * 0.5**r, server_lr=1.0 / (1 + r))

  scheduled = jit(rounds.run_round(make, mesh, schedule=halved))
  plain = jit(rounds.run_round(make, mesh))
  states = [start(make, mesh) for _ in range(2)]
  for r in range(3):
    cohort = one_absent(r)
    states = [
      scheduled(HP, states[0], cohort, KEY)[0],
      plain(halved(HP, jnp.int32(r)), states[1], cohort, KEY)[0],
    ]
  chex.assert_trees_all_close(states[0].params, states[1].params, rtol=1e-6)


@pytest.mark.parametrize('name', ['scaffold', 'feddyn'])
def test_the_state_of_a_link_is_found_by_its_type_and_by_name(name):
  """Catches what a model's parameters of the same names would mix up."""
  case = ALGORITHMS[name]
  params = {'client': jnp.zeros(9), 'offset': jnp.ones(9)}
  state = rounds.init(case.make(case.hp), params, 8)
  link = state.protocol[0]
  assert rounds.state_of(state, type(link)) is link
  assert rounds.state_of(state, type(link).__name__) is link


@pytest.mark.nightly
def test_a_broadcast_has_the_draws_of_its_round():
  """Catches errors of a downlink codec that every round repeats."""
  encoder, *_ = error_feedback.broadcast(codecs.qsgd(1), lambda params: params)
  mean = jnp.linspace(-1, 1, 50)
  of = lambda r: {'keys': keys.round_keys(KEY, r)}
  encode = lambda r: encoder.update_fn(mean, (), **of(r))[0]
  first, again, other = (encode(r)[0] for r in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()


def test_every_stream_round_and_client_has_its_own_key():
  words = lambda key: tuple(jax.random.key_data(key).tolist())
  bits = [words(keys.round_keys(KEY, 0).run)]
  for r in range(20):
    k = keys.round_keys(KEY, r)
    assert words(k.run) == bits[0]
    bits += [words(k.round), words(k.client)]
    bits += [words(keys.for_client(k, i).client) for i in range(20)]
  assert len(set(bits)) == len(bits)
