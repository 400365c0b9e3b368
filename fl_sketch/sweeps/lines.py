"""A sweep along one field: a line, and a column of a table, for each setting.

Over the fields that are neither on the axis nor among the lines the best
setting counts, and over seeds the mean.
"""

import json
import os
import pathlib
from typing import Any, NamedTuple

from fl_sketch import reporting
from fl_sketch.experiment.config import checked
from fl_sketch.sweeps import report as sweep_report
from fl_sketch.utils import markdown
import numpy as np


class Best(NamedTuple):
  """The best setting of one value on the axis of one line.

  Attributes:
    mean: of the metric over seeds.
    error: its standard error; NaN for one seed.
    rest: values of the fields it is the best over.
  """

  mean: float
  error: float
  rest: dict[str, Any]


@checked()
def lines(
  rows: list[sweep_report.Row], x: str, by: list[str]
) -> dict[str, dict[Any, Best]]:
  """Label of a line -> value of `x` -> the best setting there.

  Args:
    rows: of points.jsonl.
    x: the field on the axis.
    by: fields whose values make the lines.

  Raises:
    ConfigError: a field is not swept.
  """
  found: dict[str, dict[Any, Best]] = {}
  for s in sweep_report.settings(rows):  # best first
    if unknown := [name for name in (x, *by) if name not in s.values]:
      raise ValueError(f'Expected {unknown} among the fields {[*s.values]}.')
    label = ', '.join(f'{k}={sweep_report.shown(s.values[k])}' for k in by)
    rest = {k: v for k, v in s.values.items() if k not in (x, *by)}
    best = Best(s.mean, s.error, rest)
    found.setdefault(label, {}).setdefault(s.values[x], best)
  return {label: dict(sorted(found[label].items())) for label in sorted(found)}


def table(found: dict[str, dict[Any, Best]], x: str) -> str:
  """Markdown: a row for each line, a column for each value on the axis."""
  xs = sorted({value for line in found.values() for value in line})
  head = ['', *(f'{x} {sweep_report.shown(value)}' for value in xs)]
  rows = (
    [label, *(_cell(line.get(value)) for value in xs)]
    for label, line in found.items()
  )
  return markdown.table(head, rows, left=1)


def last_rounds(
  rows: list[sweep_report.Row], folder: str | os.PathLike, count: int
) -> list[sweep_report.Row]:
  """Rows whose test metrics are means over the last evaluations of a point.

  Args:
    rows: of points.jsonl.
    folder: of the sweep.
    count: evaluations.
  """
  averaged = []
  for row in rows:
    path = pathlib.Path(folder) / 'points' / f'{row["point"]:03d}'
    seen = [r for r in reporting.read_metrics(path) if 'test_loss' in r]
    names = [k for k in row if k.startswith('test_')]
    means = {k: float(np.mean([r[k] for r in seen[-count:]])) for k in names}
    averaged.append(row | means)
  return averaged


def report(
  rows: list[sweep_report.Row], folder: str | os.PathLike, x: str, by: list[str]
) -> str:
  """Writes lines.md, lines.json and lines.png; returns the table."""
  folder, found = pathlib.Path(folder), lines(rows, x, by)
  text = table(found, x)
  (folder / 'lines.md').write_text(text)
  plain = {
    label: [{x: value} | best._asdict() for value, best in line.items()]
    for label, line in found.items()
  }
  (folder / 'lines.json').write_text(json.dumps(plain, indent=2) + '\n')
  metric = sweep_report.metric_of(rows).replace('_', ' ')
  ax = reporting.new_axes(x, metric)
  for i, (label, line) in enumerate(found.items()):
    means, errors, _ = zip(*line.values(), strict=True)
    look = reporting.look(i)
    ax.errorbar(
      list(line), means, errors, marker='o', capsize=3, label=label, **look
    )
  if len(xs := [*next(iter(found.values()))]) > 2 and xs[-1] > 4 * xs[0] > 0:
    ax.set_xscale('log')
    reporting.plain_ticks(ax.xaxis)
  ax.legend(frameon=False, fontsize='small')
  picture = ax.get_figure(root=True)
  assert picture is not None
  picture.savefig(folder / 'lines.png', dpi=150)
  return text


def _cell(best: Best | None) -> str:
  if best is None or np.isnan(best.mean):
    return ''
  error = '' if np.isnan(best.error) else f' ± {best.error:.2g}'
  return f'{best.mean:.4g}{error}'
