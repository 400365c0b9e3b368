"""Figures as data: panels of lines and points, stored, drawn in one style."""

from collections.abc import Iterable, Mapping, Sequence
import math
import textwrap
from typing import Any, NamedTuple

from fl_sketch.runs import style
import numpy as np

Values = Sequence[Any] | np.ndarray
_DIGITS = 5  # of the numbers that are stored
_FEW = 12  # up to so many points of a line have a marker each
COLUMNS = 2
MEGABYTES = 'bytes of all clients, up and down (MB)'


class Line(NamedTuple):
  """A curve or points of a panel.

  `low` and `high` are ends of intervals of y (of x where y has names), drawn as
  a band, of points as bars.
  """

  label: str  # in the legend; '' for none
  x: Values  # numbers, or names
  y: Values  # as many numbers, NaN leaving a gap; or names
  low: Values = ()
  high: Values = ()
  family: str = ''  # of lines of one colour; the label by default
  # In a family, of lines 0 solid, 1 dashed, 2 dotted; of points the fill.
  variant: int = 0
  points: bool = False  # whether markers stand alone, without a line
  cell: str = ''  # of the last point in the table beside the figure, if any


class Panel(NamedTuple):
  """Axes with lines, in the order of the legend.

  Scales are 'linear' or 'log', which is linear for less than half a decade.
  """

  x_label: str
  y_label: str
  lines: Sequence[Line]
  title: str = ''
  x_scale: str = 'linear'
  y_scale: str = 'linear'
  x_mark: float = math.nan  # of a vertical line; NaN for none
  y_mark: float = math.nan  # of a horizontal one
  y_limits: tuple[float, float] | None = None  # by default of the numbers
  x_ticks: Values = ()  # by default those of matplotlib


def as_json(panels: Iterable[Panel]) -> list[dict[str, Any]]:
  """Convert panels to JSON values: numbers to five digits, no defaults.

  >>> line = Line('a', [1, 2], [0.123456, math.nan])
  >>> stored = as_json([Panel('round', 'loss', [line])])
  >>> stored[0]['lines']
  [{'label': 'a', 'x': [1, 2], 'y': [0.12346, None]}]
  >>> as_json(from_json(stored)) == stored
  True
  """
  lines = lambda panel: {'lines': [_changed(line) for line in panel.lines]}
  return [_changed(panel) | lines(panel) for panel in panels]


def from_json(panels: Iterable[Mapping[str, Any]]) -> list[Panel]:
  """Convert what `as_json` returns to panels."""
  lines = lambda panel: {'lines': [Line(**line) for line in panel['lines']]}
  return [Panel(**{**panel, **lines(panel)}) for panel in panels]


def _changed(part: Line | Panel) -> dict[str, Any]:
  """Return the fields that differ from their defaults, rounded."""
  changed = {}
  for name, value in part._asdict().items():
    if isinstance(value, (list, tuple, np.ndarray)) and name != 'lines':
      value = [_rounded(v) for v in value]
    if repr(value) not in (repr(part._field_defaults.get(name)), '[]'):
      changed[name] = value
  return changed


def _rounded(value: Any) -> Any:
  value = value.item() if hasattr(value, 'item') else value
  if isinstance(value, float):
    return float(f'{value:.{_DIGITS}g}') if math.isfinite(value) else None
  return value


