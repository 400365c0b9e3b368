"""How a process configures JAX before it starts."""

import os

from fl_sketch.training import devices
import jax
import pytest


@pytest.fixture
def told(monkeypatch):
  """What JAX is told; nothing reaches it."""
  told = {}
  monkeypatch.setattr(jax.config, 'update', told.__setitem__)
  monkeypatch.setenv('XLA_FLAGS', '--mine')
  return told


def test_a_start_asks_for_devices_and_keeps_the_flags_of_users(told):
  """Catches a second start that appends the flag again."""
  devices.start(cpu_devices=3, deterministic=False)
  assert told == {'jax_num_cpu_devices': 3}
  assert os.environ['XLA_FLAGS'] == '--mine'
  for _ in range(2):
    devices.start()
  assert told == {'jax_num_cpu_devices': devices.cores()}
  assert os.environ['XLA_FLAGS'] == '--mine --xla_gpu_deterministic_ops=true'


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'cpu_devices': 0}, 'cpu_devices=0 is too small'),
    ({'num_processes': 2, 'process_id': 2}, 'process_id=2 is out of range'),
    ({'num_processes': 2}, 'coordinator=HOST'),
  ],
)
def test_devices_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    devices.start(**options)


@pytest.mark.parametrize(
  ('platform', 'flags', 'fixed'),
  [
    ('cpu', '', True),
    ('cuda', '', False),
    ('cuda', '--a=1 --xla_gpu_deterministic_ops=true', True),
    ('cuda', '--xla_gpu_deterministic_ops=truely', False),
  ],
)
def test_kernels_are_deterministic_by_the_flag_of_the_start(
  platform, flags, fixed, monkeypatch
):
  """Catches a record that does not know --nodeterministic."""
  monkeypatch.setenv('XLA_FLAGS', flags)
  assert devices.deterministic(platform) == fixed
