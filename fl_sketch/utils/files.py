"""Write files atomically, and read the versions and devices of a run."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import json
import logging
import math
import os
import pathlib
import platform
import re
from typing import Any

from fl_sketch.utils import UserError, __version__
import numpy as np

# A list or object of indented JSON without others in it.
_INNERMOST = re.compile(r'[\[{]\n[^][{}]*\n\s*[\]}]')
_WIDTH = 160  # characters of a line with strings


class SaveError(UserError, OSError):
  """A file cannot be written, as on a full disk; the checkpoints stay."""


def as_json(config: Any) -> dict[str, Any]:
  """Return the fields of a config, a dataclass, as config.json has them."""
  return json.loads(json.dumps(dataclasses.asdict(config)))


def finite(tree: Any) -> Any:
  """Convert a tree for JSON: arrays to lists, NaN and infinity to None.

  >>> finite({'mean': np.float64('nan'), 2: (1, np.inf)})
  {'mean': None, '2': [1, None]}
  """
  if isinstance(tree, Mapping):
    return {str(k): finite(v) for k, v in tree.items()}
  if isinstance(tree, list | tuple):
    return [finite(v) for v in tree]
  if hasattr(tree, 'tolist'):  # of NumPy
    return finite(tree.tolist())
  return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def _on_one_line(match: re.Match[str]) -> str:
  """Join the lines of a JSON list or object, unless strings make it long."""
  begin, *lines, end = map(str.strip, match[0].split('\n'))
  joined = begin + ' '.join(lines) + end
  return joined if '"' not in joined or len(joined) < _WIDTH else match[0]


def write(
  path: pathlib.Path, content: str | bytes | Mapping[str, Any], durable=False
):
  """Write a text, bytes or JSON to a file atomically, or raise SaveError.

  If `durable`, content and name are on the disk when it returns, in this order.
  """
  if not isinstance(content, str | bytes):
    content = json.dumps(content, indent=2) + '\n'
    content = _INNERMOST.sub(_on_one_line, content)
  raw = content.encode() if isinstance(content, str) else content
  # A name of this process: another one may write the same file.
  partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
  try:
    with partial.open('wb') as file:
      file.write(raw)
      if durable:
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    if durable:
      folder = os.open(path.parent, os.O_RDONLY)
      with contextlib.suppress(OSError):  # some file systems sync no folders
        os.fsync(folder)
      os.close(folder)
  except OSError as e:
    raise _save_error(e, path) from e
  finally:
    with contextlib.suppress(OSError):
      partial.unlink()


@contextlib.contextmanager
def save_errors(path: pathlib.Path, advice: str = '') -> Iterator[None]:
  """Raise an OSError while `path` is written as SaveError, with the advice.

  Orbax logs such an error in each thread that meets it: here it does not.
  """
  log = logging.getLogger('absl')
  level = log.level
  log.setLevel(logging.CRITICAL)
  try:
    yield
  except (OSError, ValueError) as e:
    # Tensorstore has errors of the system as ValueError.
    if not isinstance(e, OSError) and 'os_error_code' not in str(e):
      raise
    raise _save_error(e, path, advice) from e
  finally:
    log.setLevel(level)


def _save_error(error: Exception, path: pathlib.Path, advice='') -> SaveError:
  number = getattr(error, 'errno', None)
  if match := re.search(r"os_error_code='(\d+)'", str(error)):
    number = int(match[1])
  why = os.strerror(number) if number else str(error).partition('\n')[0]
  return SaveError(f'{path} cannot be written: {why}. {advice}'.rstrip())


def measured_with() -> dict[str, Any]:
  """Return versions, devices and processes, for a summary."""
  import jax  # not by who only reads or writes files

  devices = jax.devices()
  return {
    'versions': {m.__name__: m.__version__ for m in (jax, np)}
    | {'python': platform.python_version(), 'fl_sketch': __version__},
    'device': f'{len(devices)} x {devices[0].device_kind}',
    'processes': jax.process_count(),
  }