def draw(panels: Sequence[Panel], columns: int = COLUMNS) -> Any:
  """Draw panels, up to `columns` in a row, as a figure of matplotlib."""
  columns = min(columns, len(panels))
  rows = -(-len(panels) // columns)
  lines = [line for panel in panels for line in panel.lines]
  named = lambda some: {y for x in some for y in x.y if isinstance(y, str)}
  names = [named(panel.lines) for panel in panels]
  width, height = (5.4, 3.2) if columns == 1 else (3.4 * columns, 2.6)
  longest = max((len(name) for some in names for name in some), default=0)
  width = max(width, 3.2 * columns + 0.06 * longest)
  height = max(height, 0.7 + 0.19 * max(map(len, names)))
  fig = style.new_figure(width, height * rows)
  axes = fig.subplots(rows, columns, squeeze=False)
  for ax in axes.flat[len(panels) :]:
    ax.remove()
  looks = style.looks(line.family or line.label for line in lines)
  for ax, panel in zip(axes.flat, panels, strict=False):
    style.dress(ax)
    for line in panel.lines:
      look = looks[line.family or line.label]
      _plot(ax, line, look, marked=len(line.x) <= _FEW or len(looks) > 8)
    _frame(ax, panel)
  _legend(fig, axes.flat[: len(panels)])
  return fig


def _plot(ax: Any, line: Line, look: style.Look, marked: bool) -> None:
  with_label: dict[str, Any] = {'color': look[0], 'label': line.label or '_'}
  with_label['marker'] = look[1] if marked or line.points else None
  x, y, *spread = (_array(v) for v in (line.x, line.y, line.low, line.high))
  if line.points:
    along, values = ('xerr', x) if y.dtype.kind == 'U' else ('yerr', y)
    if len(line.low):
      with_label[along] = [values - spread[0], spread[1] - values]
    fill = style.FILLS[line.variant % len(style.FILLS)]
    sizes = {'markersize': 5, 'capsize': 2, 'elinewidth': 1, 'fillstyle': fill}
    ax.errorbar(x, y, linestyle='', **sizes, **with_label)
    return
  dashes = style.STYLES[line.variant % len(style.STYLES)]
  sizes = {'markersize': 4, 'linewidth': 1.5, 'markevery': len(x) // 12 + 1}
  ax.plot(x, y, linestyle=dashes, **sizes, **with_label)
  if len(line.low):
    ax.fill_between(x, *spread, color=look[0], alpha=0.16, linewidth=0)


def _array(values: Values) -> np.ndarray:
  """Convert values to an array of names, or of numbers with NaN for None."""
  named = any(isinstance(v, str) for v in values)
  return np.array(values, str if named else float)


def _frame(ax: Any, panel: Panel) -> None:
  named = any(isinstance(y, str) for line in panel.lines for y in line.y)
  place = 'right' if named else 'center'  # beside names there is little width
  ax.set_title(panel.title, fontsize='medium', loc=place)
  ax.set(xlabel=panel.x_label, ylabel=panel.y_label)
  for axis, scale in ((ax.xaxis, panel.x_scale), (ax.yaxis, panel.y_scale)):
    values = _numbers(panel.lines, axis.axis_name)
    if scale == 'log' and style.is_wide(values[values > 0]):
      ax.set(**{f'{axis.axis_name}scale': 'log'})
      style.plain_ticks(axis)
  xs = _numbers(panel.lines, 'x')
  if len(panel.x_ticks):
    style.plain_ticks(ax.xaxis, panel.x_ticks)
  elif ax.get_xscale() == 'linear' and xs.size and not (xs % 1).any():
    ax.xaxis.get_major_locator().set_params(integer=True)  # as rounds are
  if limits := panel.y_limits or _limits(panel):
    ax.set_ylim(limits)
  for add, at in (ax.axvline, panel.x_mark), (ax.axhline, panel.y_mark):
    if math.isfinite(at):
      add(at, color='0.45', linewidth=1, zorder=1)


def _numbers(lines: Iterable[Line], name: str) -> np.ndarray:
  """Return the finite numbers of all lines, without names."""
  arrays = [_array(getattr(line, name)) for line in lines]
  numbers = [x[np.isfinite(x)] for x in arrays if x.dtype.kind == 'f']
  return np.concatenate([np.empty(0), *numbers])


def _limits(panel: Panel) -> tuple[float, float] | None:
  """Return limits of y from lines, bars and bands of few points."""
  with_ends = [line for line in panel.lines if len(line.low)]
  if all(line.points for line in with_ends):
    return None
  bars = [x for x in with_ends if x.points or len(x.x) <= _FEW]
  ends = [_numbers(bars, end) for end in ('low', 'high')]
  ys = np.concatenate([_numbers(panel.lines, 'y'), *ends])
  if not ys.size or ys.min() == ys.max():
    return None
  log = panel.y_scale == 'log'
  ys = np.log(ys[ys > 0]) if log else ys
  margin = 0.15 * (ys.max() - ys.min())
  ends = float(ys.min() - margin), float(ys.max() + margin)
  return (math.exp(ends[0]), math.exp(ends[1])) if log else ends


def _legend(fig: Any, axes: Iterable[Any]) -> None:
  handles: dict[str, Any] = {}
  for ax in axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  if len(handles) < 2:
    return
  width, height = fig.get_size_inches()
  half = int((width / 2 - 0.5) / 0.066)  # so that there are two columns
  names = [textwrap.fill(label, half) for label in handles]
  longest = max(len(part) for name in names for part in name.split('\n'))
  columns = int(width / (0.5 + 0.066 * longest)) or 1
  lines = -(-len(names) // columns) + sum(name.count('\n') for name in names)
  fig.set_size_inches(width, height + 0.1 + 0.18 * lines)
  look = {'frameon': False, 'fontsize': 'small', 'ncols': columns}
  look |= {'columnspacing': 1, 'handletextpad': 0.5}
  fig.legend(handles.values(), names, loc='outside lower center', **look)
