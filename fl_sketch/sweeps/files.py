"""The folder of a sweep: records, points, best parameters, report."""

from collections.abc import Iterable
import itertools
import json
import os
import pathlib
import shutil
from typing import Any

from fl_sketch.experiment import config as config_lib
from fl_sketch.sweeps import report as report_lib
from fl_sketch.training import identity, same_run, saved_params, workdir
from fl_sketch.utils import extras, files


class Files(workdir.Records):
  """Writes the files of a sweep: records, a folder for each point, a report.

  The config must equal an existing config.json, but for what is swept and what
  a resumed run may change; `rounds` must be equal. Raises WorkdirError, which
  names the fields, if it does not.
  """

  def __init__(self, folder: str | os.PathLike, config: config_lib.Config):
    swept = {*(config.sweep or {})}

    def allowed(old):  # points of an earlier sweep stay apart as well
      swept.update((old or {}).get('sweep') or {})
      return _resumable(config) | {'sweep', *swept}

    point = lambda row: row['point']
    super().__init__(folder, config, 'points.jsonl', point, may_change=allowed)
    self._swept = swept

  def numbered(self, points: Iterable[Any]) -> dict[int, Any]:
    """Numbers points: those of the folder keep theirs, known by their config.

    What a resumed run may change does not tell points apart, unless a sweep of
    this folder varies it.
    """
    points = list(points)
    same = set.intersection(*(_resumable(p.config) for p in points))
    same -= self._swept

    def key(fields):
      kept = {k: v for k, v in fields.items() if k not in same}
      return json.dumps(kept, sort_keys=True)

    # Of equal points a finished one counts, and of those the first.
    begun = {
      int(path.parent.name): same_run.stored_config(path.parent) or {}
      for path in (self.folder / 'points').glob('*/config.json')
      if path.parent.name.isdecimal()
    }
    order = sorted(begun, key=lambda n: (n in self.rows, -n))
    known = {key(begun[n]): n for n in order}
    taken = self.rows.keys() | begun.keys()
    new = (n for n in itertools.count() if n not in taken)
    todo: dict[int, Any] = {}
    for point in points:
      n = known.get(key(files.as_json(point.config)))
      todo[next(new) if n is None else n] = point
    return todo

  def point(self, number: int) -> pathlib.Path:
    """Returns the folder of a point."""
    return self.folder / 'points' / f'{number:03d}'

  def finish(self, number: int, point, problem: identity.Record, result):
    """Writes the folder of a finished point and its row of points.jsonl.

    `point` is a `grid.Point`, `result` a `program.Result`.
    """
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

  def report(self, rows: list[report_lib.Row]):
    """Writes table.md, table.csv, sweep.json and, if it is there, sweep.png."""
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
  """Fields that may change between two starts; points never play on."""
  return same_run.resumable(config) - {'rounds'}
