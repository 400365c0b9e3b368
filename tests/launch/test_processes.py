"""Runs of several processes, and runs that are stopped, full or wrong."""

import re
import signal
import subprocess
import sys
from unittest import mock

import cases
import chex
from fl_sketch import models
from fl_sketch.rounds import peers
from fl_sketch.runs import loop
import harness
from harness import (
  EVERY_ROUND,
  QUICK,
  ROOT,
  finish,
  finish_all,
  launch,
  launch_all,
  parameters,
  rows,
)
import jax
from jax.experimental import multihost_utils
from launch import errors
from launch.errors import STOPPED
import numpy as np
import pytest

GONE = r'Another process is gone|another task died'
ENDLESS = ['--config.rounds_per_dispatch=1', '--config.checkpoint_every=50']
DIGITS = '--config=configs/digits_fedavg.py'
ROWS = [
  '--config.algorithm=scaffold', '--config.client_lr=0.02',
  '--config.rounds_per_dispatch=1', '--config.eval_every=10',
  '--config.checkpoint_every=10',
]  # fmt: skip

# What XLA said of a process that was killed, and what it may say of others.
PEER = 'external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer'
LOST = [
  f'UNKNOWN: Gloo AllGather failed: [{PEER} [127.0.0.1]:39817',
  'UNAVAILABLE: Failed to send RPC to coordination service.',
  'DEADLINE_EXCEEDED: Barrier timed out.',
  'INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: Task 1 '
  'heartbeat timeout. [type.googleapis.com/tensorflow.CoordinationServiceError',
  'INTERNAL: NCCL operation ncclAllReduce failed: remote process exited',
]
OTHER = [
  'RESOURCE_EXHAUSTED: Out of memory: loop_fusion.3\nNCCL buffers: 0 bytes',
  'INTERNAL: while loop body: lookup of the Bloom filter is UNAVAILABLE',
  'Expected shapes (3,) and (4,) to be equal.',
]


@pytest.mark.parametrize('message', LOST + OTHER)
def test_only_the_error_of_a_lost_peer_is_one(message, monkeypatch):
  """Catches a defect of a program that is reported as a dead machine."""
  printed, lost = [], message in LOST
  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  for kind in (ValueError, jax.errors.JaxRuntimeError):
    failed = mock.Mock(side_effect=kind(message))
    monkeypatch.setattr(multihost_utils, 'process_allgather', failed)
    with pytest.raises(peers.PeerLostError if lost else kind) as error:
      peers.any_process(True)
    assert str(error.value) == message
  monkeypatch.setattr(errors, '_end', printed.append)
  errors.leave(jax.errors.JaxRuntimeError(message))
  assert 'JaxRuntimeError' in printed[0]
  assert message in printed[0]
  assert ('Another process is gone' in printed[0]) == lost


def close(a, b):
  """Two histories of metrics that differ in rounding."""
  losses = [[row.pop('train_loss') for row in history] for history in (a, b)]
  np.testing.assert_allclose(*losses, rtol=1e-3, atol=1e-4)
  for row in (*a, *b):
    for name in {'test_loss', 'test_accuracy'} & row.keys():
      row[name] = None
  assert a == b


@pytest.mark.long
@pytest.mark.filterwarnings('ignore:Resuming on 2 devices')
@pytest.mark.parametrize('count', [1, 4])
def test_a_run_of_two_processes_resumes_on_other_numbers(count, tmp_path):
  """Also for control variates, which each process has for its clients."""
  one, two = tmp_path / 'one', tmp_path / 'two'
  half, whole = ([*ROWS, f'--config.rounds={n}'] for n in (10, 20))
  finish(launch(one, *whole, config=DIGITS))
  finish_all(launch_all(two, 2, *half, config=DIGITS))
  parts = (two / 'checkpoints' / 'client_rows' / '10').iterdir()
  assert {x.name for x in parts} == {f'part-{i}-of-2.npz' for i in range(2)}
  finish_all(launch_all(two, count, *whole, config=DIGITS))
  close(rows(one), rows(two))
  chex.assert_trees_all_close(
    parameters(one), parameters(two), rtol=1e-7, atol=1e-4
  )


