"""A small run, and the programs of launch/ in this process or in others."""

import contextlib
import io
import json
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import time
import traceback
from typing import Any, NamedTuple
from unittest import mock

from absl import app, flags
from absl.testing import flagsaver
from fl_sketch import rounds, runs
from fl_sketch.rounds import mesh as mesh_lib, traffic
from fl_sketch.runs import checkpoints, client_state, devices
import jax
from launch import __main__ as command_line

ROOT = pathlib.Path(__file__).parents[2]
DATA = ROOT.parent / 'shared' / 'data' / 'tfds'
SMALL = {
  'dataset': 'digits', 'model_options': {'widths': (8,)},
  'population': 6, 'cohort': 4, 'rounds': 4, 'local_steps': 2, 'batch_size': 8,
  'eval_every': 2, 'checkpoint_every': 2,
}  # fmt: skip
SAFL = SMALL | {
  'algorithm': 'safl', 'sketch': {'kind': 'block_cyclic', 'size': 50},
  'server_lr': 0.01, 'rounds': 8, 'eval_every': 3, 'checkpoint_every': 2,
}  # fmt: skip
# Fields of a private run of a client's whole update.
DP = {
  'algorithm': 'dp_fedavg', 'noise_multiplier': 1.0, 'clip_norm': 1.0,
  'delta': 1e-3, 'standardize': False,
}  # fmt: skip
QUICK = '--config=configs/quickstart.py:quick'
# A row every round and many checkpoints: a kill lands between and in them.
EVERY_ROUND = [
  '--config.rounds=40', '--config.rounds_per_dispatch=1',
  '--config.eval_every=7', '--config.checkpoint_every=3',
]  # fmt: skip


def train(folder, mesh=None, **fields):
  exp = runs.build(SAFL | fields)
  return runs.train(exp, folder, mesh=mesh, progress=False)


def start(command, log, folder=ROOT, path=ROOT):
  """Starts Python in the background, its output in a file."""
  with open(log, 'w') as out:
    return subprocess.Popen(
      [sys.executable, *command], cwd=folder,
      stdout=out, stderr=subprocess.STDOUT,
      env=os.environ | {'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(path)},
    )  # fmt: skip


def launch(workdir, *flags, log=None, config=QUICK):
  log = log or workdir.with_suffix('.log')
  command = ['-m', 'launch', 'train', config, f'--workdir={workdir}', *flags]
  return start(command, log), log


def finish(started, timeout=600, status=0):
  process, log = started
  try:
    assert process.wait(timeout) == status, log.read_text()[-3000:]
  finally:
    process.kill()
    process.wait()
  return log.read_text()


def finish_all(started):
  """Waits for all processes of a run; none outlives a failure."""
  try:
    for process in started:
      finish(process)
  finally:
    for process, _ in started:
      process.kill()
      process.wait()


@contextlib.contextmanager
def new_flags():
  """absl's flags without those of programs; restores what they were."""
  programs = [
    (module, flag)
    for module, defined in flags.FLAGS.flags_by_module_dict().items()
    if module.startswith('launch.')
    for flag in defined
  ]
  flags.FLAGS.remove_flag_values([flag.name for _, flag in programs])
  try:
    with flagsaver.flagsaver():  # of absl's own; deletes those of the program
      yield
  finally:
    # The only program that is imported: its flags are gone.
    sys.modules.pop('benchmarks.__main__', None)
    for module, flag in programs:
      flags.DEFINE_flag(flag, module_name=module)


class Ended(NamedTuple):
  """A program of launch/ that has ended."""

  returncode: int
  stdout: str
  stderr: str
  devices: Any  # that it asked for, as `devices.start` has them


def command(program, *args) -> Ended:
  """Runs one of launch/ in this process, on the devices of the tests."""
  out, err, status = io.StringIO(), io.StringIO(), 0
  with (
    contextlib.chdir(ROOT),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    mock.patch.dict(os.environ),
    mock.patch.object(sys, 'argv', ['fl-sketch', program, *args]),
    mock.patch.object(devices, 'start') as start_devices,
    mock.patch.object(app._run_init, 'done', True),  # of the process
    new_flags(),
  ):
    try:
      command_line.main()
    except SystemExit as e:
      status = e.code
    except Exception:
      status = traceback.format_exc()
  if isinstance(status, str):
    err.write(status)
    status = 1
  asked = start_devices.call_args
  return Ended(
    status or 0, out.getvalue(), err.getvalue(), asked and asked.kwargs
  )


def python(*args, **env):
  """What a process that ends well has printed."""
  paths = {'PYTHONPATH': f'{ROOT}:{ROOT}/tests/support'}
  done = subprocess.run(
    [sys.executable, *map(str, args)], cwd=ROOT, check=True,
    stdout=subprocess.PIPE, text=True,
    env=os.environ | {'JAX_PLATFORMS': 'cpu'} | paths | env,
  )  # fmt: skip
  return done.stdout.strip()


def rows(workdir):
  path = workdir / 'metrics.jsonl'
  lines = path.read_text().splitlines() if path.exists() else []
  return [
    {k: v for k, v in json.loads(line).items() if k != 'seconds'}
    for line in lines
  ]


def parameters(workdir):
  """The state of the newest checkpoint, an array for each path."""
  config = json.loads((workdir / 'config.json').read_text())
  exp = runs.build(config)
  state = rounds.init(exp.make(exp.hyper), exp.params, config['population'])
  mesh = mesh_lib.cohort_mesh(1)
  store = checkpoints.Checkpoints(workdir / 'checkpoints', keep=100)
  ledger = traffic.Ledger.empty(config['population'], 0)
  saved = store.restore(mesh_lib.place(mesh, state), ledger)
  state = client_state.OnDevice(mesh).restored(saved.state, saved.rows)
  leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(state))
  return {jax.tree_util.keystr(path): x for path, x in leaves}


def in_processes(folder, count, *names, script='in_processes.py'):
  """What each of the processes of a script has found."""
  port, script = free_port(), ROOT / 'tests' / 'support' / script
  outs, started = [folder / f'{count}_{i}' for i in range(count)], []
  for i, out in enumerate(outs):
    command = map(str, (script, port, count, i, out, *names))
    log = out.with_suffix('.log')
    started.append((start(command, log, path='.:docs'), log))
  finish_all(started)
  return [pickle.loads(out.read_bytes()) for out in outs]


def free_port():
  with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    return s.getsockname()[1]


def listens(port):
  with socket.socket() as s:
    return s.connect_ex(('127.0.0.1', port)) == 0


def launch_all(workdir, count, *flags, config=QUICK):
  """The processes of one run, with a device each."""
  flags = [*flags, f'--coordinator=127.0.0.1:{free_port()}', '--cpu_devices=1']
  flags += [f'--num_processes={count}']
  log = lambda i: workdir.with_suffix(f'.{i}.log')
  return [
    launch(workdir, *flags, f'--process_id={i}', log=log(i), config=config)
    for i in range(count)
  ]


def wait_for_rows(workdir, count, process, log):
  """Returns once so many rounds are logged."""
  metrics = workdir / 'metrics.jsonl'
  while not metrics.exists() or metrics.read_bytes().count(b'\n') < count:
    assert process.poll() is None, log.read_text()[-3000:]
    time.sleep(0.02)
