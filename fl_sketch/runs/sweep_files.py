"""The folder of a sweep: records, points, best parameters, report, lines.

Of lines, x is one field, and each combination of values of others is a curve;
the remaining fields take their best values, and metrics are means over seeds.
"""

from collections.abc import Iterable
import itertools
import json
import pathlib
import shutil
from typing import Any

from fl_sketch.runs import (
  config as config_lib,
  figures,
  metrics,
  same_run,
  saved_params,
  sweep_report as report_lib,
  workdir,
)
from fl_sketch.runs.metrics import PathLike, Row
from fl_sketch.runs.sweep_points import Point
from fl_sketch.runs.sweep_program import Result
from fl_sketch.utils import extras, files, markdown
import numpy as np

# Label of a curve -> value of x -> the best setting there.
Curves = dict[str, dict[Any, report_lib.Setting]]


class Files(workdir.Records):
  """The files of a sweep: records, a folder for each point, a report.

  Raises WorkdirError, which names the fields, if the config differs from that
  of the folder in others than the swept ones and those of a resumed run.
  """

  def __init__(self, folder: PathLike, config: config_lib.Config):
    swept = {*(config.sweep or {})}

    def allowed(old):  # points of an earlier sweep stay apart as well
      swept.update(old.get('sweep') or {})
      return _resumable(config) | {'sweep', *swept}

    point = lambda row: row['point']
    super().__init__(folder, config, 'points.jsonl', point, may_change=allowed)
    self._swept = swept

  def numbered(self, points: Iterable[Point]) -> dict[int, Point]:
    """Number points: those of the folder keep theirs, known by their config."""
    points = list(points)
    same = set.intersection(*(_resumable(p.config) for p in points))
    same -= self._swept

    def key(fields):
      telling = {k: v for k, v in fields.items() if k not in same}
      return json.dumps(telling, sort_keys=True)

    # Of equal points a finished one counts, and of those the first.
    begun = {
      int(path.parent.name): same_run.stored_config(path.parent)
      for path in (self.folder / 'points').glob('*/config.json')
      if path.parent.name.isdecimal()
    }
    order = sorted(begun, key=lambda n: (n in self.rows, -n))
    known = {key(begun[n]): n for n in order}
    taken = self.rows.keys() | begun.keys()
    new = (n for n in itertools.count() if n not in taken)
    todo: dict[int, Point] = {}
    for point in points:
      n = known.get(key(files.as_json(point.config)))
      todo[next(new) if n is None else n] = point
    return todo

  def point(self, number: int) -> pathlib.Path:
    """Return the folder of a point."""
    return self.folder / 'points' / f'{number:03d}'

  def finish(
    self, number: int, point: Point, problem: same_run.Record, result: Result
  ):
    """Write the folder of a finished point and its row of points.jsonl."""
    run = workdir.Workdir(self.point(number), point.config, problem)
    run.begin(0)
    last = {}
    for row in result.rows:
      last |= row
      logged = (row['round'] + 1) % point.config.log_every == 0
      if logged or 'test_loss' in row or row is result.rows[-1]:
        run.write(row)
    run.close()
    last |= report_lib.best_tests(result.rows)
    run.summarize(last, diverged=result.diverged, **result.about)
    row = {'point': number, 'values': point.values} | last
    row |= {'diverged': result.diverged, 'seconds': round(result.seconds, 3)}
    best = report_lib.best_point([*(self.rows | {number: row}).values()])
    params = self.point(number) / 'params'
    if best == number:  # first: a point that has a row does not run again
      saved_params.write(params, len(result.rows), result.params)
    self.add(number, row)
    if best == number:
      for other in {*(self.folder / 'points').glob('*/params')} - {params}:
        shutil.rmtree(other, ignore_errors=True)

  def report(self, rows: list[Row]):
    """Write table.md, table.csv, sweep.json and, if it is there, sweep.png."""
    summary = {
      'metric': report_lib.metric_of(rows),
      'best': files.finite(report_lib.settings(rows)[0]._asdict()),
      # Of all in the folder: the point that has parameters.
      'best_point': report_lib.best_point([*self.rows.values()]),
      'points': len(rows),
      'diverged': sum(row['diverged'] for row in rows),
    }
    files.replace(self.folder / 'sweep.json', summary | files.measured_with())
    text = report_lib.table(rows, self.folder / 'table.csv')
    files.replace(self.folder / 'table.md', text)
    with extras.optional_figures():
      if fig := report_lib.picture(rows):
        fig.savefig(self.folder / 'sweep.png', dpi=150)


def _resumable(config: config_lib.Config) -> set[str]:
  """Return the fields that may change between two starts of a sweep."""
  return same_run.resumable(config) - {'rounds'}


@config_lib.checked()
def lines(rows: list[Row], x: str, by: list[str]) -> Curves:
  """Return label of a curve -> value of `x` -> best setting of other fields.

  Each combination of values of the fields `by` is a curve.
  """
  curves: Curves = {}
  for s in report_lib.settings(rows):  # best first
    if unknown := [name for name in (x, *by) if name not in s.values]:
      raise ValueError(
        f'{unknown} were not swept; choose from the fields {[*s.values]}.'
      )
    label = ', '.join(f'{k}={metrics.shown(s.values[k])}' for k in by)
    rest = {k: v for k, v in s.values.items() if k not in (x, *by)}
    best = s._replace(values=rest)
    curves.setdefault(label, {}).setdefault(s.values[x], best)
  return {k: dict(sorted(curves[k].items())) for k in sorted(curves)}


def lines_table(curves: Curves, x: str) -> str:
  """Format curves in Markdown: a row each, a column for each value of x."""
  xs = sorted({value for line in curves.values() for value in line})
  head = ['', *(f'{x} {metrics.shown(value)}' for value in xs)]
  rows = ([k, *map(_cell, map(line.get, xs))] for k, line in curves.items())
  return markdown.table(head, rows, left=1)


def last_rounds(rows: list[Row], folder: PathLike, count: int) -> list[Row]:
  """Average the test metrics of rows over the last `count` evaluations."""
  averaged = []
  for row in rows:
    path = pathlib.Path(folder) / 'points' / f'{row["point"]:03d}'
    records = [r for r in metrics.read_metrics(path) if 'test_loss' in r]
    names = [k for k in row if k.startswith('test_')]
    means = {k: float(np.mean([r[k] for r in records[-count:]])) for k in names}
    averaged.append(row | means)
  return averaged


def write_lines(
  rows: list[Row], folder: PathLike, x: str, by: list[str]
) -> str:
  """Write lines.md, lines.json and lines.png; returns the table."""
  folder, curves = pathlib.Path(folder), lines(rows, x, by)
  text = lines_table(curves, x)
  files.replace(folder / 'lines.md', text)
  plain, drawn = {}, {}
  for label, line in curves.items():
    plain[label] = [
      {x: value, 'mean': s.mean, 'error': s.error, 'rest': s.values}
      for value, s in line.items()
    ]
    drawn[label] = [*line], [*line.values()]
  files.replace(folder / 'lines.json', plain)
  metric = report_lib.metric_of(rows).replace('_', ' ')
  with extras.optional_figures():
    figure = figures.draw([report_lib.curves(x, metric, drawn)])
    figure.savefig(folder / 'lines.png', dpi=150)
  return text


def _cell(best: report_lib.Setting | None) -> str:
  if best is None or np.isnan(best.mean):
    return ''
  error = '' if np.isnan(best.error) else f' ± {best.error:.2g}'
  return f'{best.mean:.4g}{error}'
