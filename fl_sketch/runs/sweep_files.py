"""The folder of a sweep: records, points, best parameters, report."""

from collections.abc import Iterable
import itertools
import json
import pathlib
import shutil

from fl_sketch.runs import (
  config as config_lib,
  same_run,
  saved_params,
  sweep_report,
  workdir,
)
from fl_sketch.runs.metrics import PathLike, Row
from fl_sketch.runs.sweep_points import Point
from fl_sketch.runs.sweep_program import Result
from fl_sketch.utils import extras, files


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
    last |= sweep_report.best_tests(result.rows)
    run.summarize(last, diverged=result.diverged, **result.about)
    row = {'point': number, 'values': point.values} | last
    row |= {'diverged': result.diverged, 'seconds': round(result.seconds, 3)}
    best = sweep_report.best_point([*(self.rows | {number: row}).values()])
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
      'metric': sweep_report.metric_of(rows),
      'best': files.finite(sweep_report.settings(rows)[0]._asdict()),
      # Of all in the folder: the point that has parameters.
      'best_point': sweep_report.best_point([*self.rows.values()]),
      'points': len(rows),
      'diverged': sum(row['diverged'] for row in rows),
    }
    files.replace(self.folder / 'sweep.json', summary | files.measured_with())
    text = sweep_report.table(rows, self.folder / 'table.csv')
    files.replace(self.folder / 'table.md', text)
    with extras.optional_figures():
      if fig := sweep_report.draw(rows):
        fig.savefig(self.folder / 'sweep.png', dpi=150)


def _resumable(config: config_lib.Config) -> set[str]:
  """Return the fields that may change between two starts of a sweep."""
  return same_run.resumable(config) - {'rounds'}
