"""Before a run: devices that JAX is told of, memory, and what is refused."""

import dataclasses
import os
import platform

from fl_sketch import runs
from fl_sketch.rounds import peers
from fl_sketch.runs import (
  config,
  devices,
  memory as memory_lib,
  program as program_lib,
)
import harness
import jax
import pytest

from tests.runs.test_plan import (
  COHORT,
  GIB,
  PRIVATE,
  SAFL,
  SCAFFOLD,
  built,
  mesh,
)


@pytest.fixture(scope='module')
def scaffold():
  return built(**SCAFFOLD)


MEMORY = memory_lib.Memory(
  devices=2, on_host=True, held=4 * GIB, work=5 * GIB, state=GIB, process=GIB
)  # fmt: skip


def test_peaks_and_what_exceeds_them():
  """Catches a limit that is not looked at."""
  assert MEMORY.device_peak == 9 * GIB
  assert MEMORY.host_peak == GIB + 2 * 9 * GIB  # a CPU's devices are the host
  elsewhere = MEMORY._replace(on_host=False)
  assert elsewhere.host_peak == GIB + GIB  # what a checkpoint takes
  for memory, device, host, count in (
    (MEMORY, None, None, 0), (MEMORY, 9, 19, 0), (MEMORY, None, 18, 1),
    (elsewhere, 9, 2, 0), (elsewhere, 8, 18, 1), (elsewhere, 8, 1, 2),
  ):  # fmt: skip
    have = memory_lib.Available(device and device * GIB, host and host * GIB)
    assert len(memory_lib.shortfalls(memory, have)) == count


def of_slots(mesh, run):
  """Replaces compilation by a simple formula for memory."""
  return MEMORY._replace(on_host=False, held=0, work=run.fn)


def test_chunks_are_chosen_unless_a_run_is_private(monkeypatch, scaffold):
  """Catches accelerators that refuse a run; a private one they must refuse."""
  slots = lambda exp, mesh: exp.clients_per_step or COHORT // 2
  real = program_lib.program
  monkeypatch.setattr(memory_lib, 'memory_of', of_slots)
  program = lambda exp, mesh: real(exp, mesh)._replace(fn=50 * slots(exp, mesh))
  monkeypatch.setattr(program_lib, 'program', program)
  have = memory_lib.Available(50 * COHORT // 8, None)
  monkeypatch.setattr(memory_lib, 'available', lambda device: have)
  for exp, fits in (
    (scaffold, True), (built(**PRIVATE), False),
    (scaffold._replace(clients_per_step=COHORT // 4), False),
  ):  # fmt: skip
    if exp.guarantee is not None or fits:
      exp = exp._replace(clients_per_step=None)
    run = program_lib.program(exp, mesh())
    if fits:
      assert memory_lib.fitted(exp, mesh(), run) is not run
    else:
      with pytest.raises(memory_lib.TooLargeError):
        memory_lib.fitted(exp, mesh(), run)


def test_memory_that_a_host_has(tmp_path, monkeypatch):
  """Catches units of a kilobyte, and what the process has itself."""
  device = mesh().local_devices[0]
  monkeypatch.setattr(devices, '_PROC', tmp_path)
  assert memory_lib.available(device) == (None, None)
  (tmp_path / 'self').mkdir()
  (tmp_path / 'self' / 'status').write_text('VmRSS:\t  100 kB\n')
  text = 'MemTotal:  9000 kB\nMemAvailable:    4000 kB\n'
  (tmp_path / 'meminfo').write_text(text)
  assert memory_lib.available(device) == (None, 4100 * 1024)


def test_indices_that_exceed_the_memory_are_refused(monkeypatch):
  """Catches a batch of 10^8 that is drawn first, and one that fits."""
  for field, size in ('batch_size', 64), ('local_steps', 16), ('cohort', 6):
    fields = harness.SMALL | {field: size}
    drawn = fields['cohort'] * fields['local_steps'] * fields['batch_size']
    monkeypatch.setattr(devices, 'host_memory', lambda drawn=drawn: 8 * drawn)
    runs.build(fields)
    with pytest.raises(config.ConfigError, match=f'{field}={size + 1}'):
      runs.build(fields | {field: size + 1, 'population': 7})


def test_the_longest_dispatch_that_is_played_is_measured():
  """Catches memory and a compilation of rounds that end at an evaluation."""
  fields = {'rounds': 25, 'rounds_per_dispatch': 100, 'eval_every': 10}
  exp = built(**SAFL | fields | {'checkpoint_every': 25})
  run = program_lib.program(exp, mesh())
  assert run.args[2].ids.shape[0] == 10
  once = dataclasses.replace(exp.config, eval_every=1)
  run = program_lib.program(exp._replace(config=once), mesh())
  assert run.args[2].ids.shape[0] == 1  # a scan, as it is played


@pytest.fixture
def settings(monkeypatch):
  """The settings of JAX that are made; nothing reaches it."""
  settings = {}
  monkeypatch.setattr(jax.config, 'update', settings.__setitem__)
  monkeypatch.setenv('XLA_FLAGS', '--mine')
  return settings


def test_a_start_asks_for_devices_and_keeps_the_flags_of_users(settings):
  """Catches a second start that appends the flag again."""
  devices.start(cpu_devices=3, deterministic=False)
  assert settings == {'jax_num_cpu_devices': 3}
  assert os.environ['XLA_FLAGS'] == '--mine'
  assert (devices.deterministic('cpu'), devices.deterministic('cuda')) == (1, 0)
  for _ in range(2):
    devices.start()
  assert devices.deterministic('cuda')
  assert settings == {'jax_num_cpu_devices': devices.cores()}
  assert os.environ['XLA_FLAGS'] == '--mine --xla_gpu_deterministic_ops=true'


def test_only_a_start_that_asks_for_it_joins_those_of_a_launcher(
  settings, monkeypatch
):
  """Catches tasks of `srun fl-sketch train` that each train alone."""
  monkeypatch.setenv('SLURM_STEP_NODELIST', 'node[1-2]')
  monkeypatch.setenv('SLURM_NTASKS', '2')
  joined = []
  monkeypatch.setattr(peers, 'connect', lambda *x: joined.append(x))
  devices.start()
  assert not joined
  devices.start(num_processes=None)
  assert joined == [(None, 2, None)]


def test_programs_are_kept_where_jax_has_no_folder(tmp_path, monkeypatch):
  """Catches an overruled setting of the user, or a read-only home."""
  name = 'jax_compilation_cache_dir'  # which no test uses meanwhile
  least = 'jax_persistent_cache_min_compile_time_secs'
  before = {x: getattr(jax.config, x) for x in (name, least)}
  try:
    for own, home, want in (
      ('mine', tmp_path, 'mine'),
      (None, '/dev/null', None),
      (None, tmp_path, f'{tmp_path}/fl_sketch/programs/{platform.node()}'),
    ):
      jax.config.update(name, own)
      monkeypatch.setenv('XDG_CACHE_HOME', str(home))
      devices.cache_programs()
      assert getattr(jax.config, name) == want
  finally:
    for name, value in before.items():
      jax.config.update(name, value)
