"""Cohorts laid out by process, and per-client state on the host."""

import itertools

from fl_sketch import rounds, runs
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import client_state, cohort_feed
from harness import SMALL
import jax
import jax.numpy as jnp
import numpy as np
import pytest

PADDING = rounds.PADDING_ID


def sampled(seed, population=23, size=9):
  rng = np.random.default_rng(seed)
  ids = np.full(size + 2, population, np.int32)  # as samplers pad
  ids[:size] = np.sort(rng.choice(population, size, replace=False))
  weight = np.where(ids < population, rng.random(size + 2), 0)
  return rounds.Cohort(ids, weight, {'x': 10 * ids}, byzantine=ids % 2 == 0)


@pytest.mark.parametrize('processes', [1, 2, 5])
def test_every_client_is_with_the_process_that_has_it(processes):
  cohort = sampled(seed=processes)
  lanes = cohort_feed.fullest(cohort, 23, processes)
  starts = cohort_feed.starts(23, processes)
  laid = cohort_feed.by_process(cohort, 23, processes, lanes)
  assert laid.ids.shape == (processes * lanes,)
  blocks = laid.ids.reshape(processes, lanes)
  edges = itertools.pairwise(starts)
  for block, (first, stop) in zip(blocks, edges, strict=True):
    real = block[block != PADDING]
    assert all((first <= real) & (real < stop))
  order = np.argsort(laid.ids)[:9]
  np.testing.assert_array_equal(laid.ids[order], cohort.ids[:9])
  np.testing.assert_array_equal(laid.weight[order], cohort.weight[:9])
  np.testing.assert_array_equal(laid.batches['x'][order], 10 * cohort.ids[:9])
  np.testing.assert_array_equal(laid.byzantine[order], cohort.byzantine[:9])
  assert np.count_nonzero(laid.weight) == 9


@pytest.mark.parametrize('per_dispatch', [1, 2])
@pytest.mark.parametrize('where', ['device', 'host'])
def test_the_feed_makes_what_the_sampler_draws(per_dispatch, where):
  fields = {'rounds_per_dispatch': per_dispatch, 'feed': where}
  exp = runs.build(SMALL | fields)
  mesh = mesh_lib.cohort_mesh(2)
  feed = cohort_feed.CohortFeed(exp, mesh, fetch=where == 'host')
  for done in range(0, 4, per_dispatch):
    cohorts, placed = feed.take(done)
    for i, cohort in enumerate(cohorts):
      want = exp.sample(done + i)
      np.testing.assert_array_equal(cohort.ids, want.ids)
      at = i if per_dispatch > 1 else ...
      got = jax.tree.map(lambda x, at=at: x[at], placed.batches)
      batches = want.batches
      if where == 'host':
        batches = exp.fetch(exp.data, batches)
      jax.tree.map(np.testing.assert_array_equal, got, batches)
  feed.close()


def state_of(population):
  """Rows of two leaves that begin at 7 and at 0."""
  rows = {'a': jnp.full((population, 3), 7.0), 'b': jnp.zeros((population, 2))}
  nothing = comms.PerClient(())
  return rounds.FedState(
    jnp.int32(0), {}, comms.PerClient(rows), (nothing, jnp.zeros(4)), ()
  )


def host_rows(tmp_path, clients):
  mesh = mesh_lib.cohort_mesh(1)
  return client_state.OnHost(mesh, state_of(1), clients, tmp_path)


def play(rows, state, rounds_of_ids):
  for ids in rounds_of_ids:
    state = rows.attach(state, np.array(ids))
    add = lambda x: x + 1
    state = state._replace(encode=jax.tree.map(add, state.encode))
    rows.keep(state, np.array(ids))
  return state


def test_rows_are_found_again_and_padding_has_none(tmp_path):
  rows = host_rows(tmp_path, range(10, 20))
  state = play(rows, state_of(1), [[11, 19, PADDING], [11, 12, PADDING]])
  saved = rows.saved(state)
  assert saved.ids.tolist() == [11, 12, 19]
  assert saved.rows[0][:, 0].tolist() == [9.0, 8.0, 8.0]
  assert saved.rows[1][:, 0].tolist() == [2.0, 1.0, 1.0]
  assert not list(tmp_path.iterdir())  # the file has no name


def test_rows_written_by_any_processes_are_read_by_any_others(tmp_path):
  """Two processes write; one, three, and one with state on devices read."""
  parts = []
  for clients, ids in ((range(0, 4), [1, 3]), (range(4, 8), [4, 7])):
    rows = host_rows(tmp_path, clients)
    parts.append(rows.saved(play(rows, state_of(1), [ids, ids[:1]])))
  want = {1: 9.0, 3: 8.0, 4: 9.0, 7: 8.0}
  for processes in (1, 3):
    values_by_id = {}
    for first, stop in itertools.pairwise(cohort_feed.starts(8, processes)):
      rows = host_rows(tmp_path, range(first, stop))
      saved = rows.saved(rows.restored(state_of(1), parts))
      values = saved.rows[0][:, 0].tolist()
      values_by_id |= dict(zip(saved.ids.tolist(), values, strict=True))
    assert values_by_id == want
  on_device = client_state.OnDevice(mesh_lib.cohort_mesh(2))
  state = on_device.restored(state_of(8), parts)
  column = np.asarray(client_state.leaves(state)[0])[:, 0]
  assert column.tolist() == [want.get(i, 7.0) for i in range(8)]


def test_a_missing_part_is_refused(tmp_path):
  """Catches clients that begin again because a process's file is lost."""
  saved = client_state.Saved(np.arange(3), [np.ones((3, 100), np.float32)])
  client_state.write(tmp_path, saved)
  (path,) = tmp_path.iterdir()
  path.rename(tmp_path / 'part-0-of-2.npz')
  with pytest.raises(ValueError, match='part'):
    client_state.read(tmp_path)
