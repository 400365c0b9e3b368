"""The resident worker of a site: its socket, its deaths, its own data."""

import dataclasses
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import chex
from configs import quickstart
from fl_sketch import runs
from fl_sketch.data import batches, partitions
from fl_sketch.runs.config import Config, ConfigError
from fl_sketch.sites import federation, own_data, relay, site_process
import harness
import jax
import numpy as np
import pytest
from site_files import Sockets, serve, write_data

# A site whose worker answers with its number, or dies as it is told.
SITE = """
import os, sys
from fl_sketch.sites import site_process
site_process._DELAY = site_process._PAUSE = 0.01

def handle(request):
  if request == b'die':
    os.kill(os.getpid(), 9)
  return f'{os.getpid()}'.encode()

if site_process.is_worker():
  if sys.argv[1] != 'serves':
    channel = int(os.environ['FL_SKETCH_WORKER'].split(',')[1])
    os.write(channel, sys.argv[1].encode().replace(b'dies', b'ready\\n'))
    sys.exit(3)
  site_process.serve_keeper(handle, 'ready')
command = [sys.executable, __file__, sys.argv[1]]
try:
  sys.exit(site_process.keep(command, sys.argv[3:], sys.argv[2]))
except site_process.SiteError as e:
  sys.exit(f'{e}')
"""
SLEEPS = 'sh', '-c', 'sleep 1000 & wait'
SAYS_SO = 'sh', '-c', 'sleep 1; echo up; sleep 1000 & wait'


@pytest.fixture
def path():
  """The path of a socket, which must be short."""
  with tempfile.TemporaryDirectory() as folder:
    yield os.path.join(folder, 'socket')


@pytest.fixture
def start(path, tmp_path):
  """Starts a site; all of them end with the test."""
  script, started = tmp_path / 'site.py', []
  script.write_text(SITE)

  def start(how='serves', *engine):
    command = [sys.executable, script, how, path, *engine]
    process = subprocess.Popen(
      command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      env=os.environ | {'PYTHONPATH': str(harness.ROOT)},
    )  # fmt: skip
    started.append(process)
    return process

  yield start
  for process in started:
    process.terminate()  # it ends what it runs
    process.communicate(timeout=30)


def ended(process, status):
  """The lines of a site that has ended, and whatever it had started."""
  out, _ = process.communicate(timeout=30)  # until no process has its stdout
  assert process.returncode == status, out
  return out.splitlines()


def test_a_bad_request_ends_its_connection_alone(path):
  """Catches a worker that a torn message kills, and bytes cut from one."""
  serve(lambda x: x[::-1], path)
  for bad in (b'', b'123', struct.pack('<Q', 9) + b'1', b'\xff' * 8):
    with socket.socket(socket.AF_UNIX) as torn:
      torn.connect(path)
      torn.sendall(bad)
  with socket.socket(socket.AF_UNIX) as gone:  # does not wait for the reply
    gone.connect(path)
    relay.write(gone, bytes(10**6))
  for size in (0, 1, 3 * 10**6):
    request = np.random.default_rng(0).bytes(size)
    assert relay.ask(request, path, 9) == request[::-1]


def test_without_a_worker_a_request_is_a_connection_error(path, monkeypatch):
  """Catches an engine that meets an error which it does not know."""
  monkeypatch.delenv(relay.VARIABLE, raising=False)
  with pytest.raises(ConnectionError, match='FL_SKETCH_SITE'):
    relay.ask(b'')
  with site_process.listening(path), pytest.raises(ConnectionError):
    relay.ask(b'', timeout=0.01)


def test_a_socket_that_cannot_be_used_is_one_line(path):
  """Catches two sites with one state, and state that others can read."""
  folder = pathlib.Path(path).parent
  with socket.socket(socket.AF_UNIX) as dead:
    dead.bind(path)  # the file stays
  with (
    site_process.listening(path),
    pytest.raises(site_process.SiteError, match='folder'),
  ):
    with site_process.listening(path):
      pass
  with pytest.raises(site_process.SiteError, match='bytes'):
    with site_process.listening(folder / ('x' * 107)):
      pass
  folder.chmod(0o750)
  with pytest.raises(site_process.SiteError, match='chmod 700'):
    with site_process.listening(path):
      pass


