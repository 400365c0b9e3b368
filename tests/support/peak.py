"""Peak memory of this process."""

import pathlib
import re


def peak_kib() -> int:
  """The most memory that was resident since this program began.

  Not `ru_maxrss`, which counts the process that started this one as well.
  """
  status = pathlib.Path('/proc/self/status').read_text(encoding='ascii')
  return int(re.search(r'VmHWM:\s+(\d+) kB', status)[1])
