"""Compares the memory that a run needs with that of the machine."""

import contextlib
import pathlib
import re
from typing import Any, NamedTuple

_PROC = pathlib.Path('/proc')
_CGROUP = pathlib.Path('/sys/fs/cgroup')


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
  """Reads the memory limits of this process, including what it holds already.

  The host's limit is the least of free memory and of the limits of this
  process's control groups. `device` is any of a run.
  """
  stats, limits = device.memory_stats() or {}, _cgroup_limits()
  if (free := _field(_PROC / 'meminfo', 'MemAvailable')) is not None:
    limits.append(free + resident())
  return Available(stats.get('bytes_limit'), min(limits, default=None))


def resident() -> int:
  """Reads this process's resident bytes; 0 if the kernel does not report it."""
  return _field(_PROC / 'self' / 'status', 'VmRSS') or 0


def shortfalls(memory: Memory, have: Available) -> list[str]:
  """Describes each memory that a run exceeds; unknown limits are skipped."""
  on_device = 'each device', memory.device_peak, have.device
  on_host = 'the host', memory.host_peak, have.host
  return [
    f'{units(need)} of {where}, which has {units(limit)}'
    for where, need, limit in (on_device, on_host)
    if limit is not None and need > limit
  ]


def units(n: float) -> str:
  """Formats a number of bytes.

  >>> units(512), units(3 * 2**20), units(5.5 * 2**30)
  ('512 B', '3.0 MiB', '5.5 GiB')
  """
  for unit in ('B', 'KiB', 'MiB', 'GiB'):
    if n < 1024 or unit == 'GiB':
      break
    n /= 1024
  return f'{n:,.0f} {unit}' if unit == 'B' else f'{n:,.1f} {unit}'


def _cgroup_limits() -> list[int]:
  """The limits of all control groups that this process is in, v1 and v2."""
  try:
    lines = (_PROC / 'self' / 'cgroup').read_text().splitlines()
  except OSError:
    return []
  limits = []
  for line in lines:
    _, controllers, path = line.split(':', 2)
    if controllers == '':
      root, name = _CGROUP, 'memory.max'
    elif 'memory' in controllers.split(','):
      root, name = _CGROUP / 'memory', 'memory.limit_in_bytes'
    else:
      continue
    group = root / path.lstrip('/')
    for folder in (group, *group.parents):
      with contextlib.suppress(OSError):
        if folder.is_relative_to(root):
          limits.append((folder / name).read_text().strip())
  return [int(limit) for limit in limits if limit.isdigit()]  # or 'max'


def _field(path, name) -> int | None:
  """Reads a line `name: 12 kB` of a file in /proc, in bytes."""
  try:
    match = re.search(rf'^{name}:\s+(\d+) kB', path.read_text(), re.MULTILINE)
  except OSError:
    return None
  return None if match is None else int(match[1]) * 1024
