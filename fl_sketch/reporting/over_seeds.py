"""Plots curves of several runs: means over seeds, with bands."""

from collections.abc import Iterable, Mapping, Sequence
import json
import os
import pathlib
from typing import Any, NamedTuple

from fl_sketch.reporting import figures, intervals, metrics
from fl_sketch.utils import files, seeding
import numpy as np

X = {
  'rounds': ('rounds', lambda row: row['round'] + 1),
  'up': (
    'uplink of all clients (MB)',
    lambda row: row['total_uplink_bytes'] / 1e6,
  ),
  'down': (
    'downlink of all clients (MB)',
    lambda row: row['total_downlink_bytes'] / 1e6,
  ),
  'bytes': (figures.MEGABYTES, lambda row: metrics.total_bytes(row) / 1e6),
}
BANDS = ('interval', 'range')


class Group(NamedTuple):
  """Runs whose configs differ in seeds alone.

  Attributes:
    label: the fields in which their config differs from that of other groups.
    folders: of the runs.
    rows: of their metrics.
  """

  label: str
  folders: list[str]
  rows: list[list[metrics.Row]]


def plot(
  runs: Sequence[str | os.PathLike],
  path: str | os.PathLike,
  *,
  x: str = 'rounds',
  y: Sequence[str] = (),
  band: str = 'interval',
) -> list[figures.Panel]:
  """Draws a panel for each metric, and a line for each config, into a PNG.

  A line is the mean over runs that differ in their seeds alone, at the rounds
  that all of them have logged; its x are means as well. The numbers stand in
  a JSON file of the same name.

  Args:
    runs: workdirs; of a sweep, all of its points.
    path: of the PNG; its folder is created.
    x: 'rounds'; 'up', 'down' or 'bytes': megabytes of all clients, uplink,
      downlink or both.
    y: metrics; by default the test accuracy, or else the test loss.
    band: 'interval', the 95 % t-interval of the mean; or 'range', from the
      least to the greatest value. A single run has none.

  Returns:
    The panels that were drawn.

  Raises:
    ValueError: there is no run, one has no such metric, or two are alike.
    MissingExtraError: matplotlib is not installed.
    SaveError: a file cannot be written.
  """
  for name, value, known in (('x', x, tuple(X)), ('band', band, BANDS)):
    if value not in known:
      raise ValueError(f'Expected {name}={value!r} in {known}.')
  grouped = groups(runs)
  every = [rows for group in grouped for rows in group.rows]
  names = y or [metrics.shared_metric(every) or 'train_loss']
  panels = [_panel(grouped, x, name, band) for name in names]
  path = pathlib.Path(path)
  drawn = figures.draw(panels)
  with files.save_errors(lambda why: f'{path} cannot be written: {why}.'):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150, format='png')
  numbers = {
    'band': band,
    'runs': {group.label: group.folders for group in grouped},
    'panels': figures.as_json(panels),
  }
  files.replace(path.with_suffix('.json'), numbers)
  return panels


def groups(runs: Iterable[str | os.PathLike]) -> list[Group]:
  """Groups runs by their configs, seeds apart.

  Args:
    runs: workdirs, or folders of sweeps.

  Raises:
    ValueError: there is no run, a folder holds none, or two have one config.
  """
  by_config: dict[str, dict[str, pathlib.Path]] = {}
  for folder in _folders(runs):
    fields = _flat(_json(folder / 'config.json'))
    seeds = str({name: fields.pop(name, None) for name in seeding.FIELDS})
    same = by_config.setdefault(json.dumps(fields), {})
    if seeds in same:
      raise ValueError(
        f'Expected other seeds in {folder} than in {same[seeds]}, or another '
        'config.'
      )
    same[seeds] = folder
  if not by_config:
    raise ValueError('Expected at least one run.')
  configs = [json.loads(text) for text in by_config]
  names = dict.fromkeys(name for fields in configs for name in fields)
  differ = [n for n in names if len({str(f.get(n)) for f in configs}) > 1]
  return [
    Group(
      ', '.join(f'{n}={fields[n]}' for n in differ if n in fields),
      [str(folder) for folder in same.values()],
      [_rows(folder) for folder in same.values()],
    )
    for fields, same in zip(configs, by_config.values(), strict=True)
  ]


def _folders(runs) -> Iterable[pathlib.Path]:
  for folder in map(pathlib.Path, runs):
    if (folder / 'points.jsonl').exists():
      yield from sorted((folder / 'points').iterdir())
    else:
      yield folder


def _json(path: pathlib.Path) -> dict[str, Any]:
  try:
    return json.loads(path.read_text(encoding='utf-8'))
  except (FileNotFoundError, NotADirectoryError) as e:
    raise ValueError(f'Expected a run: there is no {path}.') from e
  except json.JSONDecodeError as e:
    raise ValueError(f'Expected a config in {path}: {e}.') from e


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
  """Names the options of a mapping NAME.OPTION; leaves out what is None."""
  flat = {}
  for name, value in config.items():
    inner = value if isinstance(value, dict) else {'': value}
    flat |= {f'{name}.{k}'.rstrip('.'): v for k, v in inner.items()}
  return {name: value for name, value in flat.items() if value is not None}


def _rows(folder: pathlib.Path) -> list[metrics.Row]:
  (rows,) = metrics.read_runs([folder]).values()
  return rows


def _panel(grouped: list[Group], x: str, y: str, band: str) -> figures.Panel:
  return figures.Panel(
    X[x][0],
    y.replace('_', ' '),
    [_line(group, x, y, band) for group in grouped],
    x_scale='linear' if x == 'rounds' else 'log',
  )


def _line(group: Group, x: str, y: str, band: str) -> figures.Line:
  """The mean over the runs of a group, at the rounds that all have logged."""
  by_round = []
  for folder, rows in zip(group.folders, group.rows, strict=True):
    have = [row for row in rows if row.get(y) is not None]
    if not have:
      raise ValueError(
        f'Expected {y=} among the metrics of {folder}: '
        f'{", ".join(metrics.as_array(rows).dtype.names or ())}.'
      )
    by_round.append(
      {row['round']: (X[x][1](row), float(row[y])) for row in have}
    )
  common = sorted(set.intersection(*map(set, by_round)))
  if not common:
    raise ValueError(f'Expected {y} of one round in all of {group.folders}.')
  points = np.array([[run[r] for r in common] for run in by_round])
  xs, ys = points[..., 0].mean(0), points[..., 1]
  low, high = _ends(ys, band) if len(ys) > 1 else ((), ())
  return figures.Line(group.label, xs, ys.mean(0), low, high)


def _ends(ys: np.ndarray, band: str) -> tuple[np.ndarray, np.ndarray]:
  """Lower and upper ends of a band, from f[runs, rounds]."""
  if band == 'range':
    return ys.min(0), ys.max(0)
  error = ys.std(0, ddof=1) / len(ys) ** 0.5
  half = np.array([intervals.half_width(e, len(ys)) for e in error])
  return ys.mean(0) - half, ys.mean(0) + half
