"""Writes and locks the folder of a run: config, metrics, summary."""

from collections.abc import Callable, Collection
import contextlib
import fcntl
import json
import os
import pathlib
import platform
from typing import Any
import warnings

from fl_sketch.experiment import config as config_lib, privacy_checks
from fl_sketch.reporting import metrics
from fl_sketch.rounds import processes
from fl_sketch.utils import files
import jax


class WorkdirError(ValueError):
  """The folder holds a run of another config, or another process uses it."""


def resumable(config: config_lib.Config) -> set[str]:
  """Returns the fields that may differ when a run is resumed."""
  fields: set[str] = set(config_lib.RESUMABLE)
  if config.final_server_lr is not None or config.epsilon is not None:
    # The learning rate decays, and noise is calibrated, over all rounds.
    fields.remove('rounds')
  if privacy_checks.is_private(config):
    # Released rounds must not be played again with other rounding.
    fields.remove('lanes_per_step')
  return fields


def check(folder: pathlib.Path, config: Any, may_change: Collection[str]):
  """Compares a config with the config.json of a folder, where there is one.

  Args:
    folder: with or without results.
    config: of the new results, a dataclass whose fields all have a default.
    may_change: fields that may differ.

  Raises:
    WorkdirError: other fields differ; the message names them.
  """
  path, fields = folder / 'config.json', files.as_json(config)
  if not path.exists():
    return
  old = read(path)
  if moved := sorted(old.keys() & config_lib.MOVED.keys()):
    places = ', '.join(f'{k} is {config_lib.MOVED[k]} now' for k in moved)
    raise WorkdirError(f'{path} is of an older version: {places}.')
  old = files.as_json(type(config)()) | old  # an older version has fewer fields
  changed = [
    f'{name}: {old.get(name)!r} there, {fields.get(name)!r} here'
    for name in sorted({*old, *fields} - {*may_change})
    if old.get(name) != fields.get(name)
  ]
  if changed:
    raise WorkdirError(
      f'{folder} holds a run of another config '
      f'({"; ".join(changed)}). Name another workdir.'
    )


def read(path: pathlib.Path) -> dict[str, Any]:
  """Reads a config.json.

  Raises:
    WorkdirError: it is none.
  """
  try:
    return json.loads(path.read_text())
  except json.JSONDecodeError as e:
    raise WorkdirError(f'{path} is not a config: {e}.') from e


def lock(folder: pathlib.Path) -> contextlib.ExitStack:
  """Locks a folder against other runs until the result is closed.

  The first process of a run locks for all of them. The kernel unlocks when that
  process ends, even by SIGKILL: a file it leaves behind locks nothing.

  Args:
    folder: must exist.

  Raises:
    WorkdirError: another process uses the folder; the message names it.
  """
  path, locked, error = folder / 'lock', contextlib.ExitStack(), None
  if jax.process_index() == 0:
    file = locked.enter_context(open(path, 'a+'))
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      if not path.exists() or not os.path.samefile(path, file.fileno()):
        raise BlockingIOError  # the previous run has just removed the file
      file.truncate(0)
      file.write(f'process {os.getpid()} on {platform.node()}')
      file.flush()
      locked.callback(path.unlink, missing_ok=True)
    except BlockingIOError:
      user = path.read_text() if path.exists() else 'another process'
      error = WorkdirError(
        f'{folder} is in use by {user}: end it, or name another workdir.'
      )
    except OSError as e:  # some network drives have no locks
      warnings.warn(f'{folder} cannot be locked: {e}.', stacklevel=3)
  if processes.any_process(error is not None):
    locked.close()
    raise error or WorkdirError(f'{folder} is in use.')
  return locked


