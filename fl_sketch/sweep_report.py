"""The folder of a sweep: its points, its best setting, table and picture."""

import dataclasses
import json
import math
import os
import pathlib
import platform
from typing import Any
from typing import NamedTuple

from fl_sketch import config as config_lib
from fl_sketch import reporting
from fl_sketch import sweep_picture
from fl_sketch import workdir
import jax
import numpy as np

Row = dict[str, Any]
_METRICS = {'test_accuracy': max, 'test_loss': min, 'train_loss': min}


class Setting(NamedTuple):
  """Points that differ in their seeds alone.

  Attributes:
    values: of the swept fields, the seeds apart.
    mean: of the metric over the points that did not diverge; NaN for none.
    error: standard error of that mean; NaN for less than two points.
    points: how many there are.
    diverged: how many of these did.
  """

  values: Row
  mean: float
  error: float
  points: int
  diverged: int


def metric_of(rows: list[Row]) -> str:
  """What points are ranked by: test accuracy, or else a loss."""
  return next((m for m in _METRICS if any(m in r for r in rows)), 'train_loss')


def settings(rows: list[Row]) -> list[Setting]:
  r"""Mean and standard error :math:`s / \sqrt n` over seeds, best first.

  Those of which a point diverged come last.

  >>> rows = [dict(values={'seed': s}, train_loss=s, diverged=False)
  ...   for s in (1, 3)]
  >>> settings(rows)[0][1:3]
  (2.0, 1.0)

  Args:
    rows: of points.jsonl.
  """
  metric = metric_of(rows)
  found: dict[str, tuple[Row, list[Row]]] = {}
  for row in rows:
    seeds = config_lib.SEEDS
    values = {k: v for k, v in row['values'].items() if k not in seeds}
    found.setdefault(json.dumps(values), (values, []))[1].append(row)
  made = []
  for values, own in found.values():
    x = np.array([row[metric] for row in own if not row['diverged']], float)
    made.append(
      Setting(
        values,
        mean=float(x.mean()) if x.size else math.nan,
        error=float(x.std(ddof=1) / x.size**0.5) if x.size > 1 else math.nan,
        points=len(own),
        diverged=len(own) - x.size,
      )
    )
  sign = -1 if _METRICS[metric] is max else 1
  return sorted(made, key=lambda s: (s.diverged, _last(sign * s.mean)))


def _last(value):
  return math.inf if math.isnan(value) else value


def table(rows: list[Row]) -> str:
  """A Markdown table with one line a setting, best first."""
  metric = metric_of(rows)
  found = settings(rows)
  names = list(found[0].values)
  seeds = max(s.points for s in found) > 1
  diverged = any(s.diverged for s in found)
  head = [*names, metric.replace('_', ' ')]
  head += ['± standard error', 'seeds'] * seeds + ['diverged'] * diverged
  lines = [head, ['---:'] * len(head)]
  for s in found:
    line = [_text(value) for value in s.values.values()] + [_number(s.mean)]
    line += [_number(s.error), str(s.points)] * seeds
    lines.append(line + [str(s.diverged)] * diverged)
  return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def sentence(rows: list[Row]) -> str:
  """The best setting in one line."""
  best, metric = settings(rows)[0], metric_of(rows)
  values = ', '.join(f'{k}={_text(v)}' for k, v in best.values.items())
  error = '' if math.isnan(best.error) else f' ± {_number(best.error)}'
  diverged = sum(row['diverged'] for row in rows)
  return (
    f'{len(rows)} points, {diverged} diverged. Best: {values or "all seeds"}: '
    f'{metric} {_number(best.mean)}{error}. Table and picture are in'
  )


def _text(value) -> str:
  return f'{value:.4g}' if isinstance(value, float) else str(value)


def _number(value) -> str:
  return '' if math.isnan(value) else f'{value:.4g}'


class Files:
  """Files of a sweep.

  Args:
    folder: made if it is not there.
    config: must be that of the config.json that is there.

  Attributes:
    rows: of the points that are finished, by their number.

  Raises:
    WorkdirError: it is not; the message names the fields.
  """

  def __init__(self, folder: str | os.PathLike, config: config_lib.Config):
    self.folder = pathlib.Path(folder)
    self.folder.mkdir(parents=True, exist_ok=True)
    self._check(config)
    path = self.folder / 'points.jsonl'
    rows = reporting.read_metrics(path) if path.exists() else []
    self.rows = {row['point']: row for row in rows}

  def _check(self, config):
    as_json = lambda c: json.loads(json.dumps(dataclasses.asdict(c)))
    path, fields = self.folder / 'config.json', as_json(config)
    if not path.exists():
      self._replace(path.name, json.dumps(fields, indent=2) + '\n')
      return
    try:
      old = as_json(config_lib.Config()) | json.loads(path.read_text())
    except json.JSONDecodeError as e:
      raise workdir.WorkdirError(f'{path} is not a config: {e}.') from e
    changed = [k for k in fields if fields[k] != old[k]]
    if changed:
      raise workdir.WorkdirError(
        f'{self.folder} holds something of another config, which differs in '
        f'{", ".join(changed)}. Name another workdir.'
      )

  def finish(self, number: int, values: Row, config: config_lib.Config, result):
    """Writes what a point left: its folder, and its row of points.jsonl.

    Args:
      number: of the point.
      values: of its swept fields.
      config: of its run.
      result: a `sweep_program.Result`.
    """
    own = workdir.Workdir(self.folder / 'points' / f'{number:03d}', config)
    own.begin(0)
    last = {}
    for row in result.rows:
      last |= row
      logged = (row['round'] + 1) % config.log_every == 0
      if logged or 'test_loss' in row or row is result.rows[-1]:
        own.write(row)
    own.close()
    for metric, best in _METRICS.items():
      seen = [row[metric] for row in result.rows if metric in row]
      if seen and metric != 'train_loss':
        last[f'best_{metric}'] = best(seen)
    own.summarize(last, diverged=result.diverged)
    seconds = round(result.seconds, 3)
    row = {'point': number, 'values': values} | last
    row |= {'diverged': result.diverged, 'seconds': seconds}
    self.rows[number] = json.loads(json.dumps(row))
    lines = [json.dumps(self.rows[i]) + '\n' for i in sorted(self.rows)]
    self._replace('points.jsonl', ''.join(lines))

  def report(self, rows: list[Row]):
    """Writes table.md, sweep.json and, where a field is swept, sweep.png."""
    found, metric = settings(rows), metric_of(rows)
    best = {
      k: None if isinstance(v, float) and math.isnan(v) else v
      for k, v in found[0]._asdict().items()
    }
    summary = {
      'metric': metric,
      'best': best,
      'points': len(rows),
      'diverged': sum(row['diverged'] for row in rows),
      'versions': {m.__name__: m.__version__ for m in (jax, np)}
      | {'python': platform.python_version()},
      'device': f'{len(jax.devices())} x {jax.devices()[0].device_kind}',
    }
    self._replace('sweep.json', json.dumps(summary, indent=2) + '\n')
    self._replace('table.md', table(rows))
    sweep_picture.draw(
      found, metric, _METRICS[metric] is max, self.folder / 'sweep.png'
    )

  def _replace(self, name, text):
    """Writes a file so that it is there as a whole or not at all."""
    partial = self.folder / f'{name}.partial'
    partial.write_text(text)
    os.replace(partial, self.folder / name)
