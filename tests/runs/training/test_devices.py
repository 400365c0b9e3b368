"""How a process configures JAX before it starts."""

import os
import platform

from fl_sketch.rounds import peers
from fl_sketch.runs import devices
import jax
import pytest


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
      is_new = want not in (None, own)
      assert (devices.cache_programs() is not None) == is_new
      assert getattr(jax.config, name) == want
  finally:
    for name, value in before.items():
      jax.config.update(name, value)