class Workdir:
  """Writes the files of a run, from the first process only.

  config.json: every field of the config. metrics.jsonl: one JSON object a
  logged round. summary.json: final numbers, versions, device. checkpoints/:
  see `checkpoints.Checkpoints`.

  Args:
    folder: created if it does not exist.
    config: must agree with an existing config.json, but for the fields in
      `resumable`.

  Raises:
    WorkdirError: it does not, or another process uses the folder.
  """

  def __init__(self, folder: str | pathlib.Path, config: config_lib.Config):
    self.folder = pathlib.Path(folder)
    self.folder.mkdir(parents=True, exist_ok=True)
    self.metrics = self.folder / 'metrics.jsonl'
    self._writes = jax.process_index() == 0
    self._file = None
    self._fields = files.as_json(config)
    check(self.folder, config, resumable(config))
    self._lock = lock(self.folder)

  def begin(self, rounds_done: int) -> dict[str, Any]:
    """Writes the config, and cuts metrics after the restored checkpoint.

    A killed process leaves rows past its last checkpoint, and perhaps half a
    line. It is the first to write: a start that is refused leaves the folder as
    it was. The summary of a shorter run is removed.

    Returns:
      The last row of metrics that stays, empty if there is none.
    """
    rows = metrics.read_metrics(self.metrics) if self.metrics.exists() else []
    rows = [row for row in rows if row['round'] < rounds_done]
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    self._replace('config.json', self._fields)
    self._replace('metrics.jsonl', text)
    if self._writes and rounds_done < self._fields['rounds']:
      (self.folder / 'summary.json').unlink(missing_ok=True)
    if self._writes:
      # Unbuffered: closing would write what a full disk has refused once more.
      self._file = open(self.metrics, 'ab', buffering=0)
    return rows[-1] if rows else {}

  def has_metrics(self) -> bool:
    """Whether an earlier start has logged a round."""
    return self.metrics.exists() and self.metrics.stat().st_size > 0

  def write(self, row: dict[str, Any]):
    """Appends one row of metrics.

    Raises:
      SaveError: it cannot be written completely.
    """
    if self._file is None:
      return
    line = (json.dumps(row) + '\n').encode()
    try:
      written = self._file.write(line)
      if written != len(line):
        raise OSError(f'only {written} of {len(line)} bytes')
    except OSError as e:
      raise files.SaveError(
        f'{self.metrics} cannot be written: {e}. Make room; the same command '
        'resumes from the last checkpoint.'
      ) from e

  def summarize(self, row: dict[str, Any], **more: Any):
    """Writes summary.json: the last row, versions and devices."""
    self._replace('summary.json', row | more | files.measured_with())

  def close(self):
    """Closes metrics.jsonl and unlocks the folder."""
    if self._file is not None:
      self._file.close()
    self._lock.close()

  def _replace(self, name, content):
    if self._writes:
      files.replace(self.folder / name, content)


class Records:
  """Writes one JSON object for each finished point, in the order of the points.

  Args:
    folder: created if it does not exist.
    config: of the grid; must equal an existing config.json.
    name: of the file.
    number: row -> the number of its point.
    may_change: fields in which the config may differ.

  Attributes:
    folder: as a path.
    rows: of the finished points, by number.

  Raises:
    WorkdirError: config.json is another config, or another process uses the
      folder.
  """

  def __init__(
    self,
    folder: str | os.PathLike,
    config: Any,
    name: str,
    number: Callable[[dict[str, Any]], int],
    may_change: Collection[str] = (),
  ):
    self.folder = pathlib.Path(folder)
    self.folder.mkdir(parents=True, exist_ok=True)
    # Finished points do not run again.
    check(self.folder, config, may_change)
    self._lock = lock(self.folder)
    self._config, self._path = config, self.folder / name
    rows = metrics.read_metrics(self._path) if self._path.exists() else []
    self.rows = {number(row): row for row in rows}

  def close(self):
    """Unlocks the folder."""
    self._lock.close()

  def add(self, number: int, row: dict[str, Any]):
    """Adds the row of a point, and writes config.json and the file."""
    # Not earlier: the config.json of a refused grid would refuse the next one.
    files.replace(self.folder / 'config.json', files.as_json(self._config))
    self.rows[number] = json.loads(json.dumps(row))
    lines = [json.dumps(self.rows[i]) + '\n' for i in sorted(self.rows)]
    files.replace(self._path, ''.join(lines))
