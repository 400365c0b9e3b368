"""Puts the tasks beside one another: one table and one figure."""

from collections.abc import Sequence

from fl_sketch.runs import figures, metrics
import numpy as np

from ..common import results, study
from ..common.workspace import Workspace
from . import methods, report, runs, tasks

_STUDIES = {
  'digits': ('Trained-Digits', report.digits),
  'clothes': ('Trained-Clothes', report.clothes),
  'characters': ('Trained-Characters', report.characters),
}  # fmt: skip
_TABLE = (
  'Means over seeds with intervals of 95 %, after equally many samples: test '
  'accuracy in per cent, or of the decoder the test loss in nats. "Times '
  'fewer" is the bytes of dense updates at every step over those of the '
  'method, of a worker up and down: the least and the most of the tasks.'
)
_FIGURE = (
  'The metric at the end against the bytes of a worker, up and down, mean over '
  'seeds with intervals of 95 %. The line is the best dense method.'
)


Rows = dict[tuple[str, ...], tuple[str, str]]


def overview(ws: Workspace) -> study.Report:
  """Makes the table and the figure of all tasks.

  The result of a task is read from the folder of the workspace, or made where
  there is none.
  """
  panels, columns = [], {}
  for of, (name, make) in _STUDIES.items():
    task = tasks.TASKS[of]
    kept = results.read(ws.folder, name)
    found = _stored(kept) if kept else make(ws)
    panels.append(_together(task.title, found.pictures[0].panels))
    unit = 'nats' if task.is_loss else '%'
    columns[f'{task.title} ({unit}, mark {task.mark:g})'] = _rows(task, found)
  rows = []
  for key in dict.fromkeys(key for found in columns.values() for key in found):
    cells = [found.get(key) for found in columns.values()]
    fewer = sorted({x[0] for x in cells if x}, key=_number)
    ends = ' to '.join(dict.fromkeys((fewer[0], fewer[-1])))
    rows.append([*key, ends, *(x[1] if x else '' for x in cells)])
  head = ['method', 'size', 'sends every', 'times fewer', *columns]
  table = study.Table(_TABLE, head, rows)
  return study.Report([], {}, [table], [study.Picture(_FIGURE, panels)])


def _stored(kept: results.Result) -> study.Report:
  """What is read here of a stored result."""
  panels = figures.from_json(kept['pictures'][0]['panels'])
  tables = [study.Table(**table) for table in kept['tables']]
  return study.Report([], kept['seeds'], tables, [study.Picture('', panels)])


def _rows(task: tasks.Task, found: study.Report) -> Rows:
  """(method, size, sends every) -> (times fewer, metric with interval)."""
  rows = [row for table in found.tables for row in table.rows]
  at = found.tables[0].head.index('times fewer')
  fewer = {tuple(row[:2]): row[at] for row in rows}
  of, cells = next(iter(found.seeds)).split('/')[1], {}  # other when rehearsed
  for row in methods.rows(of):
    one, key = found.seeds[runs.name_of(of, *row)], (row[0], report.label(row))
    local = methods.METHODS[row[0]].local
    every = f'{task.local_steps} steps' if local else 'step'
    shown = _with_interval(one['final'], task.decimals)
    cells[*key, every] = fewer[key], shown
  return cells


def _with_interval(final: list[float], digits: int) -> str:
  """The mean of the metric over seeds ± half of its interval of 95 %."""
  mean, low, _ = map(float, metrics.interval(np.array(final, float)))
  return f'{mean:.{digits}f} ± {mean - low:.{digits}f}'


def _together(title: str, panels: Sequence[figures.Panel]) -> figures.Panel:
  """One panel of a task: methods of every step, and of local steps."""
  # Cells of the tables of the task are none of the table of all.
  lines = [x._replace(cell='') for panel in panels for x in panel.lines]
  return panels[0]._replace(title=title, lines=lines)


def _number(cell: str) -> float:
  return float(cell.replace(',', ''))
