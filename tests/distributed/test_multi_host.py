"""Processes of a training loop: who starts them, and how they end."""

import functools
import os
import re
import shutil
import signal
import sys

import compressor_cases as cases
from fl_sketch.distributed import multi_host
from fl_sketch.rounds import peers
from fl_sketch.utils import progress
import harness
import jax
import numpy as np
import own_loop
import pytest

SLURM = {'SLURM_STEP_NODELIST': 'a', 'SLURM_NTASKS': '4', 'SLURM_PROCID': '1'}
MPI = {'OMPI_COMM_WORLD_SIZE': '4', 'OMPI_COMM_WORLD_RANK': '1'}
MPI4 = MPI | {'OMPI_MCA_orte_hnp_uri': '1.0;tcp://10.0.0.1:1'}
SPREAD = MPI | {'OMPI_COMM_WORLD_LOCAL_SIZE': '2'}
HERE = MPI | {'OMPI_COMM_WORLD_LOCAL_SIZE': '4'}
JOB = {'JOB_COMPLETION_INDEX': '1'}
ADDRESS = {'JAX_COORDINATOR_ADDRESS': 'b:2'}
LOCAL = 'localhost:8476'
GUIDE = harness.ROOT / 'docs' / 'guides' / 'slow_link.md'
EXAMPLE = harness.ROOT / 'docs' / 'examples' / 'slow_link.py'
OWN_LOOP = EXAMPLE.with_name('own_loop.py')
WIDTHS = "'width': 8, 'depth': 1"  # in place of its own, to compile quickly


@pytest.fixture
def settings(monkeypatch):
  """The settings that JAX would get; no launcher is there."""
  settings = {}
  for name in {*SLURM, *MPI4, *HERE, *JOB, *ADDRESS} & os.environ.keys():
    monkeypatch.delenv(name)
  monkeypatch.setattr(jax.config, 'update', settings.__setitem__)
  monkeypatch.setattr(jax, 'device_count', lambda: 4)
  monkeypatch.setattr(peers, 'connect', lambda *a: settings.update(process=a))
  monkeypatch.setattr(sys, 'excepthook', sys.excepthook)
  return settings


@pytest.mark.parametrize(('env', 'given', 'process', 'devices'), [
  ({}, (), None, 4),
  ({}, (None, 2, 1), (LOCAL, 2, 1), 2),
  (ADDRESS, (None, 4, 3), (None, 4, 3), 1),
  (SLURM, (), (None, 4, None), 1),
  ({'SLURM_NTASKS': '4'}, (), None, 4),  # in the script of sbatch
  (MPI4, (), (None, 4, None), 1),
  (HERE, (), (LOCAL, 4, 1), 1),
  (MPI, ('a:1',), ('a:1', 4, 1), 1),
  (JOB, (), (None, None, None), 1),
])  # fmt: skip
def test_who_starts_the_processes(
  env, given, process, devices, settings, monkeypatch
):
  """Catches ranks that each train alone, and devices that nobody counts."""
  for name, value in env.items():
    monkeypatch.setenv(name, value)
  if env is ADDRESS:
    process = ('b:2', *process[1:])
  multi_host.start(*given, workers=4)
  assert settings.get('process') == process
  assert settings['jax_num_cpu_devices'] == devices
  assert (sys.excepthook is multi_host._leave) == (process is not None)


@pytest.mark.parametrize(('env', 'given', 'workers', 'named'), [
  ({}, (None, 4, 0), 6, 'workers=6'),
  ({}, (), 8, 'workers=8'),
  (SPREAD, (), 4, 'coordinator'),
])  # fmt: skip
def test_bad_input_is_named(env, given, workers, named, settings, monkeypatch):
  """Catches processes that wait minutes for others that cannot come."""
  for name, value in env.items():
    monkeypatch.setenv(name, value)
  with pytest.raises(ValueError, match=named):
    multi_host.start(*given, workers=workers)


