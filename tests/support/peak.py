"""Peak memory of this process."""

import pathlib
import re


def peak_kib() -> int:
  """The most resident memory of this program; `ru_maxrss` has its parent's."""
  status = pathlib.Path('/proc/self/status').read_text(encoding='ascii')
  return int(re.search(r'VmHWM:\s+(\d+) kB', status)[1])
