"""Compare the memory that a run needs with that of the machine."""

import pathlib
import re
from typing import Any, NamedTuple

_PROC = pathlib.Path('/proc')


class TooLargeError(ValueError):
  """A run does not fit the memory; the message suggests config changes."""


class Memory(NamedTuple):
  """Bytes of a run."""

  devices: int  # their number, of this process
  on_host: bool  # whether their memory is the host's, as a CPU's is
  held: dict[str, int]  # on each device between rounds, by name
  state: int  # on the host before the first round and with a checkpoint
  round: int  # that a device needs besides `held` during a round
  evaluation: int  # the same, during an evaluation
  process: int  # resident, of this process without any of these
  mapped: int  # in memory-mapped files: data, client state

  @property
  def device_peak(self) -> int:
    """Bytes on each device at its peak."""
    return sum(self.held.values()) + max(self.round, self.evaluation)

  @property
  def host_peak(self) -> int:
    """Resident bytes of the process at its peak, without mapped files."""
    if not self.on_host:
      return self.process + self.state
    work = max(self.devices * max(self.round, self.evaluation), self.state)
    return self.process + self.devices * sum(self.held.values()) + work


class Available(NamedTuple):
  """Bytes that a run may use, of one device and of the host; None: unknown."""

  device: int | None
  host: int | None


def available(device: Any) -> Available:
  """Read the memory limits of this process, including what it holds already."""
  free = _field(_PROC / 'meminfo', 'MemAvailable')
  host = None if free is None else free + resident()
  stats = device.memory_stats() or {}
  return Available(stats.get('bytes_limit'), host)


def resident() -> int:
  """Read this process's resident bytes; 0 if the kernel does not report it."""
  return _field(_PROC / 'self' / 'status', 'VmRSS') or 0


def shortfalls(memory: Memory, have: Available) -> list[str]:
  """Describe each memory that a run exceeds; unknown limits are skipped."""
  on_device = 'each device', memory.device_peak, have.device
  on_host = 'the host', memory.host_peak, have.host
  return [
    f'{units(need)} of {where}, which has {units(limit)}'
    for where, need, limit in (on_device, on_host)
    if limit is not None and need > limit
  ]


def too_large(memory: Memory, have: Available) -> TooLargeError:
  """Return, not raise, the error of a run that needs more than there is."""
  parts = memory.held | {'a round': memory.round}
  largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
  named = ', '.join(f'{name} {units(size)}' for name, size in largest)
  return TooLargeError(
    f'The run takes {" and ".join(shortfalls(memory, have))}; on each device '
    f"{named}. Set feed='host', client_state='host', server_state='sharded', "
    'a smaller clients_per_step, cohort or batch_size, or take another machine.'
  )


def units(n: float) -> str:
  """Format a number of bytes.

  >>> units(512), units(3 * 2**20), units(5.5 * 2**30)
  ('512 B', '3.0 MiB', '5.5 GiB')
  """
  for unit in ('B', 'KiB', 'MiB', 'GiB'):
    if n < 1024 or unit == 'GiB':
      break
    n /= 1024
  return f'{n:,.0f} {unit}' if unit == 'B' else f'{n:,.1f} {unit}'


def _field(path, name) -> int | None:
  """Read a line `name: 12 kB` of a file in /proc, in bytes."""
  try:
    match = re.search(rf'^{name}:\s+(\d+) kB', path.read_text(), re.MULTILINE)
  except OSError:
    return None
  return None if match is None else int(match[1]) * 1024
