"""Common style of figures: axes, colours, markers and ticks."""

from collections.abc import Iterable
import itertools
import re
from typing import Any

from fl_sketch.utils import extras

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
  '#000000': 'FedAdam, dense=fedadam=fedavg_adam',
  '#8c8c8c': 'PowerSGD; FedAvg; FedSGD; fedprox',
  '#882255': 'preconditioned momentum, one bit both ways; diffsketch; ef21;'
  'FedAvg, AdamW on clients; FS-HEAPRIX, literal',
  '#999933': 'DeMo; SketchedSGD; feddyn',
  '#332288': "SAFL, client momentum; SAFL with DiLoCo's optimizers, one bit;"
  'iterative_sketching; FSGATE-PRIVIX, small gain',
  '#117733': 'CocktailSGD; FLoRA',
  '#aa4499': 'SAFL, client momentum, one bit; signsgd; fedsketchgate;'
  "SAFL with DiLoCo's optimizers, one bit both ways",
  '#cc6677': 'CD-Adam; FedKSeed; decentralised',
  '#44aa99': 'SAFL, one bit both ways; Ferret; fedcomgate',
  '#7a4a21': 'DiLoCo; MARINA; central AdamW',
}
COLOURS = tuple(_METHODS)
STYLES = ('-', '--', ':', '-.', (0, (5, 1, 1, 1, 1, 1)))
FILLS = ('full', 'none', 'left', 'bottom', 'top')
MARKERS = 'osD^vP<X>'
Look = tuple[str, str]  # colour and marker


def new_figure(width: float, height: float) -> Any:
  """Create a figure of matplotlib of this size in inches."""
  with extras.needed('plots'):
    from matplotlib import figure
  return figure.Figure(figsize=(width, height), layout='constrained')


def new_axes(x_label: str, y_label: str) -> Any:
  """Create a figure and return its axes."""
  ax = new_figure(6, 3.8).add_subplot()
  ax.set(xlabel=x_label, ylabel=y_label)
  dress(ax)
  return ax


def dress(ax: Any) -> None:
  """Add a grid to axes, and remove their upper and right spines."""
  ax.spines[['top', 'right']].set_visible(False)
  ax.grid(color='0.9')
  ax.set_axisbelow(True)


_key = lambda name: re.sub('[^a-z0-9]', '', name.lower())
_LOOKS = [
  (colour, MARKERS[(i + turn) % len(MARKERS)])
  for turn in range(len(MARKERS))
  for i, colour in enumerate(COLOURS)
]
_OF_METHODS = {
  _key(name): _LOOKS[i + turn * len(COLOURS)]
  for i, methods in enumerate(_METHODS.values())
  for turn, names in enumerate(methods.split(';'))
  for name in names.split('=')
}


def looks(names: Iterable[str]) -> dict[str, Look]:
  """Assign each name colour and marker: a method's own, or the next free.

  A method is known by its name in any spelling: 'CD-Adam' is 'cd_adam'.

  >>> looks(['rate 1', 'FedAdam, dense', 'rate 1'])
  {'rate 1': ('#0072b2', 'o'), 'FedAdam, dense': ('#000000', '<')}
  """
  named = dict.fromkeys(names)
  keys = {name: _key(name) for name in named}
  known = {k: _OF_METHODS[key] for k, key in keys.items() if key in _OF_METHODS}
  taken = {colour for colour, _ in known.values()}
  free = [look for look in _LOOKS if look not in known.values()]
  following = itertools.cycle(sorted(free, key=lambda x: x[0] in taken))
  return {name: known.get(name) or next(following) for name in named}


def is_wide(values: Any) -> bool:
  """Return whether positive values suit a log axis: over half a decade.

  >>> is_wide([0.1, 0.3]), is_wide([0.1, 0.4])
  (False, True)
  """
  return len(values) > 1 and 0 < 10**0.5 * min(values) < max(values)


def plain_ticks(axis: Any, values: Iterable[float] = ()) -> None:
  """Label an axis 0.5, 20, 1,000: at these values, or as a logarithmic one."""
  from matplotlib import ticker

  low, high = axis.get_view_interval()
  subs = (1, 2, 5) if high < 30 * low else (1, 3) if high < 300 * low else (1,)
  locator = ticker.LogLocator(subs=subs, numticks=8)
  axis.set_major_locator(ticker.FixedLocator([*values]) if values else locator)
  axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f'{v:,g}'))
  axis.set_minor_locator(ticker.NullLocator())
