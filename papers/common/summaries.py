"""Summaries of runs over seeds: their numbers and curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch.reporting import figures, over_seeds
from fl_sketch.reporting.intervals import interval
import numpy as np

from . import workspace

Runs = Sequence[workspace.Run]  # one a seed


def seeds(
  entries: Mapping[Any, Runs],
  numbers: Callable[[workspace.Run], dict[str, Any]],
) -> dict[str, Any]:
  """The swept values and the numbers of every run, for the JSON."""
  return {
    str(key): [run.values | numbers(run) for run in runs]
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

  Args:
    label: in the legend.
    runs: one a seed; those that diverged are left out.
    metric: of the metrics files.
    x: 'round', or a metric; bytes become MB.
    scale: what the metric is multiplied with.
    window: how many values a running mean is of.
    **look: further fields of the line.
  """
  curves = [run.curve(metric, x) for run in runs if not run.diverged]
  length = min((len(xs) for xs, _ in curves), default=0)
  if not length:
    return figures.Line(label, [], [], **look)
  shorter = lambda values: smooth(values[:length], window)
  xs = [shorter(xs) / (1e6 if x.endswith('bytes') else 1) for xs, _ in curves]
  ys = [scale * shorter(ys) for _, ys in curves]
  return over_seeds.mean_line(label, xs, ys, **look)


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

  Args:
    label: in the legend.
    runs: one a seed; if one of them diverged, the point is missing.
    finals: the final value of every seed, as in the table.
    digits: of it in the table.
    metric: of the metrics files.
    scale: what the metric is multiplied with.
    **look: further fields of the lines.
  """
  line = curve(label, runs, metric, 'total_bytes', scale=scale, **look)
  if not len(line.x) or any(run.diverged for run in runs):
    return [line]
  ends = interval(np.reshape(finals, (-1, 1)))
  cell = workspace.shown(finals, digits=digits)
  point = figures.Line('', line.x[-1:], *ends, points=True, cell=cell, **look)
  return [line, point]
