"""Summaries of runs over seeds: their numbers, claims, curves and panels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch import reporting
from fl_sketch.reproduce import lab as lab_lib, study
from matplotlib import figure
import numpy as np

Runs = Sequence[lab_lib.Run]  # one a seed
_NOT_RUN = 'This scale does not run the cells that it compares.'


def seeds(
  race: Mapping[Any, Runs], numbers: Callable[[lab_lib.Run], dict[str, Any]]
) -> dict[str, Any]:
  """The swept values and the numbers of every run, for the JSON."""
  return {
    str(key): [run.values | numbers(run) for run in runs]
    for key, runs in race.items()
  }


def claim(
  text: str,
  values: Mapping[str, np.ndarray] | np.ndarray,
  relation: str,
  bound: float,
) -> study.Claim:
  """A claim on the mean over seeds of each number, by the worst of them.

  >>> pair = {'a': np.array([1.0, 3.0]), 'b': np.array([0.0, 0.5])}
  >>> claim('points', pair, '>=', 0)[:2]
  ('points; the worst: b', 0.25)

  Args:
    text: with the unit of the numbers.
    values: numbers by seed, the last axis; names are told of the worst. Without
      any, the claim cannot be tested.
    relation: '>=' or '<='.
    bound: what each mean is compared with.
  """
  named = isinstance(values, Mapping)
  rows = list(values.values()) if named else values
  if not len(rows):
    return study.Claim(text, None, relation, bound, remark=_NOT_RUN)
  rows = np.reshape(rows, (-1, np.shape(rows)[-1]))
  means = [lab_lib.mean_and_error(row) for row in rows]
  mean, error = lab_lib.worst(means, relation)
  if named and len(means) > 1:
    text = f'{text}; the worst: {list(values)[means.index((mean, error))]}'
  return study.Claim(text, mean, relation, bound, error)


def mean_curve(runs: Runs, metric: str, x: str = 'round') -> np.ndarray:
  """The mean of a metric over seeds, as far as all of them went.

  Returns:
    f64[2, points], x and the metric; no points without runs.
  """
  curves = [run.curve(metric, x) for run in runs]
  length = min((len(xs) for xs, _ in curves), default=0)
  cut = [[xs[:length], ys[:length]] for xs, ys in curves]
  return np.mean(cut, axis=0) if cut else np.empty((2, 0))


def panels(
  titles: Sequence[str], columns: int, size: tuple[float, float], **shared: Any
) -> tuple[figure.Figure, np.ndarray]:
  """A figure of panels with grids, titled row by row, and its axes."""
  fig = figure.Figure(figsize=size, layout='constrained')
  axes = fig.subplots(len(titles) // columns, columns, squeeze=False, **shared)
  for ax, title in zip(axes.flat, titles, strict=True):
    ax.set_title(title, fontsize='medium')
    ax.grid(color='0.9')
  return fig, axes


def plot_against_bytes(ax: Any, runs: Runs, label: str, **look: Any) -> None:
  """Plots the mean test accuracy against the uplink of all clients."""
  x, y = mean_curve(runs, 'test_accuracy', 'total_uplink_bytes')
  ax.plot(x / 1e6, 100 * y, label=label, **look)
  ax.set(xlabel='uplink of all clients, MB', ylabel='test accuracy, %')
  ax.set_xscale('log')
  reporting.plain_ticks(ax.xaxis)
