"""Runs that are stopped by a signal, out of space, or wrong."""

import subprocess
import sys

from fl_sketch import models
from fl_sketch.runs import loop
import harness
from harness import EVERY_ROUND, QUICK, ROOT, finish, launch, rows
from launch.errors import STOPPED
import pytest

# Small, without an import of the images.
BOWLS = [
  '--config.dataset=quadratics', '--config.population=2', '--config.cohort=2',
  '--config.local_steps=1', '--config.batch_size=0', '--config.client_lr=0.01',
  '--cpu_devices=1',
]  # fmt: skip


@pytest.mark.nightly
def test_sigterm_saves_and_asks_to_be_started_again(tmp_path):
  endless = ['--config.rounds=100000', '--config.checkpoint_every=99999']
  flags, workdir = [*EVERY_ROUND, *endless, *BOWLS], tmp_path / 'run'
  config = '--config=configs/digits_fedavg.py'
  process, log = launch(workdir, *flags, config=config)
  harness.wait_for_rows(workdir, 1, process, log)
  process.terminate()
  text = finish((process, log), status=STOPPED)
  assert 'run the same command to resume' in text
  done = len(rows(workdir))
  assert (workdir / 'checkpoints' / str(done)).is_dir()


def test_a_finished_run_is_compared_and_not_computed(tmp_path, monkeypatch):
  """Catches a second start that computes, writes, or does not compare."""
  flags = ['--config=configs/digits_fedavg.py', f'--workdir={tmp_path}', *BOWLS]
  flags += [f'--config.{name}=2' for name in ('rounds', 'eval_every')]
  flags += ['--config.rounds_per_dispatch=1']
  first = harness.command('train', *flags)
  assert first.returncode == 0, first.stderr
  files = {p: p.stat().st_mtime_ns for p in tmp_path.rglob('*')}
  monkeypatch.delattr(loop, 'train')
  again = harness.command('train', *flags)
  assert (again.returncode, again.stdout) == (0, first.stdout)
  assert again.stdout.startswith('Done after ')
  rate = harness.command('train', *flags, '--config.client_lr=2')
  assert 'client_lr: 0.01 then, 2.0 now' in rate.stderr
  path = tmp_path / 'problem.json'
  record = path.read_text().replace('"data": "', '"data": "other ')
  path.write_text(record)
  other = harness.command('train', *flags)
  assert 'another problem (data' in other.stderr
  after = {p: p.stat().st_mtime_ns for p in files}
  assert {p for p in files if files[p] != after[p]} <= {path, tmp_path}


def test_a_defect_keeps_its_traceback(tmp_path, monkeypatch):
  """Catches a bug in flax, or in a user's loader, shown as a bad config."""

  def broken(*_):
    raise ValueError('a defect')

  monkeypatch.setattr(models, 'as_model', broken)
  done = harness.command('train', QUICK, f'--workdir={tmp_path}/run')
  assert done.returncode == 1
  assert 'in broken' in done.stderr


def fill_disk(folder, size, *flags):
  """Trains until a small disk is full; returns the output, or skips."""
  train = f'{sys.executable} -m launch train {QUICK} {" ".join(flags)}'
  script = f"""
  mkdir disk && mount -t tmpfs -o size={size} tmpfs disk || exit
  (cd {ROOT}; {train} --workdir={folder}/disk/run) > log 2>&1; status=$?
  cp -r disk/run .; exit $status
  """
  command = [*'env unshare --map-root-user --mount sh -c'.split(), script]
  done = subprocess.run(command, cwd=folder, check=False)
  if not (folder / 'log').exists():
    pytest.skip('unshare --mount: this system has no small disks for users')
  log = (folder / 'log').read_text()
  assert done.returncode == 1, log[-3000:]
  return log


def steps_of(workdir):
  """The rounds of the checkpoints of a run, in order."""
  return sorted(int(p.name) for p in (workdir / 'checkpoints').glob('*[0-9]'))


@pytest.mark.long
def test_a_full_disk_loses_nothing(tmp_path):
  """It fills while a checkpoint is written; with room the run resumes."""
  flags = [*EVERY_ROUND, '--config.keep_checkpoints=100']
  log = fill_disk(tmp_path, '800k', *flags)
  assert 'SaveError' in log
  assert 'Traceback' not in log
  assert f'last good one is {steps_of(tmp_path / "run")[-1]}.' in log
  finish(launch(tmp_path / 'run', *flags))
  finish(launch(tmp_path / 'whole', *flags))
  assert rows(tmp_path / 'run') == rows(tmp_path / 'whole')
