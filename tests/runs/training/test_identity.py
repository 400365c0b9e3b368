"""What a record of a problem holds, and what it does not depend on."""

import json

from fl_sketch import runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import config, same_run
from fl_sketch.utils import digests
import harness
import numpy as np
from own_problem import PRIVATE, build, private, record, store_of
import pytest

FRESH = """
import json
from fl_sketch.runs import same_run
import own_problem
print(json.dumps(same_run.problem_of(own_problem.private())))
"""


@pytest.mark.nightly
def test_a_fresh_process_makes_the_same_record():
  """Catches addresses, orders of sets and caches in a digest."""
  here = same_run.problem_of(
    private(), mesh_lib.cohort_mesh(1)
  )  # as in the other
  there = json.loads(harness.python('-c', FRESH, PYTHONHASHSEED='7'))
  assert there | {'device': here['device']} == here


def test_every_file_of_the_source_counts(tmp_path, monkeypatch):
  """Catches an upgrade under the same version number."""
  monkeypatch.setattr(digests, 'ROOT', tmp_path)
  (tmp_path / 'utils').mkdir()
  sources = {digests.of_source.__wrapped__()}
  for name, text in (('a.py', ''), ('a.py', '1'), ('b.py', '')):
    (tmp_path / 'utils' / name).write_text(text)
    sources.add(digests.of_source.__wrapped__())
  assert len(sources) == 4


def test_a_store_is_read_in_private_runs_alone(tmp_path, monkeypatch):
  """Catches a private run on a store that was changed under its times."""
  x = np.arange(48, dtype=np.uint8).reshape(12, 4)
  exp = store_of(tmp_path / 'store', x, PRIVATE)
  plain = exp._replace(guarantee=None)
  read, of_array = [], digests.of_array
  note = lambda x: read.append(isinstance(x, np.memmap)) or of_array(x)
  monkeypatch.setattr(digests, 'of_array', note)
  wanted = same_run.problem_of(plain)
  assert not any(read)
  problem = same_run.problem_of(exp)
  assert any(read)
  assert problem.pop('noise multiplier') == 1
  assert problem.pop('one round')  # which an ordinary run does not trace
  assert problem.pop('data') != wanted['data']  # with initial parameters
  assert problem.items() < wanted.items()
  in_memory = plain._replace(data={k: v[:] for k, v in plain.data.items()})
  assert same_run.problem_of(in_memory) == wanted


def test_hyperparameters_are_no_part_of_a_round():
  """Catches a resumed run, or a point of a sweep, that is refused."""
  fields = PRIVATE | {
    'noise_multiplier': 3.0, 'clip_norm': 0.5, 'client_lr': 0.3, 'rounds': 9,
    'eval_every': 3, 'rounds_per_dispatch': 4, 'seed': 1,
  }  # fmt: skip
  other = same_run.problem_of(build(fields))
  assert record(private())['one round'] == other['one round']
  point = runs.reconfigured(private(), config.Config(**fields))
  assert same_run.problem_of(point) == other
