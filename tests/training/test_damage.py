"""A damaged checkpoint gives the right numbers, or one line; never others."""

import contextlib
import logging
import random
import shutil
import warnings

import cases
import chex
from fl_sketch.rounds import mesh as mesh_lib, traffic
from fl_sketch.training import checkpoints, client_state, saved_params
from fl_sketch.utils import files
import jax
import numpy as np
import pytest


@pytest.fixture
def saved(tmp_path):
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
  folder = tmp_path / 'run' / 'checkpoints'

  opened = lambda: contextlib.closing(checkpoints.Checkpoints(folder, 2, 2))
  with opened() as store:
    for r, state in states.items():
      book.charge(np.arange(3), np.ones(3), 2**40, r)
      store.save(r, state, book, rows.saved(state))

  def resume():
    with opened() as store:
      found = store.restore(first, book)
    state = rows.restored(found.state, found.rows)
    chex.assert_trees_all_equal(state, states[found.rounds_done])
    assert found.rounds_done == 2 or found.ledger.totals() == book.totals()
    return found.rounds_done

  def load():
    done, params = saved_params.newest(tmp_path / 'run', like=first.params)
    chex.assert_trees_all_equal(params, jax.device_get(states[done].params))
    return done

  return folder, load, resume


@pytest.mark.parametrize(
  'count', [20, pytest.param(300, marks=pytest.mark.long)]
)
def test_a_flipped_bit_never_gives_other_numbers(count, saved, tmp_path):
  """Catches a start, or a `load`, that does not look at checksums."""
  folder, *readers = saved
  good, draw, outcomes = tmp_path / 'good', random.Random(0), set()
  shutil.copytree(folder, good)
  for i in range(count):
    parts = folder / '4', folder / 'client_rows' / '4'
    paths = sorted(p for part in parts for p in part.rglob('*') if p.is_file())
    sizes = [path.stat().st_size for path in paths]
    # Any byte, or any file.
    (path,) = draw.choices(paths, sizes if i % 2 else map(bool, sizes))
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    for read in readers:  # the last one moves the checkpoint away
      with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        outcomes.add(done := read())
      assert (done == 2) == any('back to round 2' in str(w) for w in said), path
    shutil.rmtree(tmp_path / 'run')
    shutil.copytree(good, folder)
  assert outcomes == {2, 4}


def test_a_checkpoint_of_an_older_version_has_no_checksums(saved):
  """Catches runs that cannot go on after an update, and a raw KeyError."""
  folder, load, resume = saved
  (folder / '4' / 'digests.json').unlink()
  assert (load(), resume()) == (4, 4)
  path = folder / '4' / 'counts' / 'metadata'
  path.write_text(path.read_text().replace('devices', 'devicez'))
  with pytest.warns(UserWarning, match="KeyError: 'devices'.*round 2"):
    assert resume() == 2


def test_a_full_disk_is_one_line(tmp_path, caplog):
  """Catches a message of tensorstore, and what Orbax logs of its threads."""
  message = lambda why: f'x cannot be written: {why}.'

  @files.save_errors(message, tmp_path / 'not' / 'there')
  def write():
    logging.getLogger('absl').error('Traceback')
    raise ValueError("RESOURCE_EXHAUSTED: Error [os_error_code='28']")

  with pytest.raises(files.SaveError, match=r'^x .*: No space .*, \d.* byt'):
    write()
  logging.getLogger('absl').error('after')
  assert caplog.messages == ['after']
