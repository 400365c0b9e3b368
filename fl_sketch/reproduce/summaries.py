"""Summaries of runs over seeds: their numbers and curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch.reporting import figures, intervals
from fl_sketch.reproduce import lab as lab_lib
import numpy as np

Runs = Sequence[lab_lib.Run]  # one a seed
MEGABYTES = 'bytes of all clients, up and down (MB)'


def seeds(
  race: Mapping[Any, Runs], numbers: Callable[[lab_lib.Run], dict[str, Any]]
) -> dict[str, Any]:
  """The swept values and the numbers of every run, for the JSON."""
  return {
    str(key): [run.values | numbers(run) for run in runs]
    for key, runs in race.items()
  }


def interval(values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Mean over seeds and the ends of its 95 % t-interval.

  >>> [end.round(2).tolist() for end in interval([[0.9], [1.0], [1.1]])]
  [[1.0], [0.75], [1.25]]

  Args:
    values: f64[seeds, ...].

  Returns:
    f64[...] each; the ends are NaN where there is one seed.
  """
  x = np.asarray(values, float)
  mean, count = x.mean(0), len(x)
  error = x.std(0, ddof=int(count > 1)) / count**0.5
  half = error * intervals.half_width(1.0, count)
  return mean, mean - half, mean + half


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
  width = min(window, length) or 1
  kernel = np.ones(width) / width
  smooth = lambda v: np.convolve(v[:length], kernel, 'valid')
  if not length:
    return figures.Line(label, [], [], **look)
  xs = np.mean([smooth(xs) for xs, _ in curves], axis=0)
  xs = xs / 1e6 if x.endswith('bytes') else xs
  mean, low, high = interval([scale * smooth(ys) for _, ys in curves])
  return figures.Line(label, xs, mean, low, high, **look)


def final(
  label: str, x: float, values: figures.Values, cell: str, **look: Any
) -> figures.Line:
  """A point: the mean over seeds with its interval, which a table has too."""
  mean, low, high = interval(np.reshape(values, (-1, 1)))
  return figures.Line(
    label, [x], mean, low, high, points=True, cell=cell, **look
  )  # fmt: skip