SAMPLED = ['--config.sampling=poisson', '--config.cohort=200']
# What follows the sum is exact: 512 is a power of two, and there is no sketch.
PLAIN = [
  '--config.algorithm=dp_fedavg', '--config.server_optimizer=none',
  '--config.final_server_lr=none', '--config.server_lr=1.0',
  '--config.population=512', '--config.cohort=512',
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize('flags', [PLAIN, SAMPLED], ids=['plain', 'sampled'])
def test_private_sums_of_two_processes_are_those_of_one(flags, tmp_path):
  """Catches sums that depend on who adds up what, and lanes for clients."""
  one, two = tmp_path / 'one', tmp_path / 'two'
  numbers = {'rounds': 4, 'checkpoint_every': 4, 'eval_every': 4}
  numbers |= {'rounds_per_dispatch': 2, 'noise_seed': 0}
  of_run = [f'--config.{name}={number}' for name, number in numbers.items()]
  private = '--config=configs/quickstart.py:private'
  finish(launch(one, *of_run, *flags, '--cpu_devices=2', config=private))
  finish_all(launch_all(two, 2, *of_run, *flags, config=private))
  trees = parameters(one), parameters(two)
  if flags is SAMPLED:
    chex.assert_trees_all_close(*trees, rtol=1e-4, atol=1e-5)
  else:
    chex.assert_trees_all_equal(*trees)


@pytest.mark.long
@pytest.mark.parametrize('victim', [0, 1])
def test_a_run_whose_process_is_killed_resumes_with_the_same_bits(
  victim, tmp_path
):
  """Catches a peer that waits for a dead process, and its lost rounds."""
  whole, cut = tmp_path / 'whole', tmp_path / 'cut'
  finish_all(launch_all(whole, 2, *EVERY_ROUND))
  both = launch_all(cut, 2, *EVERY_ROUND)
  harness.wait_for_rows(cut, 5, *both[0])
  both[victim][0].send_signal(signal.SIGKILL)
  both[victim][0].wait(60)
  survivor, log = both[1 - victim]
  assert survivor.wait(60) != 0
  assert re.search(GONE, log.read_text()), log.read_text()[-3000:]
  finish_all(launch_all(cut, 2, *EVERY_ROUND))
  assert rows(cut) == rows(whole)
  chex.assert_trees_all_equal(parameters(whole), parameters(cut))


@pytest.mark.long
def test_a_process_ends_when_its_peer_hangs(tmp_path):
  workdir = tmp_path / 'run'
  both = launch_all(workdir, 2, '--config.rounds=100000', *ENDLESS)
  harness.wait_for_rows(workdir, 5, *both[0])
  both[1][0].send_signal(signal.SIGSTOP)
  try:
    assert both[0][0].wait(60) != 0
  finally:
    both[1][0].kill()
    both[1][0].wait(60)


@pytest.mark.long
def test_algorithms_are_the_same_on_two_processes(tmp_path):
  for restored in harness.in_processes(tmp_path, 2, *cases.FIRST):
    for name, case in cases.FIRST.items():
      want, _ = cases.play(case.make, 1)
      chex.assert_trees_all_close(restored[name], want.params, atol=1e-5)


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


@pytest.mark.nightly
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
  # A thread of orbax may end after its loop, of which asyncio prints a trace.
  ours = re.findall(r'File ".*/(?:fl_sketch|launch)/.*', log)
  assert not ours
  assert f'last good checkpoint is {steps_of(tmp_path / "run")[-1]}.' in log
  finish(launch(tmp_path / 'run', *flags))
  finish(launch(tmp_path / 'whole', *flags))
  assert rows(tmp_path / 'run') == rows(tmp_path / 'whole')
