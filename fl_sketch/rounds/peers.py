"""Collectives on the host between the processes of one run."""

import os
import re

import jax
from jax.experimental import multihost_utils
import numpy as np

# First lines of errors of JAX that mean an unreachable process.
_PEER_LOST = re.compile(
  r'UNAVAILABLE\b|DEADLINE_EXCEEDED\b|.*\b(Gloo\b|gloo::|NCCL\b)'
  r'|.*\b([Cc]oordination service|CoordinationServiceError)\b'
)
HEARTBEAT = 20  # seconds until a peer without power is noticed
GONE = (
  'Another process is gone, so this process stops. Restart all processes: a '
  'run with checkpoints resumes from the last one.'
)
_COORDINATOR = 'localhost:8476'
# Set by launchers that JAX knows: Open MPI up to 4, Slurm's srun, an indexed
# Job of Kubernetes.
_LAUNCHERS = (
  'OMPI_MCA_orte_hnp_uri', 'SLURM_STEP_NODELIST', 'JOB_COMPLETION_INDEX',
)  # fmt: skip
Process = tuple[str | None, int | None, int | None]


class PeerLostError(RuntimeError):
  """Another process is gone, or cannot be reached."""


def resolve(
  coordinator: str | None = None, num_processes: int | None = None,
  process_id: int | None = None,
) -> Process:  # fmt: skip
  """Complete the arguments of `connect` from the environment of a launcher.

  What JAX finds by itself stays None; there is one process without a launcher.
  An argument that is missing or out of range raises ValueError.
  """
  env = os.environ
  launched = any(name in env for name in _LAUNCHERS)
  size = env.get('OMPI_COMM_WORLD_SIZE')
  if size is None and launched:
    size = env.get('SLURM_NTASKS')
  count = num_processes or int(size or not launched)
  if launched:
    return coordinator, count or None, process_id
  if num_processes is None and coordinator and not size:
    raise ValueError(f'{coordinator=} requires num_processes and process_id.')
  if process_id is None:  # Open MPI 5 tells everything but the coordinator
    process_id = int(env.get('OMPI_COMM_WORLD_RANK', 0 if count == 1 else -1))
  if not 0 <= process_id < count:
    raise ValueError(
      f'num_processes={count} requires process_id=0 to {count - 1}, another '
      'one in each process.'
    )
  coordinator = coordinator or env.get('JAX_COORDINATOR_ADDRESS')
  here = int(env.get('OMPI_COMM_WORLD_LOCAL_SIZE', count))
  if coordinator is None and here != count:
    raise ValueError(
      f'{count} processes on several hosts require coordinator=HOST:PORT of '
      'process 0.'
    )
  return coordinator or _COORDINATOR, count, process_id


def connect(
  coordinator: str | None = None, num_processes: int | None = None,
  process_id: int | None = None,
):  # fmt: skip
  """Join the processes of one run; return when all are there.

  JAX takes from the launcher what is None. Raises ValueError if there is none,
  or the processes have different numbers of devices.
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
  """Return whether an error's message says that another process is gone.

  >>> is_peer_lost(ValueError('UNKNOWN: Gloo AllGather failed: closed by peer'))
  True
  """
  return isinstance(error, PeerLostError) or bool(_PEER_LOST.match(str(error)))


def any_process(flag: bool) -> bool:
  """Return whether `flag` holds in any process; all must call it together."""
  if jax.process_count() == 1:
    return flag
  flags = _collective(multihost_utils.process_allgather, np.array(flag))
  return bool(flags.any())


def wait_for_all(what: str):
  """Wait until every process has called it with the same `what`."""
  if jax.process_count() > 1:
    _collective(multihost_utils.sync_global_devices, what)


def from_first_process(x: np.ndarray) -> np.ndarray:
  """Return the array of process 0; all processes must call it together."""
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
