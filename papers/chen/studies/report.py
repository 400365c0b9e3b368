"""Reports the comparisons of Chen et al.: numbers, tables, pictures."""

from collections.abc import Sequence
import math
from typing import Any

from fl_sketch.runs import figures

from ...common import comparison, study, summaries, workspace
from ...common.comparison import Comparison, Entry
from . import settings

WINDOW = 10  # rounds whose mean a training loss, of a few samples, is
_BY_ROUND = (
  ('train_loss', 'training loss', 1, WINDOW),
  ('test_accuracy', 'test accuracy, %', 100, 1),
)
_OF_POINTS = 'x', 'y', 'low', 'high'


def seeds(entries: Comparison) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  named = {f'{name} {share:g}': e.runs for (name, share), e in entries.items()}
  return summaries.seeds(named, last=2, losses=20)


def table(
  setting: settings.LearningSetting, entries: Comparison, caption: str
) -> study.Table:
  """A row a method and share: bytes, rates, loss, accuracy."""
  caption = (
    f'{caption}, d = {setting.dimension:,}; MB of all clients, means over '
    'seeds ± standard errors.'
  )
  return comparison.table(caption, entries, _COLUMNS)


def _megabytes(way: str):
  """A column of MB of all clients; empty where every run diverged."""

  def cell(_, entry):
    runs = [run for run in entry.runs if not run.diverged]
    return f'{Entry(runs, {}).total(way) / 1e6:,.3f}' if runs else ''

  return cell


_COLUMNS = {
  'method': lambda key, _: key[0],
  'share of d': lambda key, _: f'{key[1]:g}',
  'MB up': _megabytes('up'),
  'MB down': _megabytes('down'),
  'rates': lambda _, e: ', '.join(f'{k} {v:g}' for k, v in e.rates.items()),
  'training loss': comparison.shown(3, lambda e: e.loss),
  'test accuracy, %': comparison.shown(1, lambda e: e.accuracy),
}


def panels(entries: Comparison, sized: Comparison) -> list[figures.Panel]:
  """Plots accuracy by bytes; loss and accuracy by round and table size."""
  every = {**entries, **sized}
  looks = _looks([*entries, *sized])
  panels = [comparison.by_bytes(every, looks.__getitem__)]
  for metric, label, scale, window in _BY_ROUND if sized else ():
    lines = []
    for key, e in sized.items():
      line = summaries.curve(
        runs=e.runs, metric=metric, scale=scale, window=window, **looks[key]
      )
      # Means of windows that do not overlap are enough to draw.
      points = {k: getattr(line, k)[::window] for k in _OF_POINTS}
      lines.append(line._replace(**points))
    panels.append(figures.Panel('round', label, lines))
  return panels


def _looks(keys: Sequence[tuple[str, float]]) -> dict[Any, dict[str, Any]]:
  """Label, colour (of the method) and line (of the share) of every curve."""
  looks = {}
  for name, share in keys:
    shares = sorted({s for n, s in keys if n == name}, reverse=True)
    looks[name, share] = {
      'label': name if share == 1 else f'{name}, {share:g} d',
      'family': name, 'variant': shares.index(share),
    }  # fmt: skip
  return looks


def plateau(run: workspace.PointRun) -> float:
  """Rounds until nine tenths of the fall of the training loss are done."""
  xs, losses = (summaries.smooth(v, WINDOW) for v in run.curve('train_loss'))
  if run.diverged or not losses[-1] < losses[0]:
    return math.nan
  level = losses[0] - 0.9 * (losses[0] - losses[-1])
  return workspace.first(xs, losses <= level)
