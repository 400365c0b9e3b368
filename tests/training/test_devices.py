"""How a process configures JAX before it starts."""

import os
import subprocess
import sys

from fl_sketch.training import devices
import jax
import pytest

CODE = """
import os
from fl_sketch.training import devices
for _ in range(2):
  devices.start(cpu_devices=3, deterministic={})
import jax
print(jax.device_count(), os.environ['XLA_FLAGS'])
"""


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


@pytest.mark.nightly
@pytest.mark.parametrize(
  ('deterministic', 'flags'),
  [(True, 'MINE --xla_gpu_deterministic_ops=true'), (False, 'MINE')],
)
def test_gpus_are_told_to_be_deterministic(deterministic, flags):
  """A flag that XLA does not know would end the process."""
  mine = '--xla_cpu_enable_fast_math=false'
  done = subprocess.run(
    [sys.executable, '-c', CODE.format(deterministic)],
    env=os.environ | {'XLA_FLAGS': mine, 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.split(maxsplit=1) == [
    '3',
    flags.replace('MINE', mine) + '\n',
  ]


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
