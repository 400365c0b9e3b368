"""Figures as data: panels of lines and points, stored, drawn in one style."""

from collections.abc import Iterable, Mapping, Sequence
import itertools
import math
import re
import textwrap
from typing import Any, NamedTuple

from fl_sketch.utils import extras
import numpy as np

Values = Sequence[Any] | np.ndarray
_DIGITS = 5  # of the numbers that are stored
_FEW = 12  # up to so many points of a line have a marker each
COLUMNS = 2
MEGABYTES = 'bytes of all clients, up and down (MB)'

# Colour -> methods that have it in figures; '=' joins names of one method. The
# first eight suit the colour-blind: Okabe and Ito (2008), grey for yellow.
_METHODS = {
  '#0072b2': 'SAFL; SAFL, layerwise; clip',
  '#d55e00': 'preconditioned momentum, one bit=preconditioned_sketching;'
  'FS-HEAPRIX=fedsketch_heaprix; FSGATE-HEAPRIX; normalise',
  '#009e73': 'EDEN, rand-k=fedcom; FFA-LoRA; central SGD',
  '#cc79a7': 'SparseLoCo; onebit_adam; decomfl',
  '#e69f00': 'FetchSGD; FedEx-LoRA; SCAFFOLD',
  '#56b4e9': 'SAFL, one bit; FS-PRIVIX=fedsketch_privix; FSGATE-PRIVIX',
  '#000000': 'FedAdam, dense=fedadam=fedavg_adam=dense',
  '#8c8c8c': 'PowerSGD; FedAvg; FedSGD; FedSGD, IID clients; fedprox',
  '#882255': 'preconditioned momentum, one bit both ways; diffsketch; ef21;'
  'FedAvg, AdamW on clients; FS-HEAPRIX, literal',
  '#999933': 'DeMo; SketchedSGD; feddyn',
  '#332288': "SAFL, client momentum; SAFL with DiLoCo's optimizers, one bit;"
  'iterative_sketching; FSGATE-PRIVIX, printed',
  '#117733': 'CocktailSGD; FLoRA',
  '#aa4499': 'SAFL, client momentum, one bit; signsgd; fedsketchgate;'
  "SAFL with DiLoCo's optimizers, one bit both ways",
  '#cc6677': 'CD-Adam; FedKSeed; decentralised',
  '#44aa99': 'SAFL, one bit both ways; Ferret; fedcomgate',
  '#7a4a21': 'DiLoCo; MARINA; central AdamW',
}
_COLOURS = tuple(_METHODS)
_DASHES = ('-', '--', ':', '-.', (0, (5, 1, 1, 1, 1, 1)))
_FILLS = ('full', 'none', 'left', 'bottom', 'top')
_MARKERS = 'osD^vP<X>'
Look = tuple[str, str]  # colour and marker
_LOOKS = [
  (colour, _MARKERS[(i + turn) % len(_MARKERS)])
  for turn in range(len(_MARKERS))
  for i, colour in enumerate(_COLOURS)
]
_key = lambda name: re.sub('[^a-z0-9]', '', name.lower())
_LOOK_OF_METHOD = {
  _key(name): _LOOKS[i + turn * len(_COLOURS)]
  for i, methods in enumerate(_METHODS.values())
  for turn, names in enumerate(methods.split(';'))
  for name in names.split('=')
}


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


