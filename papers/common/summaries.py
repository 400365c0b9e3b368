"""Summaries of runs over seeds: their numbers and curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch.runs import figures, plots
from fl_sketch.runs.metrics import interval
import numpy as np

from . import workspace

Runs = Sequence[workspace.PointRun]  # one a seed


def growth(sizes: Sequence[float], values: np.ndarray) -> np.ndarray:
  """The power of the sizes as which positive values grow, by least squares.

  f64[seeds] of f64[sizes, seeds].

  >>> growth([1, 2, 4], np.array([[3.0], [12.0], [48.0]])).round(6)
  array([2.])
  """
  return np.polyfit(np.log(sizes), np.log(values), 1)[0]


def seeds(
  entries: Mapping[Any, Runs],
  last: int,
  losses: int,
  more: Callable[[workspace.PointRun], dict[str, Any]] = lambda run: {},
) -> dict[str, Any]:
  """The values and numbers of every run, means of the last, for the JSON."""
  totals = 'total_uplink_bytes', 'total_downlink_bytes'
  numbers = lambda run: {
    'test_accuracy': run.final(last=last),
    'train_loss': run.final('train_loss', last=losses),
    **{name: run.row.get(name) for name in totals},
  }
  return {
    str(key): [run.values | numbers(run) | more(run) for run in runs]
    for key, runs in entries.items()
  }


def curve(
  label: str,
  runs: Runs,
  metric: str,
  x: str = 'round',
  scale: float = 1.0,
  window: int = 1,
  **look: Any,
) -> figures.Line:
  """The mean of a metric over seeds with its interval, as far as all went.

  Runs that diverged are left out. It is a running mean over `window` values,
  times `scale`, by 'round' or by a metric, whose bytes become MB.
  """
  curves = [run.curve(metric, x) for run in runs if not run.diverged]
  length = min((len(xs) for xs, _ in curves), default=0)
  if not length:
    return figures.Line(label, [], [], **look)
  shorter = lambda values: smooth(values[:length], window)
  xs = [shorter(xs) / (1e6 if x.endswith('bytes') else 1) for xs, _ in curves]
  ys = [scale * shorter(ys) for _, ys in curves]
  return plots.mean_line(label, xs, ys, **look)


def smooth(values: np.ndarray, window: int) -> np.ndarray:
  """Running means over `window` values; one mean where there are fewer."""
  width = min(window, len(values)) or 1
  return np.convolve(values, np.ones(width) / width, 'valid')


def against_bytes(
  label: str,
  runs: Runs,
  finals: figures.Values,
  digits: int = 1,
  metric: str = 'test_accuracy',
  scale: float = 100,
  **look: Any,
) -> list[figures.Line]:
  """Plots a metric by MB of all clients, and its last value of a table.

  The table has `finals`, the value of every seed, with so many digits. If a run
  diverged, the point is missing.
  """
  line = curve(label, runs, metric, 'total_bytes', scale=scale, **look)
  if not len(line.x) or any(run.diverged for run in runs):
    return [line]
  ends = interval(np.reshape(finals, (-1, 1)))
  cell = workspace.shown(finals, digits=digits)
  point = figures.Line('', line.x[-1:], *ends, points=True, cell=cell, **look)
  return [line, point]
