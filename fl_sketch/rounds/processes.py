"""Agreement between the processes of one run."""

import jax
from jax.experimental import multihost_utils
import numpy as np


class PeerLostError(RuntimeError):
  """Another process is gone, or cannot be reached."""


def any_process(flag: bool) -> bool:
  """Whether `flag` holds in any process; all of them must call it together."""
  if jax.process_count() == 1:
    return flag
  flags = _together(multihost_utils.process_allgather, np.array(flag))
  return bool(flags.any())


def wait_for_all(what: str):
  """Returns when every process has come here."""
  if jax.process_count() > 1:
    _together(multihost_utils.sync_global_devices, what)


def from_first_process(x: np.ndarray) -> np.ndarray:
  """The array of process 0, in all of them; they must call it together."""
  if jax.process_count() == 1:
    return x
  return np.asarray(_together(multihost_utils.broadcast_one_to_all, x))


def _together(fn, x):
  try:
    return fn(x)
  except ValueError as e:  # what JAX makes of a collective that fails at once
    raise PeerLostError(str(e)) from e