def as_json(panels: Iterable[Panel]) -> list[dict[str, Any]]:
  """Convert panels to JSON values: numbers to five digits, no defaults.

  >>> line = Line('a', [1, 2], [0.123456, math.nan])
  >>> as_json([Panel('round', 'loss', [line])])[0]['lines']
  [{'label': 'a', 'x': [1, 2], 'y': [0.12346, None]}]
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


def looks(names: Iterable[str]) -> dict[str, Look]:
  """Assign each name colour and marker: a method's own, or the next free.

  A method is known by its name in any spelling: 'CD-Adam' is 'cd_adam'.

  >>> looks(['rate 1', 'FedAdam, dense', 'rate 1'])
  {'rate 1': ('#0072b2', 'o'), 'FedAdam, dense': ('#000000', '<')}
  """
  of_method = {name: _LOOK_OF_METHOD.get(_key(name)) for name in names}
  known = [look for look in of_method.values() if look]
  taken = {colour for colour, _ in known}
  free = [look for look in _LOOKS if look not in known]
  following = itertools.cycle(sorted(free, key=lambda x: x[0] in taken))
  return {name: look or next(following) for name, look in of_method.items()}


def new_figure(width: float, height: float) -> Any:
  """Create a figure of matplotlib of this size in inches."""
  with extras.needed('plots'):
    from matplotlib import figure
  return figure.Figure(figsize=(width, height), layout='constrained')


def draw(panels: Sequence[Panel], columns: int = COLUMNS) -> Any:
  """Draw panels, up to `columns` in a row, as a figure of matplotlib."""
  columns = min(columns, len(panels))
  rows = -(-len(panels) // columns)
  lines = [line for panel in panels for line in panel.lines]
  names = [{y for line in p.lines for y in _names(line.y)} for p in panels]
  width, height = (5.4, 3.2) if columns == 1 else (3.4 * columns, 2.6)
  longest = max((len(name) for some in names for name in some), default=0)
  width = max(width, 3.2 * columns + 0.06 * longest)
  height = max(height, 0.7 + 0.19 * max(map(len, names)))
  fig = new_figure(width, height * rows)
  axes = fig.subplots(rows, columns, squeeze=False)
  for ax in axes.flat[len(panels) :]:
    ax.remove()
  look_of = looks(line.family or line.label for line in lines)
  for ax, panel in zip(axes.flat, panels, strict=False):
    ax.spines[['top', 'right']].set_visible(False)
    ax.grid(color='0.9')
    ax.set_axisbelow(True)
    for line in panel.lines:
      marked = len(line.x) <= _FEW or len(look_of) > 8
      _plot(ax, line, look_of[line.family or line.label], marked)
    _frame(ax, panel)
  _legend(fig, axes.flat[: len(panels)])
  return fig


def _plot(ax: Any, line: Line, look: Look, marked: bool) -> None:
  style: dict[str, Any] = {'color': look[0], 'label': line.label or '_'}
  style['marker'] = look[1] if marked or line.points else None
  x, y, *ends = (_array(v) for v in (line.x, line.y, line.low, line.high))
  if line.points:
    along, values = ('xerr', x) if _names(line.y) else ('yerr', y)
    if len(line.low):
      style[along] = [values - ends[0], ends[1] - values]
    fill = _FILLS[line.variant % len(_FILLS)]
    sizes = {'markersize': 5, 'capsize': 2, 'elinewidth': 1, 'fillstyle': fill}
    ax.errorbar(x, y, linestyle='', **sizes, **style)
    return
  dashes = _DASHES[line.variant % len(_DASHES)]
  sizes = {'markersize': 4, 'linewidth': 1.5, 'markevery': len(x) // 12 + 1}
  ax.plot(x, y, linestyle=dashes, **sizes, **style)
  if len(line.low):
    ax.fill_between(x, *ends, color=look[0], alpha=0.16, linewidth=0)


def _names(values: Values) -> list[str]:
  return [v for v in values if isinstance(v, str)]


def _array(values: Values) -> np.ndarray:
  """Convert values to an array of names, or of numbers with NaN for None."""
  return np.array(values, str if _names(values) else float)


def _frame(ax: Any, panel: Panel) -> None:
  named = any(_names(line.y) for line in panel.lines)
  place = 'right' if named else 'center'  # beside names there is little width
  ax.set_title(panel.title, fontsize='medium', loc=place)
  ax.set(xlabel=panel.x_label, ylabel=panel.y_label)
  xs, ys = (_numbers(panel.lines, name) for name in 'xy')
  of_axes = (ax.xaxis, panel.x_scale, xs), (ax.yaxis, panel.y_scale, ys)
  for axis, scale, values in of_axes:
    if scale == 'log' and is_wide(values[values > 0]):
      ax.set(**{f'{axis.axis_name}scale': 'log'})
      _set_ticks(axis)
  if ax.get_xscale() == 'linear' and xs.size and not (xs % 1).any():
    ax.xaxis.get_major_locator().set_params(integer=True)  # as rounds are
  if limits := panel.y_limits or _limits(panel):
    ax.set_ylim(limits)
  for add, at in (ax.axvline, panel.x_mark), (ax.axhline, panel.y_mark):
    if math.isfinite(at):
      add(at, color='0.45', linewidth=1, zorder=1)


def is_wide(values: Values) -> bool:
  """Return whether positive values suit a log axis: over half a decade.

  >>> is_wide([0.1, 0.3]), is_wide([0.1, 0.4])
  (False, True)
  """
  return len(values) > 1 and 0 < 10**0.5 * min(values) < max(values)


def _set_ticks(axis: Any) -> None:
  """Label a logarithmic axis 0.5, 20, 1,000."""
  from matplotlib import ticker

  low, high = axis.get_view_interval()
  subs = (1, 2, 5) if high < 30 * low else (1, 3) if high < 300 * low else (1,)
  axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=8))
  axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f'{v:,g}'))
  axis.set_minor_locator(ticker.NullLocator())


def _numbers(lines: Iterable[Line], name: str) -> np.ndarray:
  """Return the finite numbers of all lines, without names."""
  values = [getattr(line, name) for line in lines]
  arrays = [_array(x) for x in values if not _names(x)]
  numbers = np.concatenate([np.empty(0), *arrays])
  return numbers[np.isfinite(numbers)]


def _limits(panel: Panel) -> tuple[float, float] | None:
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
