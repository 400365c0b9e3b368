"""Reports the races of Chen et al.'s settings: numbers, tables, pictures."""

from collections.abc import Mapping, Sequence
import math
from typing import Any

from fl_sketch import reporting
from fl_sketch.reproduce import lab as lab_lib, study, summaries
from fl_sketch.reproduce.chen import races, settings
from fl_sketch.reproduce.summaries import Runs
from matplotlib import figure
import numpy as np

Race = dict[tuple[str, float], Runs]  # (method, share of the floats) -> seeds
_LINES = {1.0: '-', **dict(zip(races.SHARES, ('-', '--'), strict=True))}


def methods(lab: lab_lib.Lab, setting: settings.Setting) -> Race:
  """Runs every method at every share of the bytes at which it races."""
  return {
    (name, share): races.race(lab, setting, name, share)
    for name, share in races.contestants(lab)
  }


def sizes(
  lab: lab_lib.Lab, setting: settings.Setting, shares: Sequence[float]
) -> Race:
  """SAFL at these sizes of tables; at 1 it is dense FedAdam."""
  keys = [('safl' if share < 1 else 'fedadam', share) for share in shares]
  return {key: races.race(lab, setting, *key) for key in keys}


def mean(runs: Runs, metric: str = 'test_accuracy') -> float:
  """Mean of a final metric over seeds; NaN if one of the runs diverged."""
  return lab_lib.mean_and_error([final(run, metric) for run in runs])[0]


def final(run: lab_lib.Run, metric: str = 'test_accuracy') -> float:
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
    },
  )


def table(
  lab: lab_lib.Lab, setting: settings.Setting, race: Race, caption: str
) -> study.Table:
  """A row a method and share: bytes, rates, loss, accuracy."""
  rows = []
  for (name, share), runs in race.items():
    rates = races.rates(lab, setting, name, share)
    sent = [r.row['total_uplink_bytes'] for r in _finished(runs)]
    rows.append([
      name, f'{share:g}', f'{np.mean(sent) / 1e6:,.3f}' if sent else '',
      ', '.join(f'{k} {v:g}' for k, v in rates.items()),
      lab_lib.shown([final(r, 'train_loss') for r in runs], digits=3),
      lab_lib.shown([final(r) for r in runs], scale=100),
    ])  # fmt: skip
  head = 'method', 'share of d', 'uplink, MB', 'rates', 'training loss'
  caption = f'{caption}, d = {setting.dimension:,}, means over seeds.'
  return study.Table(caption, (*head, 'test accuracy, %'), rows)


def draw(race: Race, sized: Race) -> figure.Figure:
  """Draws accuracy against bytes; by table size, loss and accuracy by round.

  A method has its colour, a share its line.

  Args:
    race: of the methods.
    sized: SAFL by the size of its tables; without it there is one panel.
  """
  columns, width = (3, 15) if sized else (1, 6)
  fig, (axes,) = summaries.panels([''] * columns, columns, (width, 4.4))
  for (name, share), runs in {**race, **sized}.items():
    label = name if share == 1 else f'{name}, {share:g} d'
    look = reporting.look(races.METHODS.index(name))
    look['linestyle'] = _LINES.get(share, ':')
    summaries.plot_against_bytes(axes[0], _finished(runs), label, **look)
  if sized:
    _draw_sizes(axes[1], axes[2], sized)
  for ax in axes:
    if ax.lines:
      ax.legend(fontsize=7, frameon=False)
  return fig


def _draw_sizes(losses, accuracies, sized):
  for i, ((_, share), runs) in enumerate(sized.items()):
    label = 'd: dense' if share == 1 else f'{share:g} d'
    x, y = summaries.mean_curve(_finished(runs), 'train_loss')
    losses.plot(*_smooth(x, y), label=label, **reporting.look(i))
    x, y = summaries.mean_curve(_finished(runs), 'test_accuracy')
    accuracies.plot(x, 100 * y, label=label, **reporting.look(i))
  losses.set(xlabel='round', ylabel='training loss, SAFL by size of table')
  accuracies.set(xlabel='round', ylabel='test accuracy, %, the same')


def _finished(runs: Runs) -> Runs:
  return [run for run in runs if not run.diverged]


def _smooth(x, y, width=10):
  """Means over windows: a training loss is that of a few samples."""
  width = min(width, len(y)) or 1
  kernel = np.ones(width) / width
  return np.convolve(x, kernel, 'valid'), np.convolve(y, kernel, 'valid')


def plateau(run: lab_lib.Run) -> float:
  """Rounds until nine tenths of the fall of the training loss are done."""
  xs, losses = _smooth(*run.curve('train_loss'))
  if run.diverged or not losses[-1] < losses[0]:
    return math.nan
  level = losses[0] - 0.9 * (losses[0] - losses[-1])
  return lab_lib.first(xs, losses <= level)


def over_seeds(race: Mapping[Any, Runs], of: Any) -> dict[Any, float]:
  """The mean over seeds of a number of each run."""
  return {
    key: float(np.mean([of(r) for r in runs])) for key, runs in race.items()
  }
