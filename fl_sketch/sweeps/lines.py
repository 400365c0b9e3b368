"""Plots and tabulates a sweep: x is one field, one curve per value of others.

The remaining fields take their best values, and metrics are means over seeds.
"""

import pathlib
from typing import Any

from fl_sketch import reporting
from fl_sketch.experiment.config import checked
from fl_sketch.reporting import figures, metrics
from fl_sketch.reporting.metrics import PathLike, Row
from fl_sketch.sweeps import report as sweep_report
from fl_sketch.utils import extras, files, markdown
import numpy as np

# Label of a curve -> value of x -> the best setting there.
Curves = dict[str, dict[Any, sweep_report.Setting]]


@checked()
def lines(rows: list[Row], x: str, by: list[str]) -> Curves:
  """Returns label of a curve -> value of `x` -> best setting of other fields.

  Each combination of values of the fields `by` is a curve. Raises ConfigError
  if a field is not swept.
  """
  curves: Curves = {}
  for s in sweep_report.settings(rows):  # best first
    if unknown := [name for name in (x, *by) if name not in s.values]:
      raise ValueError(
        f'{unknown} were not swept; choose from the fields {[*s.values]}.'
      )
    label = ', '.join(f'{k}={metrics.shown(s.values[k])}' for k in by)
    rest = {k: v for k, v in s.values.items() if k not in (x, *by)}
    best = s._replace(values=rest)
    curves.setdefault(label, {}).setdefault(s.values[x], best)
  return {k: dict(sorted(curves[k].items())) for k in sorted(curves)}


def table(curves: Curves, x: str) -> str:
  """Formats curves in Markdown: a row each, a column for each value of x."""
  xs = sorted({value for line in curves.values() for value in line})
  head = ['', *(f'{x} {metrics.shown(value)}' for value in xs)]
  rows = ([k, *map(_cell, map(line.get, xs))] for k, line in curves.items())
  return markdown.table(head, rows, left=1)


def last_rounds(rows: list[Row], folder: PathLike, count: int) -> list[Row]:
  """Averages the test metrics of rows over the last `count` evaluations."""
  averaged = []
  for row in rows:
    path = pathlib.Path(folder) / 'points' / f'{row["point"]:03d}'
    records = [r for r in reporting.read_metrics(path) if 'test_loss' in r]
    names = [k for k in row if k.startswith('test_')]
    means = {k: float(np.mean([r[k] for r in records[-count:]])) for k in names}
    averaged.append(row | means)
  return averaged


def report(rows: list[Row], folder: PathLike, x: str, by: list[str]) -> str:
  """Writes lines.md, lines.json and lines.png; returns the table."""
  folder, curves = pathlib.Path(folder), lines(rows, x, by)
  text = table(curves, x)
  files.replace(folder / 'lines.md', text)
  told = lambda v, s: {x: v, 'mean': s.mean, 'error': s.error, 'rest': s.values}
  plain = {k: [told(*c) for c in line.items()] for k, line in curves.items()}
  files.replace(folder / 'lines.json', plain)
  found = {k: ([*line], [*line.values()]) for k, line in curves.items()}
  metric = sweep_report.metric_of(rows).replace('_', ' ')
  with extras.optional_figures():
    figure = figures.draw([sweep_report.curves(x, metric, found)])
    figure.savefig(folder / 'lines.png', dpi=150)
  return text


def _cell(best: sweep_report.Setting | None) -> str:
  if best is None or np.isnan(best.mean):
    return ''
  error = '' if np.isnan(best.error) else f' ± {best.error:.2g}'
  return f'{best.mean:.4g}{error}'
