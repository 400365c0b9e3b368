"""What a process tells JAX before it starts: devices, peers, determinism."""

import os

from fl_sketch.rounds import processes
import jax

# How long until processes notice that one is gone whose connections stay open,
# as those of a machine without power do; a killed one is noticed at once.
HEARTBEAT = 20  # seconds
_DETERMINISTIC = '--xla_gpu_deterministic_ops=true'


def cores() -> int:
  """The cores that this process may use."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def start(
  *,
  cpu_devices: int | None = None,
  coordinator: str | None = None,
  num_processes: int = 1,
  process_id: int = 0,
  deterministic: bool = True,
):
  """Sets up the devices; call it before anything else touches JAX.

  A CPU becomes one device a core: clients side by side beat threads inside the
  small layers of one client.

  Args:
    cpu_devices: devices to make of this process's CPU; None is one a core.
    coordinator: HOST:PORT of process 0, where there are several processes.
    num_processes: how many there are.
    process_id: which one this is.
    deterministic: whether GPUs may use only kernels that give the same bits
      every time; those that add up in any order are faster. CPUs always do.

  Raises:
    ValueError: numbers out of range, processes without a coordinator, or with
      unlike numbers of devices.
  """
  if cpu_devices is not None and cpu_devices < 1:
    raise ValueError(f'Expected {cpu_devices=} >= 1.')
  if not 0 <= process_id < num_processes:
    raise ValueError(f'Expected 0 <= {process_id=} < {num_processes=}.')
  if num_processes > 1 and coordinator is None:
    raise ValueError(f'Expected a coordinator with {num_processes=} > 1.')
  if deterministic:
    flags = os.environ.get('XLA_FLAGS', '').split()
    if _DETERMINISTIC not in flags:
      os.environ['XLA_FLAGS'] = ' '.join([*flags, _DETERMINISTIC])
  jax.config.update('jax_num_cpu_devices', cpu_devices or cores())
  if num_processes > 1:
    jax.config.update('jax_cpu_collectives_implementation', 'gloo')
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process_id,
      heartbeat_timeout_seconds=HEARTBEAT,
    )
    if jax.local_device_count() * num_processes != jax.device_count():
      raise ValueError(
        f'Expected as many devices in every process, not '
        f'{jax.local_device_count()} of {jax.device_count()} in process '
        f'{process_id} of {num_processes}: set cpu_devices.'
      )
    # Connections are made now, while all are in step: they wait for 30 s only.
    processes.wait_for_all('started')
