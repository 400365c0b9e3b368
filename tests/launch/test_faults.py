"""Real processes: killed, stopped by a signal, and out of space."""

import json
import random
import signal
import subprocess
import sys

from launch import STOPPED
import pytest
import runs
from runs import EVERY_ROUND, QUICK, ROOT, finish, kill_at, launch, rows, start


@pytest.mark.long
def test_killed_at_three_random_rounds_ends_with_the_same_bits(tmp_path):
  whole, cut = tmp_path / 'whole', tmp_path / 'cut'
  finish(launch(whole, *EVERY_ROUND))
  draw = random.Random(0)
  points = [draw.randrange(low, low + 8) for low in (1, 13, 25)]
  killed = [kill_at(cut, point, EVERY_ROUND) for point in points]
  assert killed == [-signal.SIGKILL] * 3
  finish(launch(cut, *EVERY_ROUND))
  assert rows(cut) == rows(whole)
  runs.have_equal_parameters(whole, cut)


def test_sigterm_saves_and_asks_to_be_started_again(tmp_path):
  endless = ['--config.rounds=100000', '--config.checkpoint_every=99999']
  endless += ['--config.server_optimizer=yogi', '--config.eps=0.01']
  endless += ['--config.sketch.size=400', '--config.partition=dirichlet']
  endless += ['--config.alpha=0.5']
  workdir = tmp_path / 'run'
  process, log = launch(workdir, *EVERY_ROUND, *endless)
  runs.wait_for_rows(workdir, 1, process, log)
  process.terminate()
  text = finish((process, log), status=STOPPED)
  assert 'the same command goes on' in text
  done = len(rows(workdir))
  assert (workdir / 'checkpoints' / str(done)).is_dir()


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--config.clint_lr=1', 'clint_lr'),
    ('--config.server_lr=-1', 'Expected server_lr=-1'),
    ('--config.dataset=mnist', 'mnist'),
  ],
)
def test_bad_flags_end_with_a_message_and_no_traceback(flag, message, tmp_path):
  process, log = launch(tmp_path / 'run', flag, f'--data_dir={tmp_path}')
  assert process.wait(60) not in (0, None)
  assert message in log.read_text()
  assert 'Traceback' not in log.read_text()


DEFECT = """
import runpy
from fl_sketch import models
def broken(*_):
  raise ValueError('a defect')
models.init_params = broken
runpy.run_module('launch.train', run_name='__main__')
"""


def test_a_defect_keeps_its_traceback(tmp_path):
  """Catches a bug in flax, or in a user's loader, shown as a bad config."""
  log = tmp_path / 'log'
  process = start(['-c', DEFECT, QUICK, f'--workdir={tmp_path}/run'], log)
  assert process.wait(60) == 1
  assert 'in broken' in log.read_text()


def in_small_disk(script, size='800k'):
  """A shell command that runs a script with a small disk on its own `disk`."""
  mount = f'mount -t tmpfs -o size={size} tmpfs disk && {script}'
  return ['unshare', '--map-root-user', '--mount', 'sh', '-c', mount]


def may_mount(folder):
  """Whether this system can mount a small disk for a test."""
  (folder / 'disk').mkdir()
  try:
    tried = subprocess.run(
      in_small_disk('true'), cwd=folder, check=False, capture_output=True
    )
  except FileNotFoundError:
    return False
  return tried.returncode == 0


@pytest.mark.long
def test_a_full_disk_loses_nothing(tmp_path):
  """It fills while a checkpoint is written; with room the run resumes."""
  if not may_mount(tmp_path):
    pytest.skip('unshare --mount: this system has no small disks for users')
  flags = ['--config=configs/quickstart.py:quick', *EVERY_ROUND]
  flags += ['--config.keep_checkpoints=100']
  train = f'{sys.executable} -m launch.train --workdir={tmp_path}/disk/run '
  keep = f'; status=$?; cp -r disk/run {tmp_path}; exit $status'
  script = f'(cd {ROOT}; {train}{" ".join(flags)}) > log 2>&1{keep}'
  done = subprocess.run(in_small_disk(script), cwd=tmp_path, check=False)
  log = (tmp_path / 'log').read_text()
  assert done.returncode == 1, log[-3000:]
  assert 'SaveError: The checkpoint of round' in log
  assert 'No space left on device' in log
  saved = [
    int(p.name) for p in (tmp_path / 'run/checkpoints').glob('[0-9]*[0-9]')
  ]
  assert f'The last good one is {max(saved)}. Make room' in log

  finish(launch(tmp_path / 'run', *flags[1:]))
  finish(launch(tmp_path / 'whole', *flags[1:]))
  assert rows(tmp_path / 'run') == rows(tmp_path / 'whole')


@pytest.mark.long
def test_a_full_disk_while_logging_is_said(tmp_path):
  if not may_mount(tmp_path):
    pytest.skip('unshare --mount: this system has no small disks for users')
  train = f'{sys.executable} -m launch.train --workdir={tmp_path}/disk/run '
  flags = '--config=configs/quickstart.py:quick --config.rounds=10000 '
  flags += '--config.eval_every=10000 --config.checkpoint_every=10000'
  script = f'(cd {ROOT}; {train}{flags}) > log 2>&1'
  done = subprocess.run(
    in_small_disk(script, '100k'), cwd=tmp_path, check=False
  )
  log = (tmp_path / 'log').read_text()
  assert done.returncode == 1, log[-3000:]
  assert 'metrics.jsonl' in log
  assert 'Make room' in log
  assert 'Traceback' not in log


@pytest.mark.long
def test_a_truncated_checkpoint_costs_the_rounds_since_the_one_before(tmp_path):
  whole, cut = tmp_path / 'whole', tmp_path / 'cut'
  finish(launch(whole, *EVERY_ROUND))
  assert kill_at(cut, 14, EVERY_ROUND) == -signal.SIGKILL
  steps = sorted(int(p.name) for p in (cut / 'checkpoints').glob('*[0-9]'))
  newest = cut / 'checkpoints' / str(steps[-1])
  for path in newest.rglob('d/*'):
    path.write_bytes(path.read_bytes()[:-10])
  log = finish(launch(cut, *EVERY_ROUND))
  assert 'cannot be read' in log
  assert f'going back to round {steps[-2]}' in log
  assert rows(cut) == rows(whole)


@pytest.mark.long
def test_a_checkpoint_of_another_version_is_refused(tmp_path):
  workdir = tmp_path / 'run'
  assert kill_at(workdir, 14, EVERY_ROUND) == -signal.SIGKILL
  steps = [int(p.name) for p in (workdir / 'checkpoints').glob('*[0-9]')]
  counts = workdir / 'checkpoints' / str(max(steps)) / 'counts' / 'metadata'
  counts.write_text(json.dumps(json.loads(counts.read_text()) | {'format': 9}))
  before = rows(workdir)
  process, log = launch(workdir, *EVERY_ROUND)
  assert process.wait(60) == 1
  text = log.read_text()
  assert 'is of format 9, this version reads 2' in text
  assert 'Traceback' not in text
  assert rows(workdir) == before  # a start that is refused changes nothing