def test_a_process_that_fails_ends_by_itself(monkeypatch, capsys):
  """Catches a traceback of a lost peer, and one that hides another error."""
  said, codes = [], []
  monkeypatch.setattr(progress, 'note', said.append)
  monkeypatch.setattr(os, '_exit', codes.append)
  lost = jax.errors.JaxRuntimeError('UNKNOWN: Gloo AllGather failed: closed')
  for error in (lost, peers.PeerLostError('x'), KeyError('Gloo: mine')):
    multi_host._leave(type(error), error, None)
  assert said == [peers.GONE] * 2
  assert codes == [1] * 3
  assert 'Gloo: mine' in capsys.readouterr().err


@pytest.mark.parametrize('shape', [(2, 1), (1, 2), (1, 1)])
def test_batches_are_in_the_order_of_the_mesh(shape):
  """Catches a batch of another worker, as of a mesh in another order."""
  devices = np.array(jax.devices()[::-1][: np.prod(shape)]).reshape(shape)
  mesh = jax.sharding.Mesh(devices, ('slow', 'fast'))
  draw = lambda worker: {'x': np.full((3, 2), worker, np.int32)}
  x = multi_host.batches(mesh, draw)['x']
  assert x.sharding.spec == jax.P(('slow', 'fast'))
  np.testing.assert_array_equal(x[:, 0], np.repeat(np.arange(mesh.size), 3))
  for part in x.addressable_shards:
    worker = devices.ravel().tolist().index(part.device)
    assert (np.asarray(part.data) == worker).all()


def start_both(command, tmp_path, process_id='{}'):
  """A loop in two processes, with a worker each."""
  os.environ['JAX_COORDINATOR_ADDRESS'] = f'127.0.0.1:{harness.free_port()}'
  try:
    logs = [tmp_path / f'{i}.log' for i in range(2)]
    each = [[*command, process_id.format(i)] for i in range(2)]
    started = [harness.start(each[i], logs[i]) for i in range(2)]
  finally:
    del os.environ['JAX_COORDINATOR_ADDRESS']
  return list(zip(started, logs, strict=True))


@pytest.mark.nightly
def test_the_loop_of_the_guide_is_the_same_in_two_processes(tmp_path):
  """Catches a guide that does not run, and workers that see other batches."""
  loop, log = tmp_path / 'loop.py', tmp_path / 'log'
  block = re.search('```python\n(.*?)```', GUIDE.read_text(), re.DOTALL)
  loop.write_text(block[1])
  alone = harness.finish((harness.start([loop], log), log))
  (line,) = re.findall(r'loss .* bytes per step', alone)
  assert float(line.split()[1][:-1]) < 0.2
  both = start_both([loop, '2'], tmp_path)
  harness.finish_all(both)
  assert all(line in log.read_text() for _, log in both)


def example(tmp_path, name, steps, processes=1):
  """Starts the example on two small workers; returns processes and logs."""
  script, text = tmp_path / 'slow_link.py', tmp_path / 'text.txt'
  small = EXAMPLE.read_text().replace("'width': 128, 'depth': 4", WIDTHS)
  script.write_text(small)
  text.write_text('To be, or not to be: that is the question.\n' * 30)
  flags = [text, tmp_path / name, '--workers=2', f'--steps={steps}']
  command = [script, *flags, '--save_every=3']
  if processes == 1:
    log = tmp_path / f'{name}.log'
    return [(harness.start(command, log), log)]
  command.append('--num_processes=2')
  return start_both(command, tmp_path, '--process_id={}')


def trained(folder):
  """The rows of a run of the example, one for each step that it kept."""
  return {row['step']: row for row in harness.rows(folder)}


