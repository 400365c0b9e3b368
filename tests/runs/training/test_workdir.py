"""The folder of a run: when it is finished, and who reads it while it grows."""

import dataclasses
import json
import os

from fl_sketch.runs import config, same_run, workdir
from fl_sketch.utils import files
from harness import DP
import pytest

OLD = config.Config(client_lr=0.1)


def test_a_run_without_rows_is_not_finished(tmp_path):
  """Catches a start that looks for the last of no rows."""
  (tmp_path / 'summary.json').write_text('{"round": 3}')
  assert not workdir.is_finished(tmp_path, 4)
  (tmp_path / 'metrics.jsonl').touch()
  assert not workdir.is_finished(tmp_path, 4)
  (tmp_path / 'metrics.jsonl').write_text('{"round": 3}\n')
  assert workdir.is_finished(tmp_path, 4)


PRIVATE = DP | {'sampling': 'cyclic', 'population': 6, 'cohort': 3}
LANES = {'clients_per_step'}


@pytest.mark.parametrize(('fields', 'fixed'), [
  ({'final_server_lr': 1e-5}, set()),
  (PRIVATE, LANES),
  (PRIVATE | {'client_schedule': 'cosine'}, LANES | {'rounds'}),
  (PRIVATE | {'noise_multiplier': None, 'epsilon': 1.0}, LANES | {'rounds'}),
  (PRIVATE | {'noise': 'banded', 'noise_bands': 2}, LANES | {'rounds'}),
])  # fmt: skip
def test_fields_on_which_earlier_rounds_depend_stay(fields, fixed, tmp_path):
  """Catches a rate that decays over other rounds, and noise of another size."""
  c = config.Config(**fields)
  assert same_run.resumable(OLD) - same_run.resumable(c) == fixed
  (tmp_path / 'config.json').write_text(json.dumps(files.as_json(c)))
  for name in same_run.resumable(OLD) - {'plugins'}:
    other = dataclasses.replace(c, **{name: 3})
    free = same_run.resumable(other)
    if name in fixed:
      with pytest.raises(workdir.WorkdirError, match=name):
        same_run.check_config(tmp_path, other, free)
    else:
      same_run.check_config(tmp_path, other, free)


def records(folder, c=OLD, **more):
  number = lambda row: row['point']
  return workdir.Records(folder, c, 'points.jsonl', number, **more)


def test_records_are_read_where_nobody_else_writes(tmp_path, monkeypatch):
  """Catches rows that another process adds after they are read."""
  first, lock = records(tmp_path), workdir.lock
  with pytest.raises(workdir.WorkdirError, match=f'process {os.getpid()}'):
    records(tmp_path, may_change=lambda old: pytest.fail('not locked'))
  first.add(1, {'point': 1})
  first.close()

  def late(folder):
    (folder / 'points.jsonl').write_text('{"point": 1}\n{"point": 2}\n')
    return lock(folder)

  with monkeypatch.context() as patched:
    patched.setattr(workdir, 'lock', late)
    again = records(tmp_path)
  assert again.rows.keys() == {1, 2}
  again.close()
  for _ in range(2):  # a folder that is refused is not locked
    with pytest.raises(workdir.WorkdirError, match='client_lr'):
      records(tmp_path, config.Config(client_lr=0.2))
