"""Draws `figures` with matplotlib."""

from collections.abc import Iterable, Sequence
import math
from typing import Any

from fl_sketch.reporting import style
from fl_sketch.reporting.figures import Line, Panel, Values
import numpy as np


def draw(panels: Sequence[Panel], columns: int) -> Any:
  """Draws panels row by row; see `figures.draw`."""
  columns = min(columns, len(panels))
  rows = -(-len(panels) // columns)
  names = [_names(panel) for panel in panels]
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


def _names(panel: Panel) -> set[str]:
  """Finds the names along y."""
  return {y for line in panel.lines for y in line.y if isinstance(y, str)}


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
    fig.legend(
      handles.values(),
      handles,
      loc='outside right center',
      frameon=False,
      fontsize='small',
    )