@pytest.mark.nightly
def test_the_example_is_the_same_in_two_processes(tmp_path):
  """Catches an example that does not run, and workers of other batches."""
  for name, processes in (('one', 1), ('two', 2)):
    harness.finish_all(example(tmp_path, name, 6, processes))
  one, two = trained(tmp_path / 'one'), trained(tmp_path / 'two')
  assert [*one] == [3, 6]
  assert one == two


def test_an_epoch_of_the_own_loop_has_each_sample_once():
  """Catches workers that share samples, and epochs in one order."""
  data = {'y': np.arange(3 * 128)}
  epochs = [
    [own_loop.draw(data, seen, w)['y'] for seen in seens for w in range(2)]
    for seens in (range(0, 384, 128), range(384, 768, 128))
  ]
  first, second = map(np.concatenate, epochs)
  assert sorted(first) == sorted(second) == [*data['y']]
  assert (first != second).any()


def test_accumulated_gradients_are_those_of_the_whole_batch():
  """Catches a sum in place of a mean, and parts that are left out."""
  batch = {'x': np.random.default_rng(0).standard_normal((8, 3), np.float32)}
  loss = lambda w, part: jax.numpy.square(part['x'] @ w).mean()
  of = lambda f: jax.grad(f)(np.ones(3, np.float32), batch)
  parts = of(own_loop.accumulated(loss))
  np.testing.assert_allclose(parts, of(loss), rtol=1e-5)


@pytest.mark.nightly
def test_the_own_loop_restarts_with_the_same_bits(tmp_path):
  """Catches what its checkpoints lack, in one process and between two."""
  folder, log = tmp_path / 'run', tmp_path / 'log'
  command = OWN_LOOP, folder, '--steps=14', '--save_every=4'  # an epoch has 10
  both = [*command, '--num_processes=2'], tmp_path, '--process_id={}'
  alone = lambda: [(harness.start(command, log), log)]

  def rows(started):
    harness.finish_all(started)
    return [re.findall('step .*', log.read_text()) for _, log in started]

  (whole,) = rows(alone())
  assert len(whole) == 4
  for later in '12', '14':  # as if killed before these checkpoints
    shutil.rmtree(folder / later)
  assert rows(start_both(*both)) == [whole[2:]] * 2
  shutil.rmtree(folder / '14')
  assert rows(alone()) == [whole[3:]]


@pytest.mark.long
def test_the_example_resumes_with_the_same_bits(tmp_path):
  """Catches lost memory of workers, and other batches after a restart."""
  harness.finish_all(example(tmp_path, 'whole', 60))
  ((process, log),) = example(tmp_path, 'cut', 60)
  harness.wait_for_rows(tmp_path / 'cut', 2, process, log)
  process.send_signal(signal.SIGKILL)
  process.wait()
  assert len(trained(tmp_path / 'cut')) < 20
  harness.finish_all(example(tmp_path, 'cut', 60))
  assert trained(tmp_path / 'cut') == trained(tmp_path / 'whole')


@pytest.mark.long
def test_four_processes_are_the_four_workers_of_one(tmp_path):
  """Catches what depends on a process: a key, an order, a row of another."""
  (one,), four = (harness.in_processes(tmp_path, count) for count in (1, 4))
  for text, both_ways in cases.CASES:
    name = f'{(text, both_ways)}'
    for other in four:
      jax.tree.map(np.testing.assert_array_equal, four[0][name], other[name])
    gathered = '|' in text or text.split('(')[0] in cases.CODECS
    equal = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    check = np.testing.assert_array_equal if gathered else equal
    jax.tree.map(check, one[name], four[0][name])


@pytest.mark.nightly
def test_the_sharded_decoder_of_the_guide_learns(tmp_path):
  """Catches a guide that does not run, and a mean that does not train."""
  log, script = tmp_path / 'log', EXAMPLE.with_name('sharded_decoder.py')
  text = harness.finish((harness.start([script], log), log))
  first, last = map(float, re.findall(r'[\d.]+(?= at)', text))
  assert last < 0.6 * first
