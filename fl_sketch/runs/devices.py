"""Configure JAX before it starts: devices, processes, kept programs."""

import contextlib
import os
import pathlib
import platform
import re
from typing import Any

from fl_sketch.rounds import peers
import jax

_DETERMINISTIC = '--xla_gpu_deterministic_ops=true'
_PROC = pathlib.Path('/proc')


def cores() -> int:
  """Count the cores that this process may use."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def host_memory() -> int | None:
  """Return the bytes that this process may hold; None if that is unknown."""
  free = _field(_PROC / 'meminfo', 'MemAvailable')
  return None if free is None else free + resident()


def resident() -> int:
  """Read this process's resident bytes; 0 if the kernel does not report it."""
  return _field(_PROC / 'self' / 'status', 'VmRSS') or 0


def _field(path: pathlib.Path, name: str) -> int | None:
  """Read a line `name: 12 kB` of a file in /proc, in bytes."""
  try:
    match = re.search(rf'^{name}:\s+(\d+) kB', path.read_text(), re.MULTILINE)
  except OSError:
    return None
  return None if match is None else int(match[1]) * 1024


def deterministic(platform: str) -> bool:
  """Return whether sums on devices of this platform have a fixed order."""
  flags = os.environ.get('XLA_FLAGS', '').split()
  return platform == 'cpu' or _DETERMINISTIC in flags


def cache_programs():
  """Keep compiled programs in XDG_CACHE_HOME/fl_sketch/programs/HOST.

  A folder that JAX has by its own setting stays.
  """
  config: Any = jax.config
  if config.jax_compilation_cache_dir is not None:
    return
  home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  # Hosts may share a home, processes the folder: JAX names programs by content.
  folder = pathlib.Path(home, 'fl_sketch', 'programs', platform.node())
  with contextlib.suppress(OSError):
    # Programs may hold constants of the user's data.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  if not os.access(folder, os.W_OK):
    return
  config.update('jax_compilation_cache_dir', str(folder))
  if config.jax_persistent_cache_min_compile_time_secs == 1.0:  # as is
    config.update('jax_persistent_cache_min_compile_time_secs', 0)


def start(
  *,
  cpu_devices: int | None = None,
  coordinator: str | None = None,
  num_processes: int | None = 1,
  process_id: int | None = None,
  deterministic: bool = True,
):
  """Set up the devices of a run; call it before any other use of JAX.

  A CPU becomes `cpu_devices` devices, by default one a core: parallel clients
  are faster than threads inside the small layers of one client. For the
  coordinator and the numbers of processes see `peers.resolve`. With
  `deterministic` GPUs use only deterministic kernels, which are slower; CPUs
  always do. Raises ValueError if a number is missing or out of range.
  """
  process = peers.resolve(coordinator, num_processes, process_id)
  flags = os.environ.get('XLA_FLAGS', '').split()
  if deterministic and _DETERMINISTIC not in flags:
    os.environ['XLA_FLAGS'] = ' '.join([*flags, _DETERMINISTIC])
  jax.config.update('jax_num_cpu_devices', cpu_devices or cores())
  if process[1] != 1:
    peers.connect(*process)
