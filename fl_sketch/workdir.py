"""The folder of one run: its config, its metrics, its summary."""

import dataclasses
import json
import os
import pathlib
import platform
from typing import Any

from fl_sketch import config as config_lib
from fl_sketch import reporting
import jax
import numpy as np


class WorkdirError(ValueError):
  """The folder holds a run of another config."""


def _as_json(config: config_lib.Config) -> dict[str, Any]:
  return json.loads(json.dumps(dataclasses.asdict(config)))


class Workdir:
  """Files of a run; only the first process writes.

  config.json: every field of the config. metrics.jsonl: one JSON object a
  logged round. summary.json: final numbers, versions, device. checkpoints/:
  see `checkpoints.Checkpoints`.

  Args:
    folder: made if it is not there.
    config: must agree with the config.json that is there, but for the fields
      in `config.RESUMABLE`.

  Raises:
    WorkdirError: it does not; the message names the fields.
  """

  def __init__(self, folder: str | pathlib.Path, config: config_lib.Config):
    self.folder = pathlib.Path(folder)
    self.folder.mkdir(parents=True, exist_ok=True)
    self.metrics = self.folder / 'metrics.jsonl'
    self._writes = jax.process_index() == 0
    self._file = None
    self._fields = _as_json(config)
    self._check(self._fields)

  def _check(self, fields):
    path = self.folder / 'config.json'
    if not path.exists():
      return
    try:
      old = json.loads(path.read_text())
    except json.JSONDecodeError as e:
      raise WorkdirError(f'{path} is not a config: {e}.') from e
    old = _as_json(config_lib.Config()) | old  # fields may have come later
    may_change = set(config_lib.RESUMABLE)
    if fields['final_server_lr'] is not None:
      may_change.remove('rounds')  # the learning rate decays over them
    names = sorted(set(old) | set(fields))
    changed = [
      f'{name}: {old.get(name)!r} there, {fields.get(name)!r} here'
      for name in names
      if name not in may_change and old.get(name) != fields.get(name)
    ]
    if changed:
      raise WorkdirError(
        f'{self.folder} holds a run of another config '
        f'({"; ".join(changed)}). Name another workdir.'
      )

  def begin(self, rounds_done: int) -> dict[str, Any]:
    """Writes the config, and cuts the metrics of rounds that are not done.

    A process that is killed leaves rows past its last checkpoint, and perhaps
    half a line. Nothing is written before: a start that is refused leaves the
    folder as it was.

    Returns:
      The last row of metrics that stays, empty if there is none.
    """
    rows = reporting.read_metrics(self.metrics) if self.metrics.exists() else []
    rows = [row for row in rows if row['round'] < rounds_done]
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    self._replace('config.json', json.dumps(self._fields, indent=2) + '\n')
    self._replace('metrics.jsonl', text)
    if self._writes:
      self._file = open(self.metrics, 'a')
    return rows[-1] if rows else {}

  def write(self, row: dict[str, Any]):
    """Appends one row of metrics."""
    if self._file is not None:
      self._file.write(json.dumps(row) + '\n')
      self._file.flush()

  def summarize(self, row: dict[str, Any], **more: Any):
    """Writes summary.json: the last row, and what it was measured with."""
    versions = {module.__name__: module.__version__ for module in (jax, np)} | {
      'python': platform.python_version()
    }
    devices = jax.devices()
    summary = (
      row
      | more
      | {
        'versions': versions,
        'device': f'{len(devices)} x {devices[0].device_kind}',
        'processes': jax.process_count(),
      }
    )
    self._replace('summary.json', json.dumps(summary, indent=2) + '\n')

  def close(self):
    """Closes metrics.jsonl."""
    if self._file is not None:
      self._file.close()

  def _replace(self, name, text):
    """Writes a file so that it is there as a whole or not at all."""
    if not self._writes:
      return
    partial = self.folder / f'{name}.partial'
    partial.write_text(text)
    os.replace(partial, self.folder / name)
