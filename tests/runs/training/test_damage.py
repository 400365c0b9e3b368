"""Checkpoints resume at the same bits; a damaged workdir gives no others."""

import contextlib
import json
import shutil

import cases
import chex
from fl_sketch.rounds import mesh as mesh_lib, peers, traffic
from fl_sketch.runs import (
  checkpoints,
  client_state,
  same_run,
  saved_params,
  workdir,
)
from fl_sketch.utils import digests
import hypothesis
from hypothesis import strategies as st
import jax
import numpy as np
import own_problem as own
import pytest

FOLDERS = '4', 'client_rows/4'


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """Checkpoints 2 and 4 of other numbers; ways to read the newest one."""
  mesh = mesh_lib.cohort_mesh(2)
  rows, draw = client_state.OnDevice(mesh), np.random.default_rng(0)
  first = cases.start(cases.ALGORITHMS['scaffold'].make, mesh)
  # Small arrays lie where tensorstore has checksums of its own.
  large = mesh_lib.place(mesh, np.zeros(4096, np.float32))
  first = first._replace(params=(first.params, large))
  other = lambda x: (x + 99 * draw.random(x.shape)).astype(x.dtype)
  states = {r: jax.tree.map(other, first) for r in (2, 4)}
  book = traffic.Ledger.empty(cases.POPULATION, 40)
  run = tmp_path_factory.mktemp('run')
  folder = run / 'checkpoints'
  opened = lambda: contextlib.closing(checkpoints.Checkpoints(folder, 2))
  with opened() as store:
    for r, state in states.items():
      book.charge(np.arange(3), np.ones(3), 2**40, r)
      store.save(r, state, book, rows.saved(state))

  def resume():
    with opened() as store:
      restored = store.restore(first, book)
    state = rows.restored(restored.state, restored.rows)
    chex.assert_trees_all_equal(state, states[restored.rounds_done])
    last = restored.rounds_done == 4
    assert (restored.ledger.totals() == book.totals()) == last
    return restored.rounds_done

  def load():
    done, params = saved_params.newest(run, like=first.params)
    chex.assert_trees_all_equal(params, jax.device_get(states[done].params))
    return done

  return folder, load, resume


def damage(data, draw):
  """Flips a bit of some bytes, or cuts them."""
  place = draw(st.integers(0, len(data) - 1))
  if draw(st.booleans()):
    return data[:place]
  flipped = bytearray(data)
  flipped[place] ^= 1 << draw(st.integers(0, 7))
  return bytes(flipped)


def test_a_damaged_checkpoint_gives_its_numbers_or_an_error(saved):
  """Catches a start, or a `load`, that does not look at checksums."""
  folder, *readers = saved
  outcomes = set()

  @hypothesis.settings(deadline=None, derandomize=True, max_examples=40)
  @hypothesis.given(st.data())
  def check(data):
    paths = sorted(p for x in FOLDERS for p in (folder / x).rglob('*'))
    paths = [p for p in paths if p.is_file() and p.stat().st_size]
    path = data.draw(st.sampled_from(paths))
    good = path.read_bytes()
    path.write_bytes(damage(good, data.draw))
    try:
      for read in readers:
        try:
          assert read() == 4
          outcomes.add('read')
        except checkpoints.CheckpointError as e:
          outcomes.add('named' if str(folder / '4') in str(e) else str(e))
    finally:
      path.write_bytes(good)

  check()
  assert {'named'} <= outcomes <= {'named', 'read'}


@pytest.mark.parametrize('place', [0, 2**20, 2**21])
def test_a_flip_anywhere_in_a_large_file_is_refused(place, tmp_path):
  """Catches a checksum of the last megabyte alone, of which large files have
  many."""
  path = tmp_path / 'array'
  path.write_bytes(good := bytes(2**21 + 1))
  digests.seal(tmp_path)
  digests.check_seal(tmp_path)
  path.write_bytes(good[:place] + b'\x01' + good[place + 1 :])
  with pytest.raises(ValueError, match='array'):
    digests.check_seal(tmp_path)


def test_a_checkpoint_that_is_deleted_costs_its_rounds_alone(saved, tmp_path):
  """Catches an error that names a way out which does not work."""
  folder, load, resume = saved
  shutil.move(folder / 'client_rows', tmp_path)
  with pytest.raises(checkpoints.CheckpointError, match='client_rows'):
    resume()
  shutil.move(tmp_path / 'client_rows', folder)
  shutil.move(folder / '4', tmp_path)
  assert (load(), resume()) == (2, 2)
  shutil.move(tmp_path / '4', folder)


def test_processes_restore_the_same_checkpoint_or_none(saved, monkeypatch):
  """Catches a process that resumes from what another one cannot read."""
  monkeypatch.setattr(peers, 'any_process', lambda flag: True)
  with pytest.raises(checkpoints.CheckpointError):
    saved[-1]()


@pytest.fixture(scope='module')
def begun(tmp_path_factory):
  """The folder of a private run that was killed in its first round."""
  folder = tmp_path_factory.mktemp('begun')
  own.begin(folder, own.private())
  return folder


@pytest.mark.parametrize('name', ['config.json', 'problem.json'])
@hypothesis.settings(deadline=None, derandomize=True, max_examples=60)
@hypothesis.given(data=st.data())
def test_damage_of_what_a_start_compares_is_refused(name, data, begun):
  """Catches entries that are not compared, or a traceback of another kind."""
  path, exp = begun / name, own.private()
  good = path.read_bytes()
  written = json.loads(good)
  path.write_bytes(damage(good, data.draw))
  try:
    try:
      own.start(begun, exp)
    except workdir.WorkdirError:
      return
    free = same_run.resumable(exp.config) if name == 'config.json' else set()
    now = json.loads(path.read_bytes())
    same_run.check(begun, 'file', written, now, free)
  finally:
    path.write_bytes(good)


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
