"""Figures 1 to 3 of Das et al., made again, and the grid of Table 1."""

from collections.abc import Sequence
import itertools
from typing import Any

from fl_sketch.runs.figures import Line, Panel
import numpy as np

from ...common import study, summaries, workspace
from . import grid as grid_lib, races

_LINES = 'Solid: normalising; dashed: clipping; bands are intervals of 95 %.'
_LOSS = f'Loss above the minimum, q = 1, mean over draws. {_LINES}'
_RATIO = (
  'Signal-to-noise ratio |mean of g| / |noise|, q = 1, over windows of rounds, '
  f'mean over draws. {_LINES}'
)
_PATHS = (
  'Both trajectories in the plane of their two main directions, moving '
  'averages, q = 1, rate 0.001, one draw. The dot is the end.'
)
_GRID = (
  'Test accuracy over the grid on one seed, at the best of the rates, by '
  'clipping norm.'
)


def losses(runs: grid_lib.Grid) -> study.Picture:
  """Draws loss by round, for each start, C, rate and algorithm, at q = 1."""
  return study.Picture(_LOSS, _curves(runs, 'loss − minimum', 3))


def ratios(runs: grid_lib.Grid) -> study.Picture:
  """Draws the signal-to-noise ratio by round."""
  panels = _curves(runs, 'signal-to-noise ratio', None)
  return study.Picture(_RATIO, panels)


def _curves(runs, label, digits):
  """Draws a panel for each start and C; `digits` are those of its table."""
  panels = []
  for start, clip in itertools.product(grid_lib.STARTS, grid_lib.CLIPS):
    lines = []
    for lr in runs.axes['client_lr']:
      at = {'start_scale': start, 'clip_norm': clip, 'client_lr': lr}
      at |= {'q': 1.0, 'server_lr': 1.0}
      for i, name in enumerate(grid_lib.ALGORITHMS.values()):
        seeds = runs.at(runs.curves[i], **at)
        cell = digits and workspace.shown(seeds[:, -1], digits=digits)
        x = np.arange(seeds.shape[1]) * runs.every
        lines.append(
          Line(
            f'{name}, rate {lr:g}', x, *summaries.interval(seeds),
            family=f'rate {lr:g}', variant=1 - i, cell=cell or '',
          )
        )  # fmt: skip
    title = _title(start, clip)
    panels.append(Panel('round', label, lines, title, y_scale='log'))
  return panels


def _title(start: float, clip: float) -> str:
  return f'{grid_lib.STARTS[start]}, C = {clip:g}'


def paths(trajectories: Sequence[dict[str, Any]]) -> study.Picture:
  """Panels by start and C, of `grid_lib.trajectories` with the first noise."""
  panels = []
  for one in (f for f in trajectories if f['seed'] == 0):
    lines = [Line('w*', [0.0], [0.0], points=True, variant=5)]
    names = grid_lib.ALGORITHMS.values()
    for path, name in zip(one['paths'], names, strict=True):
      x, y = np.transpose(path)
      lines.append(Line(name, x, y))
      lines.append(Line('', x[-1:], y[-1:], family=name, points=True))
    title = _title(one['start_scale'], one['clip_norm'])
    panels.append(Panel('first direction', 'second direction', lines, title))
  return study.Picture(_PATHS, panels)


def grid(
  grids: Sequence[tuple[races.Federation, Sequence[workspace.PointRun]]],
) -> study.Picture:
  """Draws accuracy by clipping norm, a panel for each dataset and noise."""
  panels = []
  for setting, runs in grids:
    for noise in races.noises(setting):
      lines = []
      for algorithm, name in races.ALGORITHMS.items():
        best: dict[float, float] = {}
        for r in races.chosen(runs, noise, algorithm):
          clip, score = r.values['clip_norm'], 100 * r.final(last=3)
          best[clip] = max(best.get(clip, 0.0), score)
        lines.append(Line(name, [*best], [*best.values()]))
      title = f'{setting.name}, epsilon {noise.epsilon:g}, {noise.kind}'
      labels = 'clipping norm C', 'test accuracy, %'
      panels.append(Panel(*labels, lines, title, x_scale='log'))
  return study.Picture(_GRID, panels, columns=2)