def test_a_worker_that_was_killed_is_started_again(path, start):
  """Catches a site that ends with its worker, and one that two run."""
  site = start('serves', *SLEEPS)
  assert site.stdout.readline() == 'ready\n'
  first = int(relay.ask(b'', path))
  os.kill(first, signal.SIGKILL)
  assert 'signal 9' in site.stdout.readline()
  second = int(relay.ask(b'', path))
  with pytest.raises(ConnectionError):
    relay.ask(b'die', path)
  third = int(relay.ask(b'', path))
  assert len({first, second, third}) == 3
  ended(start(), 1)
  site.terminate()
  ended(site, 143)
  assert not os.path.exists(path)


def test_a_worker_and_a_client_end_with_their_keeper(path, start):
  """Catches a worker that nobody can reach, with the state of the next one.

  And an engine's client, beside which no other one starts.
  """
  site = start('serves', *SAYS_SO)
  assert [site.stdout.readline() for _ in range(2)] == ['ready\n', 'up\n']
  site.send_signal(signal.SIGSTOP)  # it leaves unread what the worker says
  relay.ask(b'', path)
  site.kill()
  ended(site, -9)
  again = start()
  assert again.stdout.readline() == 'ready\n'
  again.send_signal(signal.SIGINT)
  ended(again, 130)


@pytest.mark.parametrize(('how', 'engine', 'status', 'lines'), [
  ('serves', 'test -S "$FL_SKETCH_SITE" && exit 7', 7, 1),
  ('serves', 'kill -9 $$', 137, 1),
  ('refuses', 'echo no', 3, 0),
  ('dies', 'sleep 1000', 1, 6),  # five times
])  # fmt: skip
def test_a_site_ends_with_what_it_runs(how, engine, status, lines, start):
  """Catches a site that outlives its engine, or tries for ever."""
  assert len(ended(start(how, 'sh', '-c', engine), status)) == lines


CLIENT = 4
SKEWED = {'partition': 'size_skew', 'sigma': 1.0, 'client_holdout': 0.2}
CONFIG = Config.from_mapping(harness.SMALL | SKEWED)


@pytest.fixture(scope='module')
def simulated():
  return runs.build(CONFIG)


@pytest.fixture(scope='module')
def arrays(simulated):
  """What the client holds in the simulation, in its order."""
  samples = len(simulated.labels), CONFIG.population, CONFIG.seed
  whole = partitions.partition('size_skew', *samples, sigma=1.0)
  return {k: x[whole.client(CLIENT)] for k, x in simulated.data.items()}


def test_a_site_is_its_client_in_the_simulation(simulated, arrays):
  """Catches draws, hold-outs and pixels that depend on others' data."""
  problem = own_data.problem(CONFIG, CLIENT, arrays)
  site = runs.assemble(CONFIG, problem, problem.partition)
  found = []
  for exp in (simulated, site):
    values, ids = [], np.array([CLIENT])
    for order in batches.ORDERS:
      index = batches.draw(exp.partition, ids, 5, 3, 2, 4, order)
      values += [exp.data['x'][step[step >= 0]] for step in index[0]]
    held = exp.held_out.client(CLIENT)
    batch = {k: x[held] for k, x in exp.held_data.items()}
    values += [*batch.values(), exp.loss_fn(exp.params, batch)]
    found.append(values + [x for x in exp.test.values()])
  jax.tree.map(np.testing.assert_array_equal, *found)
  assert site.partition.sizes.tolist().count(0) == CONFIG.population - 1


