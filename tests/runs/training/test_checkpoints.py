"""A restored checkpoint resumes at the same bits, for every algorithm."""

import cases
import chex
from fl_sketch.rounds import mesh as mesh_lib, traffic
from fl_sketch.runs import checkpoints, client_state
import numpy as np

# Rows of clients in both places, moments of the server, noise.
SAVED = 'scaffold', 'feedback_top_k', 'safl_adam', 'dp_fedavg'


@cases.law(cases.ONE_EACH, fast=SAVED, field='make')
def test_a_restored_state_goes_on_with_the_same_bits(make, tmp_path):
  mesh = mesh_lib.cohort_mesh(2)
  rest = cases.KEY, *cases.secret(make)
  round_fn, state = cases.program(make, 2)
  book = traffic.Ledger.empty(cases.POPULATION, 4 * cases.DIMENSION)
  rows = client_state.OnDevice(mesh)
  store = checkpoints.Checkpoints(tmp_path, keep=2)
  for r in range(4):
    if r == 2:
      book.charge(np.arange(3), np.ones(3), 2**40, 2**40)
      store.save(r, state, book, rows.saved(state))
    state, _ = round_fn(cases.HP, state, cases.cohorts_of(make)(r), *rest)

  programs = round_fn._cache_size()  # other tests may share them
  fresh = cases.start(make, mesh)
  empty = traffic.Ledger.empty(cases.POPULATION, 4 * cases.DIMENSION)
  done, restored, totals, parts = store.restore(fresh, empty)
  restored = rows.restored(restored, parts)
  assert done == store.newest == 2
  chex.assert_trees_all_equal(totals.heard, book.heard)
  assert totals.totals() == book.totals()
  for r in (2, 3):
    restored, _ = round_fn(cases.HP, restored, cases.cohorts_of(make)(r), *rest)
  chex.assert_trees_all_equal(restored, state)
  assert round_fn._cache_size() == programs  # it is placed as it was
  store.close()


def test_rows_of_a_start_that_died_are_not_taken_for_others(tmp_path):
  """Catches stale rows in a checkpoint."""
  mesh = mesh_lib.cohort_mesh(2)
  rows = client_state.OnDevice(mesh)
  state = cases.start(cases.ALGORITHMS['scaffold'].make, mesh)
  store = checkpoints.Checkpoints(tmp_path, keep=2)
  book = traffic.Ledger.empty(cases.POPULATION, 40)
  stale = tmp_path / 'client_rows' / '2'
  stale.mkdir(parents=True)
  for i in range(2):
    np.savez(stale / f'part-{i}-of-2.npz', np.arange(3), np.full((3, 10), 7.0))
  store.save(2, state, book, rows.saved(state))
  (part,) = store.restore(state, book).rows
  assert len(part.ids) == cases.POPULATION
  store.close()
