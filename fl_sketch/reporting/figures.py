"""Figures as data: panels of lines and points, drawn in one style.

A figure that is kept as numbers can be drawn again, and be compared with the
table beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
import math
from typing import Any, NamedTuple

from fl_sketch.reporting import style
import numpy as np

Values = Sequence[Any] | np.ndarray
_DIGITS = 5  # of the numbers that are kept
COLUMNS = 3
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
  variant: int = 0  # line style in a family: 0 solid, 1 dashed, 2 dotted
  points: bool = False  # whether markers stand alone, without a line
  cell: str = ''  # of the last point in the table beside the figure, if any


class Panel(NamedTuple):
  """Axes with lines, in the order of the legend.

  Scales are 'linear' or 'log'. Vertical and horizontal lines stand at `x_mark`
  and `y_mark` unless these are NaN. `y_limits` are by default of the numbers.
  """

  x_label: str
  y_label: str
  lines: Sequence[Line]
  title: str = ''
  x_scale: str = 'linear'
  y_scale: str = 'linear'
  x_mark: float = math.nan
  y_mark: float = math.nan
  y_limits: tuple[float, float] | None = None


class Dot(NamedTuple):
  """A value (or NaN) with its interval; a family has one colour."""

  value: float
  low: float
  high: float
  family: str


def dot_plot(x_label: str, dots: Mapping[str, Dot], title: str = '') -> Panel:
  """Plots one dot for each name, in the order of the names from below.

  >>> panel = dot_plot('%', {'a': Dot(1, 0, 2, 'x'), 'b': Dot(3, 2, 4, 'y')})
  >>> [(line.label, list(line.x), list(line.y)) for line in panel.lines[1:]]
  [('x', [1], ['a']), ('y', [3], ['b'])]
  """
  # Without it, names would stand family by family.
  nothing = [math.nan] * len(dots)
  lines = [Line('', nothing, list(dots), points=True)]
  for family in dict.fromkeys(dot.family for dot in dots.values()):
    some = {name: dot for name, dot in dots.items() if dot.family == family}
    values, low, high, _ = zip(*some.values(), strict=True)
    ends = list(some), low, high, family
    lines.append(Line(family, values, *ends, points=True))
  return Panel(x_label, '', lines, title)


def as_json(panels: Iterable[Panel]) -> list[dict[str, Any]]:
  """Converts panels to JSON values: numbers to five digits, no defaults.

  >>> line = Line('a', [1, 2], [0.123456, math.nan])
  >>> kept = as_json([Panel('round', 'loss', [line])])
  >>> kept[0]['lines']
  [{'label': 'a', 'x': [1, 2], 'y': [0.12346, None]}]
  >>> as_json(from_json(kept)) == kept
  True
  """
  lines = lambda panel: {'lines': [_told(line) for line in panel.lines]}
  return [_told(panel) | lines(panel) for panel in panels]


def from_json(panels: Iterable[Mapping[str, Any]]) -> list[Panel]:
  """Converts what `as_json` returns to panels."""
  lines = lambda panel: {'lines': [Line(**line) for line in panel['lines']]}
  return [Panel(**{**panel, **lines(panel)}) for panel in panels]


def _told(part: Line | Panel) -> dict[str, Any]:
  """Fields that differ from their defaults, rounded."""
  told = {}
  for name, value in part._asdict().items():
    if isinstance(value, (list, tuple, np.ndarray)) and name != 'lines':
      value = [_rounded(v) for v in value]
    if repr(value) not in (repr(part._field_defaults.get(name)), '[]'):
      told[name] = value
  return told


def _rounded(value: Any) -> Any:
  value = value.item() if hasattr(value, 'item') else value
  if isinstance(value, float):
    return float(f'{value:.{_DIGITS}g}') if math.isfinite(value) else None
  return value


def draw(panels: Sequence[Panel], columns: int = COLUMNS) -> Any:
  """Draws one panel or more as a figure of matplotlib, with one legend for all.

  They stand row by row, up to `columns` beside one another.

  Raises:
    MissingExtraError: matplotlib is not installed.
  """
  columns = min(columns, len(panels))
  rows = -(-len(panels) // columns)
  names = [
    {y for line in panel.lines for y in line.y if isinstance(y, str)}
    for panel in panels
  ]
  height = max(3.3, 0.8 + 0.2 * max(map(len, names)))
  longest = max((len(name) for some in names for name in some), default=0)
  labels = (len(line.label) for panel in panels for line in panel.lines)
  legend = max(1.9, 0.5 + 0.07 * max(labels, default=0))
  size = legend + (3.6 + 0.06 * longest) * columns, height * rows
  fig = style.new_figure(*size)
  axes = fig.subplots(rows, columns, squeeze=False)
  for ax in axes.flat[len(panels) :]:
    ax.remove()
  colours = style.colours(
    line.family or line.label for panel in panels for line in panel.lines
  )
  for ax, panel in zip(axes.flat, panels, strict=False):
    style.dress(ax)
    for line in panel.lines:
      _plot(ax, line, colours[line.family or line.label])
    _frame(ax, panel)
  _legend(fig, axes.flat[: len(panels)])
  return fig


def _plot(ax: Any, line: Line, colour: str) -> None:
  look: dict[str, Any] = {'color': colour, 'label': line.label or '_'}
  x, y, *spread = (_array(v) for v in (line.x, line.y, line.low, line.high))
  if line.points:
    along, values = ('xerr', x) if y.dtype.kind == 'U' else ('yerr', y)
    if len(line.low):
      look[along] = [values - spread[0], spread[1] - values]
    marker = style.MARKERS[line.variant % len(style.MARKERS)]
    ax.errorbar(x, y, fmt=marker, markersize=5, capsize=2.5, **look)
    return
  dashes = style.STYLES[line.variant % len(style.STYLES)]
  marker = 'o' if len(x) <= 12 else None
  ax.plot(
    x, y, linestyle=dashes, marker=marker, markersize=3.5, linewidth=1.6, **look
  )
  if len(line.low):
    ax.fill_between(x, *spread, color=colour, alpha=0.16, linewidth=0)


def _array(values: Values) -> np.ndarray:
  """Converts values to an array of names, or of numbers with NaN for None."""
  named = any(isinstance(v, str) for v in values)
  return np.array(values, str if named else float)


def _frame(ax: Any, panel: Panel) -> None:
  ax.set_title(panel.title, fontsize='medium')
  ax.set(xlabel=panel.x_label, ylabel=panel.y_label)
  for axis, scale in ((ax.xaxis, panel.x_scale), (ax.yaxis, panel.y_scale)):
    if scale == 'log':
      ax.set(**{f'{axis.axis_name}scale': 'log'})
      style.plain_ticks(axis)
  if limits := panel.y_limits or _limits(panel):
    ax.set_ylim(limits)
  mark = {'color': '0.45', 'linewidth': 1, 'zorder': 1}
  if math.isfinite(panel.x_mark):
    ax.axvline(panel.x_mark, **mark)
  if math.isfinite(panel.y_mark):
    ax.axhline(panel.y_mark, **mark)


def _limits(panel: Panel) -> tuple[float, float] | None:
  """Computes limits of y from lines and error bars; long bands are cut off."""
  if not any(len(line.low) and not line.points for line in panel.lines):
    return None
  bars = [v for n in panel.lines if n.points for v in (n.low, n.high)]
  ys = [_array(y) for y in (*(line.y for line in panel.lines), *bars)]
  ys = np.concatenate([y for y in ys if y.dtype.kind == 'f'] or [np.empty(0)])
  ys = ys[np.isfinite(ys)]
  if not ys.size or ys.min() == ys.max():
    return None
  log = panel.y_scale == 'log'
  ys = np.log(ys[ys > 0]) if log else ys
  margin = 0.15 * (ys.max() - ys.min())
  ends = float(ys.min() - margin), float(ys.max() + margin)
  return (math.exp(ends[0]), math.exp(ends[1])) if log else ends


def _legend(fig: Any, axes: Iterable[Any]) -> None:
  """Adds one legend of all labels beside the panels."""
  handles: dict[str, Any] = {}
  for ax in axes:
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
      handles.setdefault(label, handle)
  if len(handles) > 1:
    look = {'frameon': False, 'fontsize': 'small'}
    fig.legend(handles.values(), handles, loc='outside right center', **look)
