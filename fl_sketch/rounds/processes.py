"""Collectives on the host between the processes of one run."""

import re

import jax
from jax.experimental import multihost_utils
import numpy as np

# The first line of such an error begins with a status that only services
# report, or with the collective that failed.
_PEER_LOST = re.compile(
  r'UNAVAILABLE\b|DEADLINE_EXCEEDED\b|.*\b(Gloo\b|gloo::|NCCL\b)'
  r'|.*\b([Cc]oordination service|CoordinationServiceError)\b'
)


# Time until processes notice a lost peer whose connections stay open, as those
# of a machine without power do; a killed peer is noticed at once.
HEARTBEAT = 20  # seconds
GONE = (
  'Another process is gone, so this process stops. Restart all processes: a '
  'run with checkpoints resumes from the last one.'
)


class PeerLostError(RuntimeError):
  """Another process is gone, or cannot be reached."""


def connect(
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
):
  """Joins the processes of one run; returns when all are there.

  JAX finds in its launcher what is None.

  Raises:
    ValueError: the processes' numbers of devices differ, or JAX finds no
      launcher.
  """
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  process = coordinator, num_processes, process_id
  jax.distributed.initialize(*process, heartbeat_timeout_seconds=HEARTBEAT)
  if jax.local_device_count() * jax.process_count() != jax.device_count():
    raise ValueError(
      f'Process {jax.process_index()} of {jax.process_count()} has '
      f'{jax.local_device_count()} of {jax.device_count()} devices; all '
      'processes require the same number.'
    )
  # Processes connect now, while all are in step: JAX waits for 30 s only.
  wait_for_all('started')


def is_peer_lost(error: Exception) -> bool:
  """Whether an error's message says that another process is unreachable.

  >>> is_peer_lost(ValueError('UNKNOWN: Gloo AllGather failed: closed by peer'))
  True
  >>> is_peer_lost(ValueError('INTERNAL: loop_fusion.3 failed'))
  False
  """
  return isinstance(error, PeerLostError) or bool(_PEER_LOST.match(str(error)))


def any_process(flag: bool) -> bool:
  """Whether `flag` holds in any process; all of them must call it together."""
  if jax.process_count() == 1:
    return flag
  flags = _collective(multihost_utils.process_allgather, np.array(flag))
  return bool(flags.any())


def wait_for_all(what: str):
  """Barrier: returns when every process has called it with the same `what`."""
  if jax.process_count() > 1:
    _collective(multihost_utils.sync_global_devices, what)


def from_first_process(x: np.ndarray) -> np.ndarray:
  """Broadcasts the array of process 0 to all, which must call it together."""
  if jax.process_count() == 1:
    return x
  return np.asarray(_collective(multihost_utils.broadcast_one_to_all, x))


def _collective(fn, x):
  try:
    return fn(x)
  except (ValueError, jax.errors.JaxRuntimeError) as e:
    if not is_peer_lost(e):
      raise
    raise PeerLostError(str(e)) from e
