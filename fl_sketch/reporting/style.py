"""Common style of figures: axes, colours, markers and ticks."""

from collections.abc import Iterable
import itertools
from typing import Any

from fl_sketch.utils import extras

# Okabe and Ito (2008), and grey: told apart also by the colour-blind.
_COLOURS = (
  '#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000',
  '#8c8c8c',
)  # fmt: skip
# Families of algorithms keep their colours in all figures.
_FAMILIES = {
  'dense': '#000000', 'safl': '#0072b2', 'sketching': '#56b4e9',
  'fedsketch': '#d55e00', 'privix': '#56b4e9', 'heaprix': '#d55e00',
  'heavy hitters': '#e69f00', 'codecs': '#009e73', 'adaptive codecs': '#cc79a7',
}  # fmt: skip
STYLES = ('-', '--', ':', '-.', (0, (5, 1, 1, 1, 1, 1)))
MARKERS = 'osD^vPX'


def new_figure(width: float, height: float) -> Any:
  """Creates a figure of matplotlib of this size in inches.

  Raises:
    MissingExtraError: matplotlib is not installed.
  """
  with extras.needed('plots'):
    from matplotlib import figure
  return figure.Figure(figsize=(width, height), layout='constrained')


def new_axes(x_label: str, y_label: str) -> Any:
  """Creates a figure and returns its axes."""
  ax = new_figure(6, 3.8).add_subplot()
  ax.set(xlabel=x_label, ylabel=y_label)
  dress(ax)
  return ax


def dress(ax: Any) -> None:
  """Adds a grid to axes, and removes their upper and right spines."""
  ax.spines[['top', 'right']].set_visible(False)
  ax.grid(color='0.9')
  ax.set_axisbelow(True)


def colours(names: Iterable[str]) -> dict[str, str]:
  """Assigns each name a colour: a family's own, or the next that is free.

  >>> colours(['rate 1', 'dense', 'rate 1'])
  {'rate 1': '#0072b2', 'dense': '#000000'}
  """
  named = dict.fromkeys(names)
  own = {name: _FAMILIES[name] for name in named if name in _FAMILIES}
  free = [c for c in _COLOURS if c not in own.values()] or list(_COLOURS)
  following = itertools.cycle(free)
  return {name: own.get(name) or next(following) for name in named}


def plain_ticks(axis: Any) -> None:
  """Labels a logarithmic axis 0.5, 20, 1,000 in place of powers of ten."""
  from matplotlib import ticker

  low, high = axis.get_view_interval()
  subs = (1, 2, 5) if high < 300 * low else (1,)
  axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=8))
  axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f'{v:,g}'))
  axis.set_minor_formatter(ticker.NullFormatter())
