"""Ranks the points of a sweep, and makes a table and a figure of them."""

from collections.abc import Mapping, Sequence
import json
import math
from typing import Any, NamedTuple

from fl_sketch import reporting
from fl_sketch.reporting import figures, metrics
from fl_sketch.utils import markdown, seeding
import numpy as np

Row = dict[str, Any]
_METRICS = {
  name: metrics.best_of(name)
  for name in ('test_accuracy', 'test_loss', 'train_loss')
}
_MANY = 12  # values of a field; with more, a heat-map would have tiny cells


class Setting(NamedTuple):
  """The mean over points that differ only in their seeds."""

  values: Row  # of the swept fields other than seeds
  mean: float  # of the metric, over points that did not diverge; NaN for none
  error: float  # standard error of that mean; NaN for fewer than two points
  points: int
  diverged: int  # how many of them diverged


def metric_of(rows: list[Row]) -> str:
  """The metric that ranks points: test accuracy, or else a loss.

  Raises:
    ValueError: points that did not diverge have none of them, as private ones
      with public_metrics='none' and without test data.
  """
  names = [m for m in _METRICS if any(m in r for r in rows)]
  if not names and not all(row['diverged'] for row in rows):
    raise ValueError(
      f'None of {[*_METRICS]} is logged, so that nothing ranks the points; '
      'give test data or publish a metric.'
    )
  return names[0] if names else 'train_loss'


def best_point(rows: list[Row]) -> int | None:
  """The number of the best point; None if every point diverged."""
  metric = metric_of(rows)
  ranked = [row for row in rows if not row['diverged'] and metric in row]
  best = _METRICS[metric](ranked, key=lambda row: row[metric], default={})
  return best.get('point')


def best_tests(rows: list[Row]) -> Row:
  """The best test metrics of one point, as best_NAME.

  >>> best_tests([{'test_loss': 2.0}, {'test_loss': 1.0}, {}])
  {'best_test_loss': 1.0}
  """
  found = {}
  for metric, best in _METRICS.items():
    series = [row[metric] for row in rows if metric in row]
    if series and metric != 'train_loss':
      found[f'best_{metric}'] = best(series)
  return found


def settings(rows: list[Row]) -> list[Setting]:
  r"""Computes mean and error :math:`s / \sqrt n` over seeds, best first.

  Settings with a diverged point come last.

  >>> rows = [dict(values={'seed': s}, train_loss=s, diverged=False)
  ...   for s in (1, 3)]
  >>> settings(rows)[0][1:3]
  (2.0, 1.0)
  """
  metric = metric_of(rows)
  groups: dict[str, tuple[Row, list[Row]]] = {}
  for row in rows:
    seeds = seeding.FIELDS
    values = {k: v for k, v in row['values'].items() if k not in seeds}
    groups.setdefault(json.dumps(values), (values, []))[1].append(row)
  averages = []
  for values, members in groups.values():
    x = np.array([row[metric] for row in members if not row['diverged']], float)
    n, count = x.size, len(members)
    mean = float(x.mean()) if n else math.nan
    error = float(x.std(ddof=1) / n**0.5) if n > 1 else math.nan
    averages.append(Setting(values, mean, error, count, count - n))
  sign = -1 if _METRICS[metric] is max else 1
  return sorted(
    averages, key=lambda s: (math.isnan(s.mean), s.diverged, sign * s.mean)
  )


def table(rows: list[Row]) -> str:
  """Formats settings as a Markdown table, best first."""
  metric = metric_of(rows)
  ranking = settings(rows)
  names = list(ranking[0].values)
  seeds = max(s.points for s in ranking) > 1
  diverged = any(s.diverged for s in ranking)
  head = [*names, metric.replace('_', ' ')]
  head += ['± standard error', 'seeds'] * seeds + ['diverged'] * diverged
  lines = []
  for s in ranking:
    line = [shown(value) for value in s.values.values()] + [_number(s.mean)]
    line += [_number(s.error), str(s.points)] * seeds
    lines.append(line + [str(s.diverged)] * diverged)
  return markdown.table(head, lines, left=0)


def summary_line(rows: list[Row]) -> str:
  """Describes the best setting in one sentence."""
  ranking, metric = settings(rows), metric_of(rows)
  best, diverged = ranking[0], sum(row['diverged'] for row in rows)
  start = f'{len(rows)} points, {diverged} diverged'
  if diverged == len(rows):
    return f'{start}: none stayed finite. The table is in'
  values = ', '.join(f'{k}={shown(v)}' for k, v in best.values.items())
  error = '' if math.isnan(best.error) else f' ± {_number(best.error)}'
  end = 'Table and picture are in' if _varied(ranking) else 'The table is in'
  return (
    f'{start}. Best: {values or "all seeds"}: '
    f'{metric} {_number(best.mean)}{error}. {end}'
  )


def shown(value: Any) -> str:
  """Formats a value of a swept field for tables and labels."""
  return f'{value:.4g}' if isinstance(value, float) else str(value)


def _number(value) -> str:
  return '' if math.isnan(value) else f'{value:.4g}'


