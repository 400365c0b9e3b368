"""Reports the races of Chen et al.'s settings: numbers, tables, pictures."""

from collections.abc import Sequence
import math
from typing import Any

from fl_sketch.reporting import figures
import numpy as np

from ...common import study, summaries, workspace
from ...common.summaries import Runs
from ...common.workspace import Workspace
from . import races, settings

Race = dict[tuple[str, float], Runs]  # (method, share of the floats) -> seeds
WINDOW = 10  # rounds whose mean a training loss, of a few samples, is


def methods(ws: Workspace, setting: settings.Setting) -> Race:
  """Runs every method at every share of the bytes at which it races."""
  return {
    (name, share): races.race(ws, setting, name, share)
    for name, share in races.contestants(ws)
  }


def sizes(
  ws: Workspace, setting: settings.Setting, shares: Sequence[float]
) -> Race:
  """SAFL at these sizes of tables; at 1 it is dense FedAdam."""
  keys = [('safl' if share < 1 else 'fedadam', share) for share in shares]
  return {key: races.race(ws, setting, *key) for key in keys}


def mean(runs: Runs, metric: str = 'test_accuracy') -> float:
  """Mean of a final metric over seeds; NaN if one of the runs diverged."""
  return workspace.mean_and_error([final(run, metric) for run in runs])[0]


def final(run: workspace.Run, metric: str = 'test_accuracy') -> float:
  """Final metric of a run: mean of its last 2 accuracies, or 20 values."""
  return run.final(metric, last=2 if metric == 'test_accuracy' else 20)


def points_above(some: Runs, others: Runs) -> np.ndarray:
  """Test accuracy of some above that of others, in points, by seed."""
  pairs = zip(some, others, strict=True)
  return np.array([100 * (final(a) - final(b)) for a, b in pairs])


def seeds(race: Race) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  named = {f'{name} {share:g}': runs for (name, share), runs in race.items()}
  return summaries.seeds(
    named,
    lambda run: {
      'test_accuracy': final(run),
      'train_loss': final(run, 'train_loss'),
      'total_uplink_bytes': run.row.get('total_uplink_bytes'),
      'total_downlink_bytes': run.row.get('total_downlink_bytes'),
    },
  )


def table(
  ws: Workspace, setting: settings.Setting, race: Race, caption: str
) -> study.Table:
  """A row a method and share: bytes, rates, loss, accuracy."""
  rows = []
  for (name, share), runs in race.items():
    rates = races.rates(ws, setting, name, share)
    moved = [
      [r.row[f'total_{way}link_bytes'] / 1e6 for way in ('up', 'down')]
      for r in runs
      if not r.diverged
    ]
    sent = [f'{mb:,.3f}' for mb in np.mean(moved, 0)] if moved else ['', '']
    rows.append([
      name, f'{share:g}', *sent,
      ', '.join(f'{k} {v:g}' for k, v in rates.items()),
      workspace.shown([final(r, 'train_loss') for r in runs], digits=3),
      workspace.shown([final(r) for r in runs], scale=100),
    ])  # fmt: skip
  head = 'method', 'share of d', 'MB up', 'MB down', 'rates', 'training loss'
  caption = (
    f'{caption}, d = {setting.dimension:,}; MB of all clients, means over '
    'seeds ± standard errors.'
  )
  return study.Table(caption, (*head, 'test accuracy, %'), rows)


def panels(race: Race, sized: Race) -> list[figures.Panel]:
  """Panels: accuracy by bytes; loss and accuracy by round and table size.

  Args:
    race: of the methods.
    sized: SAFL by the size of its tables; without it there is one panel.
  """
  looks = _looks([*race, *sized])
  lines = []
  for key, runs in {**race, **sized}.items():
    ends = [100 * final(run) for run in runs]
    lines += summaries.against_bytes(runs=runs, finals=ends, **looks[key])
  labels = figures.MEGABYTES, 'test accuracy, %'
  every = [figures.Panel(*labels, lines, x_scale='log')]
  for metric, label, scale, window in _BY_ROUND if sized else ():
    options = {'metric': metric, 'scale': scale, 'window': window}
    lines = [
      summaries.curve(runs=runs, **options, **looks[key])
      for key, runs in sized.items()
    ]
    every.append(figures.Panel('round', label, lines))
  return every


_BY_ROUND = (
  ('train_loss', 'training loss', 1, WINDOW),
  ('test_accuracy', 'test accuracy, %', 100, 1),
)


def _looks(keys: Sequence[tuple[str, float]]) -> dict[Any, dict[str, Any]]:
  """Label, colour (of the method) and line (of the share) of every curve."""
  looks = {}
  for name, share in keys:
    shares = sorted({s for n, s in keys if n == name}, reverse=True)
    looks[name, share] = {
      'label': name if share == 1 else f'{name}, {share:g} d',
      'family': _FAMILIES.get(name, name), 'variant': shares.index(share),
    }  # fmt: skip
  return looks


_FAMILIES = {
  'fedadam': 'dense', 'fetchsgd': 'heavy hitters', 'marina': 'codecs',
}  # fmt: skip


def plateau(run: workspace.Run) -> float:
  """Rounds until nine tenths of the fall of the training loss are done."""
  xs, losses = (summaries.smooth(v, WINDOW) for v in run.curve('train_loss'))
  if run.diverged or not losses[-1] < losses[0]:
    return math.nan
  level = losses[0] - 0.9 * (losses[0] - losses[-1])
  return workspace.first(xs, losses <= level)
