"""Reads metrics files, and summarises runs in tables and sentences.

Runs are given as {label: path} or as a list of paths; a path is a workdir or a
metrics file, and without a label a run is called after its directory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import json
import os
import pathlib
from typing import Any

from fl_sketch.utils import markdown

PathLike = str | os.PathLike
Runs = Mapping[str, PathLike] | Sequence[PathLike]
Row = dict[str, Any]


def read_metrics(path: PathLike) -> list[Row]:
  """Reads the rows of a metrics file.

  A last line that is cut short, as by a run that is being written or was
  killed, is left out.

  Args:
    path: a metrics.jsonl or the workdir that holds it.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    path = path / 'metrics.jsonl'
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  rows = []
  for number, line in enumerate(lines, start=1):
    try:
      if line.strip():
        rows.append(json.loads(line))
    except json.JSONDecodeError as e:
      if number == len(lines) and not line.endswith('\n'):
        break
      raise ValueError(f'Expected JSON in line {number} of {path}.') from e
  return rows


def table(runs: Runs) -> str:
  """A Markdown table with one line per run, from its last rows.

  Bytes per client are means over the logged rounds; MB are 10^6 bytes.

  Args:
    runs: see the module.
  """
  read = read_runs(runs)
  # A column stands where some run has a value for it.
  columns = {
    name: values
    for name, column in _COLUMNS.items()
    if any(values := [column(rows) for rows in read.values()])
  }
  lines = []
  for i, label in enumerate(read):
    cells = [values[i] for values in columns.values()]
    lines.append([label.replace('|', r'\|'), *cells])
  return markdown.table(['run', *columns], lines, left=1)


def sentence(row: Row, finished: bool) -> str:
  """Summarises the end of a run in one line, from its last row."""
  if not row:
    return 'Stopped before the first round; the same command starts it again.'
  score = ('test_accuracy', 'test_loss', 'train_loss')
  name = next(name for name in score if name in row)
  end = 'Done' if finished else 'Stopped; the same command goes on'
  return (
    f'{end} after {row["round"] + 1} rounds: {name} {row[name]:.4f}, '
    f'{row["total_uplink_bytes"] / 1e6:.2f} MB up and '
    f'{row["total_downlink_bytes"] / 1e6:.2f} MB down in all. '
    'Metrics and curves are in'
  )


def values(rows: Iterable[Row], name: str) -> list:
  """The values of a metric, of the rows that have it."""
  return [row[name] for row in rows if row.get(name) is not None]


def _last(name: str, form: str, unit: float = 1) -> Callable[..., str]:
  def column(rows):
    logged = values(rows, name)
    return format(logged[-1] / unit, form) if logged else ''

  return column


def _best_accuracy(rows: list[Row]) -> str:
  logged = values(rows, 'test_accuracy')
  return format(max(logged), '.2%') if logged else ''


def _mean_bytes(name: str) -> Callable[..., str]:
  def column(rows):
    logged = values(rows, name)
    return format(round(sum(logged) / len(logged)), ',') if logged else ''

  return column


_COLUMNS = {
  'round': _last('round', '.0f'),
  'test accuracy': _last('test_accuracy', '.2%'),
  'best accuracy': _best_accuracy,
  'test loss': _last('test_loss', '.4g'),
  'train loss': _last('train_loss', '.4g'),
  'uplink B/client/round': _mean_bytes('uplink_bytes'),
  'downlink B/client/round': _mean_bytes('downlink_bytes'),
  'total uplink MB': _last('total_uplink_bytes', ',.2f', 1e6),
  'total downlink MB': _last('total_downlink_bytes', ',.2f', 1e6),
  'epsilon': _last('epsilon', '.3g'),
}


def read_runs(runs: Runs) -> dict[str, list[Row]]:
  """Reads the rows of all runs, by label.

  Raises:
    ValueError: there is no run, or a run without a row.
  """
  if not isinstance(runs, Mapping):
    paths = [pathlib.Path(path).absolute() for path in runs]
    paths = [p.parent if p.name == 'metrics.jsonl' else p for p in paths]
    names = [path.name for path in paths]
    runs = {
      str(path) if names.count(path.name) > 1 else path.name: path
      for path in paths
    }
  if not runs:
    raise ValueError('Expected at least one run.')
  read = {label: read_metrics(path) for label, path in runs.items()}
  for label, rows in read.items():
    if not rows:
      raise ValueError(f'Expected at least one row of metrics of {label!r}.')
  return read
