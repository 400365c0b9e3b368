"""Figures 1 to 3 of Das et al., made again, and the grid of Table 1."""

from collections.abc import Sequence
import itertools
from typing import Any

from fl_sketch import reporting
from fl_sketch.reproduce import lab, summaries
from fl_sketch.reproduce.das import grid as grid_lib, races
from matplotlib import figure
import numpy as np

_LINES = 'Solid: normalising; dashed: clipping.'
LOSS = f'Loss above the minimum, q = 1, mean over draws of noise. {_LINES}'
RATIO = (
  'Signal-to-noise ratio |mean of g| / |noise|, q = 1, over windows of rounds, '
  f'mean over draws of noise. {_LINES}'
)
PATHS = (
  'Both trajectories in the plane of their two main directions, moving '
  'averages, q = 1, rate 0.001, one draw of noise. The dot is the end.'
)
GRID = (
  'Test accuracy over the grid on one seed, at the best of the rates, by '
  'clipping norm. Columns: noise; rows: datasets.'
)


def curves(
  runs: grid_lib.Grid, values: np.ndarray, label: str
) -> figure.Figure:
  """Panels by start and C, curves by rate and algorithm, at q = 1.

  Args:
    runs: of the axes.
    values: f64[*axes, points].
    label: what they are.
  """
  fig, axes = _panels(sharex=True, sharey='row')
  panels = itertools.product(grid_lib.STARTS, grid_lib.CLIPS)
  for ax, (start, clip) in zip(axes.flat, panels, strict=True):
    for i, lr in enumerate(runs.axes['client_lr']):
      at = {'start_scale': start, 'clip_norm': clip, 'client_lr': lr}
      for part, line, name in zip(
        values, ('--', '-'), grid_lib.ALGORITHMS.values(), strict=True
      ):
        y = runs.at(part, q=1.0, **at).mean(0)
        look = reporting.look(i) | {'linestyle': line}
        x = np.arange(len(y)) * runs.every
        ax.plot(x, y, label=f'{name}, rate {lr:g}', **look)
    ax.set_yscale('log')
    reporting.plain_ticks(ax.yaxis)
  fig.supxlabel('round')
  fig.supylabel(label)
  fig.axes[0].legend(fontsize=7, frameon=False)
  return fig


def paths(trajectories: Sequence[dict[str, Any]]) -> figure.Figure:
  """Panels by start and C, of `grid_lib.trajectories` with the first noise."""
  fig, axes = _panels()
  first = [f for f in trajectories if f['noise_seed'] == 0]
  for ax, one in zip(axes.flat, first, strict=True):
    names = grid_lib.ALGORITHMS.values()
    for i, (path, name) in enumerate(zip(one['paths'], names, strict=True)):
      x, y = np.transpose(path)
      look = reporting.look(i)
      ax.plot(x, y, label=name, **look)
      ax.plot(x[-1], y[-1], 'o', color=look['color'])
    ax.plot(0, 0, 'kx', markersize=9, label='w*')
  fig.supxlabel('first direction')
  fig.supylabel('second direction')
  fig.axes[0].legend(fontsize=8, frameon=False)
  return fig


def grid(
  grids: Sequence[tuple[races.Setting, Sequence[lab.Run]]],
) -> figure.Figure:
  """Draws accuracy by clipping norm: rows by dataset, columns by noise."""
  titles = [
    f'{setting.name}, epsilon {noise.epsilon:g}, {noise.kind}'
    for setting, _ in grids
    for noise in races.noises(setting)
  ]
  size = 14, 0.6 + 3 * len(grids)
  columns = len(titles) // len(grids)
  fig, axes = summaries.panels(titles, columns, size, sharex=True, sharey='row')
  for row, (setting, runs) in zip(axes, grids, strict=True):
    for ax, noise in zip(row, races.noises(setting), strict=True):
      for i, (algorithm, name) in enumerate(races.ALGORITHMS.items()):
        best: dict[float, float] = {}
        for r in races.chosen(runs, noise, algorithm):
          clip, score = r.values['clip_norm'], 100 * r.final(last=3)
          best[clip] = max(best.get(clip, 0.0), score)
        ax.plot(
          [*best], [*best.values()], marker='o', label=name, **reporting.look(i)
        )
      ax.set_xscale('log')
      reporting.plain_ticks(ax.xaxis)
    row[0].set_ylabel('test accuracy, %')
  fig.supxlabel('clipping norm C')
  axes[0, 0].legend(fontsize=8, frameon=False)
  return fig


def _panels(**shared: Any) -> tuple[figure.Figure, np.ndarray]:
  """Panels by start and C."""
  pairs = itertools.product(grid_lib.STARTS.values(), grid_lib.CLIPS)
  titles = [f'{start}, C = {clip:g}' for start, clip in pairs]
  return summaries.panels(titles, 3, (12, 6.4), **shared)
