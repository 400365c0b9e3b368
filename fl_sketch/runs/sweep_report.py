"""Rank the settings of a sweep by means over seeds, in a table and a figure."""

from collections.abc import Sequence
import json
import math
import pathlib
from typing import Any, NamedTuple

from fl_sketch.runs import figures, metrics
from fl_sketch.runs.figures import Line, Panel
from fl_sketch.runs.metrics import Row
from fl_sketch.utils import seeding
import numpy as np

_NAMES = 'test_accuracy', 'test_loss', 'train_loss'
_BEST = {name: metrics.ranked_by(name)[1] for name in _NAMES}  # min or max


class Setting(NamedTuple):
  """The mean over points that differ only in their seeds."""

  values: Row  # of the swept fields other than seeds
  mean: float  # of the metric, over points that did not diverge; NaN for none
  error: float  # standard error of that mean; NaN for fewer than two points
  points: int
  diverged: int  # how many of them diverged
  megabytes: Sequence[float] = ()  # of all clients, up and down; means


def metric_of(rows: list[Row]) -> str:
  """Return the metric that ranks points: test accuracy, or else a loss."""
  logged = (m for m in _BEST if any(m in r for r in rows))
  return next(logged, 'train_loss')


def best_point(rows: list[Row]) -> int | None:
  """Return the number of the best point; None if every point diverged."""
  metric = metric_of(rows)
  ranked = [row for row in rows if not row['diverged'] and metric in row]
  best = _BEST[metric](ranked, key=lambda row: row[metric], default={})
  return best.get('point')


def best_tests(rows: list[Row]) -> Row:
  """Return the best test metrics of one point, as best_NAME.

  >>> best_tests([{'test_loss': 2.0}, {'test_loss': 1.0}, {}])
  {'best_test_loss': 1.0}
  """
  tests = {k: best for k, best in _BEST.items() if k != 'train_loss'}
  series = {k: [row[k] for row in rows if k in row] for k in tests}
  return {f'best_{k}': tests[k](x) for k, x in series.items() if x}


def settings(rows: list[Row]) -> list[Setting]:
  r"""Compute mean and error :math:`s / \sqrt n` over seeds, best first.

  Settings with a diverged point come last.

  >>> rows = [dict(values={'seed': s}, train_loss=s, diverged=False)
  ...   for s in (1, 3)]
  >>> settings(rows)[0][1:3]
  (2.0, 1.0)
  """
  metric = metric_of(rows)
  groups: dict[str, tuple[Row, list[Row]]] = {}
  for row in rows:
    values = {k: v for k, v in row['values'].items() if k not in seeding.FIELDS}
    groups.setdefault(json.dumps(values), (values, []))[1].append(row)
  averages = []
  for values, runs in groups.values():
    x = np.array([row[metric] for row in runs if not row['diverged']], float)
    n, count = x.size, len(runs)
    mean = float(x.mean()) if n else math.nan
    error = float(x.std(ddof=1) / n**0.5) if n > 1 else math.nan
    sizes = [[r.get(k, np.nan) for r in runs] for k in metrics.BYTES.values()]
    both = (np.mean(np.array(sizes, float), axis=1) / 1e6).tolist()
    averages.append(Setting(values, mean, error, count, count - n, both))
  sign = -1 if _BEST[metric] is max else 1
  rank = lambda s: (math.isnan(s.mean), s.diverged, sign * s.mean)
  return sorted(averages, key=rank)


def table(rows: list[Row], path: pathlib.Path) -> str:
  """Format settings in Markdown, best first; writes them as CSV as well."""
  ranking = settings(rows)
  seeds = max(s.points for s in ranking) > 1
  diverged = any(s.diverged for s in ranking)
  head = [*ranking[0].values, metric_of(rows).replace('_', ' ')]
  head += ['± standard error', 'seeds'] * seeds + ['diverged'] * diverged
  lines = []
  for s in ranking:
    line = [*s.values.values(), s.mean] + [s.error, s.points] * seeds
    lines.append(line + [s.diverged] * diverged + [*s.megabytes])
  return metrics.write_table(path, [*head, *metrics.BYTES], lines)


def summary_line(rows: list[Row]) -> str:
  """Describe the best setting in one sentence."""
  best, diverged = settings(rows)[0], sum(row['diverged'] for row in rows)
  start = f'{len(rows)} points, {diverged} diverged'
  if diverged == len(rows):
    return f'{start}: none stayed finite. Its files are in'
  values = ', '.join(f'{k}={metrics.shown(v)}' for k, v in best.values.items())
  error = '' if math.isnan(best.error) else f' ± {metrics.shown(best.error)}'
  return (
    f'{start}. Best: {values or "all seeds"}: {metric_of(rows)} '
    f'{metrics.shown(best.mean)}{error}. Its files are in'
  )


def draw(rows: list[Row]) -> Any:
  """Draw means over a field, a curve for each value of another; None if empty.

  Of more than two fields it shows the two with most values, at the best values
  of the others. Random draws are points, in a panel for each field.
  """
  ranking, metric = settings(rows), metric_of(rows).replace('_', ' ')
  if not (varied := _varied(ranking)):
    return None
  (field, xs), *other = [*varied.items()][:2]
  shown = field, *(name for name, _ in other)
  best: dict[str, Setting] = {}
  for setting in ranking:
    key = json.dumps([setting.values[name] for name in shown])
    best.setdefault(key, setting)
  if len(best) < math.prod(len(varied[name]) for name in shown):
    named = {'': ranking}
    return figures.draw([_panel(x, metric, named, points=True) for x in varied])
  ordered = sorted(best.values(), key=lambda s: xs.index(s.values[field]))
  curves = {
    f'{name}={metrics.shown(v)}': [s for s in ordered if s.values[name] == v]
    for name, values in other
    for v in values
  }
  over = ', best over the other fields' if len(varied) > 2 else ''
  return figures.draw([_panel(field, metric + over, curves or {'': ordered})])


def _varied(ranking: list[Setting]) -> dict[str, list]:
  """Return the fields with several values, most first; none if all diverged."""
  if math.isnan(ranking[0].mean):
    return {}
  varied = {}
  for name in ranking[0].values:
    distinct = {json.dumps(s.values[name]): s.values[name] for s in ranking}
    if len(values := [*distinct.values()]) > 1:
      varied[name] = sorted(values) if _are_numbers(values) else values
  return dict(sorted(varied.items(), key=lambda item: -len(item[1])))


def _are_numbers(values: Sequence[Any]) -> bool:
  return all(type(v) in (int, float) for v in values)


def _panel(field: str, metric: str, by_label, points=False) -> Panel:
  lines, numbers = [], []
  for label, some in by_label.items():
    values = [s.values[field] for s in some]
    if _are_numbers(values):
      numbers += values
    else:
      values = [metrics.shown(v) for v in values]
    means, errors = np.array([(s.mean, s.error) for s in some]).T
    ends = means - errors, means + errors
    lines.append(Line(label, values, means, *ends, points=points))
  # Rates, and what varies widely.
  log = figures.is_wide(numbers) and (
    field.endswith('_lr') or 10 * min(numbers) < max(numbers)
  )
  return Panel(field, metric, lines, x_scale='log' if log else 'linear')