def test_a_site_reads_a_folder_or_calls_a_function(arrays, tmp_path):
  """Catches test data that are trained on, and arrays in another order."""
  np.savez(tmp_path / 'train.npz', **arrays)
  np.savez(tmp_path / 'test.npz', **{k: x[:3] for k, x in arrays.items()})
  file = tmp_path / 'mine.py'
  file.write_text('arrays = lambda c, client: {"x": c.seed, "y": client}')
  made = own_data.read(f'{file}:arrays', CONFIG, CLIENT)
  assert made == ({'x': CONFIG.seed, 'y': CLIENT}, None)
  found = own_data.read(str(tmp_path), CONFIG, CLIENT)
  problem = own_data.problem(CONFIG, CLIENT, *found)
  np.testing.assert_array_equal(problem.data['y'], arrays['y'])
  held_out, held = problem.held_out
  mask = problem.test['mask']
  for y in (held['y'][held_out.client(CLIENT)], problem.test['y'][mask]):
    np.testing.assert_array_equal(y, arrays['y'][:3])


def test_wrong_data_are_refused(arrays, tmp_path):
  """Catches arrays that train in silence, a NaN, and a traceback of a file."""
  none = {k: x[:0] for k, x in arrays.items()}
  for change in {'x': arrays['x'] / 2}, {'y': arrays['y'] + 9}, none:
    with pytest.raises(ConfigError):
      own_data.problem(CONFIG, CLIENT, arrays | change, where='here')
  fields = {'dataset': 'quadratics', 'population': 6, 'cohort': 6, 'rounds': 1}
  c = Config.from_mapping(fields)  # a problem with its own loss
  data = {'factor': np.ones((1, 200, 20)), 'optimum': np.ones((1, 200))}
  problem = own_data.problem(c, CLIENT, data)
  assert problem.partition.offsets.tolist() == [0, 0, 0, 0, 0, 1, 1]
  data['optimum'][0, 3] = np.nan
  with pytest.raises(ConfigError, match='optimum'):
    own_data.problem(c, CLIENT, data, where='here')
  (tmp_path / 'mine.py').write_text('raises = lambda c, i: {}["patient"]')
  (tmp_path / 'train.npz').write_text('no')
  for where, named in (
    ('absent', 'train.npz'), ('', 'train.npz'), ('mine.py:absent', 'absent'),
    ('mine.py:raises', 'patient'), ('other.py:absent', r'data=.*other\.py'),
  ):  # fmt: skip
    with pytest.raises(ValueError, match=named):
      own_data.read(f'{tmp_path}/{where}', CONFIG, CLIENT)


def wait_for(text, process, log):
  """Waits until a process has said something."""
  while text not in log.read_text():
    assert process.poll() is None, log.read_text()
    time.sleep(0.05)


@pytest.mark.nightly
def test_a_run_over_sockets_is_the_simulation(path, tmp_path):
  """Catches a site that is no client of the config, or forgets when it dies."""
  numbers = dict.fromkeys(('population', 'cohort', 'eval_every'), 2)
  numbers |= {'rounds': 4, 'final_server_lr': None}
  config = quickstart.get_config('quick')
  config.update(numbers)
  c = Config.from_mapping(config.to_dict() | {'sweep': None})
  exp = runs.build(c)
  folder, logs, sites = os.path.dirname(path), [], []
  write_data(exp, tmp_path)
  run = lambda rounds: federation.run(
    dataclasses.replace(c, rounds=rounds),
    Sockets({f'{i}': f'{folder}/{i}/socket' for i in range(2)}),
    tmp_path / 'run', progress=False,
  )  # fmt: skip
  try:
    for i in range(2):
      logs.append(tmp_path / f'{i}.log')
      fields = [f'--config.{k}={x}' for k, x in numbers.items()]
      where = f'--data={tmp_path}/{i}', f'--state={folder}/{i}'
      command = '-m', 'launch', 'site', 'quickstart:quick', f'--client={i}'
      sites.append(harness.start([*command, *where, *fields], logs[i]))
    for site, log in zip(sites, logs, strict=True):
      wait_for('samples', site, log)
    run(2)
    children = f'/proc/{sites[1].pid}/task/{sites[1].pid}/children'
    os.kill(int(pathlib.Path(children).read_text()), signal.SIGKILL)
    wait_for('signal 9', sites[1], logs[1])
    found = run(4)
  finally:
    for site in sites:
      site.terminate()
      site.wait()
  want = runs.train(exp, progress=False).state.params
  chex.assert_trees_all_close(found.state.params, want, rtol=0, atol=1e-6)
