"""Real processes: killed, and several at once."""

import json
import os
import pathlib
import pickle
import random
import signal
import socket
import subprocess
import sys
import time

import cases
import chex
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[1]
QUICK = '--config=configs/quickstart.py:quick'
# A row every round and many checkpoints: a kill lands between and in them.
EVERY_ROUND = [
  '--config.rounds=40',
  '--config.rounds_per_dispatch=1',
  '--config.eval_every=7',
  '--config.checkpoint_every=3',
]


def start(command, log):
  """Starts Python in the background, its output in a file."""
  with open(log, 'w') as out:
    return subprocess.Popen(
      [sys.executable, *command],
      cwd=ROOT,
      stdout=out,
      stderr=subprocess.STDOUT,
      env=os.environ | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT)},
    )


def launch(workdir, *flags, log=None):
  log = log or workdir.with_suffix('.log')
  command = ['-m', 'launch.train', QUICK, f'--workdir={workdir}', *flags]
  return start(command, log), log


def finish(started, timeout=120):
  process, log = started
  try:
    assert process.wait(timeout) == 0, log.read_text()[-3000:]
  finally:
    process.kill()
  return log.read_text()


def rows(workdir):
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [
    {k: v for k, v in json.loads(line).items() if k != 'seconds'}
    for line in lines
  ]


def parameters(workdir):
  """The state of the newest checkpoint, read by another process."""
  out = workdir.with_suffix('.npz')
  log = workdir.with_suffix('.dump.log')
  finish((start([ROOT / 'tests' / 'dump.py', workdir, out], log), log))
  with np.load(out) as arrays:
    return dict(arrays)


def kill_at(workdir, row, flags):
  """Starts a run and kills it with SIGKILL once it has logged `row` rows."""
  process, _ = launch(workdir, *flags)
  metrics = workdir / 'metrics.jsonl'
  while process.poll() is None:
    if metrics.exists() and metrics.read_bytes().count(b'\n') >= row:
      process.kill()
    time.sleep(0.002)
  return process.returncode


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
  want, got = parameters(whole), parameters(cut)
  assert want.keys() == got.keys()
  for name in want:
    np.testing.assert_array_equal(want[name], got[name])


def test_sigterm_saves_and_exits_cleanly(tmp_path):
  endless = ['--config.rounds=100000', '--config.checkpoint_every=99999']
  endless += ['--config.server_optimizer=yogi', '--config.eps=0.01']
  endless += ['--config.sketch.size=400', '--config.partition=dirichlet']
  endless += ['--config.alpha=0.5']
  workdir = tmp_path / 'run'
  process, log = launch(workdir, *EVERY_ROUND, *endless)
  while not (workdir / 'metrics.jsonl').exists() or not rows(workdir):
    assert process.poll() is None, log.read_text()
    time.sleep(0.05)
  process.terminate()
  assert 'the same command goes on' in finish((process, log))
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


def free_port():
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


@pytest.mark.long
def test_two_processes_train_the_model_that_one_does(tmp_path):
  flags = ['--config.rounds_per_dispatch=5', '--config.eval_every=10']
  flags += ['--config.checkpoint_every=10', '--cpu_devices=1']
  finish(launch(tmp_path / 'one', *flags))
  flags += [f'--coordinator=127.0.0.1:{free_port()}', '--num_processes=2']
  both = [
    launch(
      tmp_path / 'two',
      *flags,
      f'--process_id={i}',
      log=tmp_path / f'{i}.log',
    )
    for i in range(2)
  ]
  for process in both:
    finish(process)
  assert (
    json.loads((tmp_path / 'two' / 'summary.json').read_text())['processes']
    == 2
  )
  for a, b in zip(rows(tmp_path / 'one'), rows(tmp_path / 'two'), strict=True):
    np.testing.assert_allclose(a['train_loss'], b['train_loss'], atol=1e-4)
    assert a['total_downlink_bytes'] == b['total_downlink_bytes']


def test_algorithms_are_the_same_on_two_processes(tmp_path):
  port = str(free_port())
  script = ROOT / 'tests' / 'two_processes.py'
  logs = [tmp_path / f'{i}.log' for i in range(2)]
  both = [
    (start([script, port, str(i), tmp_path / str(i)], log), log)
    for i, log in enumerate(logs)
  ]
  for process in both:
    finish(process)
  for i in range(2):
    found = pickle.loads((tmp_path / str(i)).read_bytes())
    assert found.keys() == cases.FIRST.keys() - cases.LONG_FIRST
    for name in found:
      want, _ = cases.play(cases.FIRST[name].make, 1)
      chex.assert_trees_all_close(found[name], want.params, atol=1e-5)
