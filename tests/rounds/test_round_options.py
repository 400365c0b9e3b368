"""Placement of state and skipped lanes change no number of a round."""

import cases
import chex
from fl_sketch import rounds
from fl_sketch.rounds import client_loop, comms, mesh as mesh_lib
from fl_sketch.runs import client_state
import jax
import jax.numpy as jnp
import numpy as np
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
  weight = jnp.array([0.0, 0.0, 3.0, 2.0, 0.0, 0.0, 0.0])
  total, each = jax.jit(fn)(weight)
  jax.effects_barrier()
  assert float(total) == 13.0
  np.testing.assert_array_equal(each, weight)
  assert len(calls) == 2 // clients_per_step + 2  # a chunk makes one call
