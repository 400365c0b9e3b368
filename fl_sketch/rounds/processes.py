"""Collectives on the host between the processes of one run."""

import re

import jax
from jax.experimental import multihost_utils
import numpy as np

# The first line of such an error begins with a status that only services
# report, or with the collective that failed.
_PEER_LOST = re.compile(
  r'UNAVAILABLE\b|DEADLINE_EXCEEDED\b|.*\b(Gloo\b|gloo::|NCCL\b)'
  r'|.*\b[Cc]oordination service\b'
)


class PeerLostError(RuntimeError):
  """Another process is gone, or cannot be reached."""


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