def picture(rows: list[Row]) -> Any:
  """Draws one field as a curve, two as a heat map; None if there is no number.

  Of more than two fields it shows the two with most values, at the best values
  of the others. Settings that do not fill a grid, such as random draws, are
  points coloured by the metric, or crosses if they diverged.
  """
  ranking, metric = settings(rows), metric_of(rows)
  varied = _varied(ranking)
  if not varied:
    return None
  over = ', best over the other fields' if len(varied) > 2 else ''
  label = metric.replace('_', ' ') + over
  values = dict(list(varied.items())[:2])
  unique: dict[str, Setting] = {}
  for s in ranking:
    unique.setdefault(json.dumps([s.values[k] for k in values]), s)
  best = list(unique.values())
  if len(values) == 1:
    ((name, xs),) = values.items()
    by_value = sorted(best, key=lambda s: xs.index(s.values[name]))
    panel = curves(name, label, {'': (xs, by_value)})
    return figures.draw([panel])
  ax = reporting.new_axes(*values)
  sizes = [len(v) for v in values.values()]
  grid = max(sizes) <= _MANY and len(best) == math.prod(sizes)
  colours = 'viridis' if _METRICS[metric] is max else 'viridis_r'
  image = (_heat_map if grid else _scatter)(ax, best, values, colours)
  image.axes.figure.colorbar(image, label=label)
  for axis in (ax.xaxis, ax.yaxis):
    if axis.get_scale() == 'log':
      reporting.plain_ticks(axis)
  return ax.get_figure(root=True)


def _varied(ranking: list[Setting]) -> dict[str, list]:
  """Fields with several values, most first; none if every mean is NaN."""
  varied = {}
  for name in () if math.isnan(ranking[0].mean) else ranking[0].values:
    distinct = {json.dumps(s.values[name]): s.values[name] for s in ranking}
    if len(values := [*distinct.values()]) > 1:
      varied[name] = sorted(values) if _are_numbers(values) else values
  return dict(sorted(varied.items(), key=lambda item: -len(item[1])))


def _are_numbers(values) -> bool:
  return all(type(v) in (int, float) for v in values)


def curves(
  field: str, metric: str, found: Mapping[str, tuple[Sequence, Sequence]]
) -> figures.Panel:
  """Makes a panel of means against a field, with bands of standard errors.

  `found` has by label the values of the field, and what has `mean` and `error`
  there.
  """
  lines, log = [], False
  for label, (values, points) in found.items():
    if numbers := _are_numbers(values):
      log |= on_log_axis(field, values)
    means, errors = np.array([(s.mean, s.error) for s in points]).T
    xs = values if numbers else [shown(v) for v in values]
    lines.append(figures.Line(label, xs, means, means - errors, means + errors))
  scale = 'log' if log else 'linear'
  return figures.Panel(field, metric, lines, x_scale=scale)


def on_log_axis(field: str, values: Sequence[Any]) -> bool:
  """Whether an axis of a field is logarithmic: rates, and what varies widely.

  >>> on_log_axis('server_lr', [0.1, 0.3]), on_log_axis('rounds', [10, 30])
  (True, False)
  """
  least, most = min(values), max(values)
  return 0 < least < most and (field.endswith('_lr') or 10 * least < most)


def _places(axis, field, values, best) -> list:
  """Sets up an axis for a field; returns the positions of settings."""
  subset = [s.values[field] for s in best]
  if not _are_numbers(values):
    axis.set_ticks(range(len(values)), [str(v) for v in values])
    return [values.index(v) for v in subset]
  if on_log_axis(field, values):
    axis.axes.set(**{f'{axis.axis_name}scale': 'log'})
  return subset


def _heat_map(ax, best, values, colours):
  (x, xs), (y, ys) = values.items()
  cells = np.full((len(ys), len(xs)), np.nan)
  for s in best:
    cells[ys.index(s.values[y]), xs.index(s.values[x])] = s.mean
  image = ax.imshow(cells, cmap=colours, aspect='auto')
  shades = image.to_rgba(cells)  # transparent where a setting diverged
  light = shades[..., :3].mean(-1) + 1 - shades[..., 3]
  for (i, j), mean in np.ndenumerate(cells):
    colour = 'black' if light[i, j] > 0.5 else 'white'
    text = _number(mean) or 'diverged'
    ax.text(j, i, text, ha='center', va='center', color=colour)
  ax.grid(visible=False)
  ax.set_yticks(range(len(ys)), [shown(v) for v in ys])
  ax.set_xticks(range(len(xs)), [shown(v) for v in xs])
  return image


def _scatter(ax, best, values, colours):
  (x, xs), (y, ys) = values.items()
  axes = (ax.xaxis, x, xs), (ax.yaxis, y, ys)
  at = np.array([_places(*axis, best) for axis in axes])
  means = np.array([s.mean for s in best])
  lost = np.isnan(means)
  if lost.any():
    ax.scatter(*at[:, lost], color='0.5', marker='x', label='diverged')
    ax.legend(frameon=False, fontsize='small')
  return ax.scatter(*at[:, ~lost], c=means[~lost], cmap=colours, s=60)
