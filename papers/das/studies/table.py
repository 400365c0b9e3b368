"""Table 1 (a) of Das et al. over its whole grid, tuned on held-out data."""

from collections.abc import Mapping
from typing import Any

from fl_sketch.runs.figures import Line, Panel
import numpy as np

from ...common import registration, study, summaries, workspace
from ...common.comparison import Entry
from ...common.workspace import Fields, PointRun, Workspace
from . import races

_NAME = 'S1-Tab1a'
_PROTOCOL = (
  'Logistic regression, 20 full steps, rates that fall by 1 % a round, server '
  'momentum 0.8, weight decay 1e-4, a fifth of 3,000 clients expected in a '
  'round under Poisson sampling. C and rate are chosen by the accuracy on a '
  'tenth of the data of every client, which these runs hold out, on a seed '
  'apart. '
  'Reported is the mean of the last five rounds on all test data.'
)


def table_1a(ws: Workspace) -> study.Report:
  """Measures clipping, normalising and FedAvg, and finds the printed noise."""
  r = registration.read(_NAME)
  if ws.scale == 'quick':
    r |= {
      'seeds': [1, 2], 'rounds': [12], 'clip_norm': [15.625, 31.25],
      'client_lr': [0.016], 'fedavg_rounds': 12, 'fedavg_lr': [0.016],
      'multipliers': [1.0], 'client_holdout': 0.2,
    }  # fmt: skip
  setting = ws.pick(races.digits, races.fashion)(ws)
  fedavg = _fedavg(ws, setting, r)
  cells, rows = {}, []
  for rounds in r['rounds']:
    for noise in races.noises(_for(setting, rounds))[: ws.pick(1, None)]:
      at = f'{rounds} rounds, epsilon {noise.epsilon:g}, {noise.kind}'
      for algorithm, name in races.ALGORITHMS.items():
        near = _near(cells, r, noise, name)
        values, found = _best(
          ws, _for(setting, rounds), r, noise, algorithm, near
        )
        cells[rounds, noise.epsilon, noise.kind, name] = values, found
        where = ', '.join(f'{x:g}' for x in values.values())
        printed = r['printed'][name][f'{noise.epsilon:g}']
        rows.append([
          at, name, f'{noise.worth:.4g}', where, workspace.shown(found),
          f'{printed:.2f}',
        ])  # fmt: skip
  implied, line = _implied(ws, _for(setting, r['rounds'][0]), r)
  head = 'noise', 'method', 'true epsilon', 'C, rate', '%', 'printed, %'
  picture = study.Picture(
    'Test accuracy of clipping by noise, with intervals of 95 %.',
    [Panel('noise multiplier z', 'test accuracy, %', [line], x_scale='log')],
  )
  values = _values(r, cells, fedavg) | implied
  in_order = {row['key']: values[row['key']] for row in r['claim']}
  return study.Report(
    registration.claims(r, in_order),
    {'FedAvg': fedavg},
    [study.Table('Test accuracy at delta 1e-5.', head, rows)],
    [picture],
    [_PROTOCOL],
  )


def _for(setting: races.Federation, rounds: int) -> races.Federation:
  """The setting with so many rounds."""
  own = {'rounds': rounds, 'checkpoint_every': rounds}
  return setting._replace(fields=setting.fields | own)


def _near(cells, r, noise, name):
  """Values of C and rates to try: all, or those next to the best of before."""
  for (_, epsilon, kind, known), (best, _) in cells.items():
    if (epsilon, kind, known) == (noise.epsilon, noise.kind, name):
      return {k: [x / 2, x, 2 * x] for k, x in best.items()}
  return {k: r[k] for k in ('clip_norm', 'client_lr')}


def _tuning(r: Mapping[str, Any], rounds: int) -> Fields:
  """A run whose held-out accuracy chooses."""
  every = max(1, rounds // 15)
  own = {'eval_every': every, 'client_holdout': r['client_holdout']}
  return own | {'seed': r['tuning_seed']}


def _held_out(run: PointRun) -> float:
  return float(np.nan_to_num(run.final('client_accuracy_pooled', last=3)))


def _tuned(ws, r, name, fields, grid) -> tuple[Fields, np.ndarray]:
  """The best values of a grid, and the accuracy over seeds there, in %."""
  tuning = fields | _tuning(r, fields['rounds']) | {'sweep': dict(grid)}
  runs = ws.sweep(f'das/table/{name}-tuning', tuning)
  best = {k: max(runs, key=_held_out).values[k] for k in grid}
  seeds = {'sweep': {'seed': r['seeds']}}
  final = ws.sweep(f'das/table/{name}', fields | best | seeds)
  return best, races.accuracy(Entry(final, best))


def _best(ws, setting, r, noise, algorithm, grid):
  """The best C and rate of a private method, and its accuracy, in %."""
  fields = races.private(setting, noise, algorithm=algorithm)
  kind = f'{noise.kind}-{noise.epsilon:g}-{algorithm}'
  return _tuned(ws, r, f'{fields["rounds"]}-{kind}', fields, grid)


def _fedavg(ws, setting, r) -> np.ndarray:
  """Accuracy of FedAvg over seeds, at its best rate."""
  fields = _for(setting, r['fedavg_rounds']).fields
  return _tuned(ws, r, 'fedavg', fields, {'client_lr': r['fedavg_lr']})[1]


def _implied(ws, setting, r):
  """The noise that gives the printed accuracies, and a line of the figure."""
  found = []
  for z in r['multipliers']:
    noise = races.Noise(0.0, f'z-{z:g}', z, np.nan)
    grid = {'clip_norm': [r['multipliers_clip']], 'client_lr': r['client_lr']}
    found.append(_best(ws, setting, r, noise, 'dp_fedavg', grid)[1])
  accuracy, logs = np.array(found).T, np.log(r['multipliers'])
  # The last crossing from above, as noise grows.
  fall = np.minimum.accumulate(accuracy, axis=1)
  z = {
    p: np.exp([np.interp(-p, -row, logs, np.nan, np.nan) for row in fall])
    for p in r['printed']['clip'].values()
  }
  high, low = z.values()
  x = r['multipliers']
  line = Line('clip', x, *summaries.interval(accuracy))
  return {'one q, at least': low / high, 'one q, at most': low / high}, line


def _values(r, cells, fedavg):
  """Values of the claims on accuracies, by key."""
  gains, levels, private = {}, {}, {}
  for (rounds, epsilon, kind, name), (_, found) in cells.items():
    at = f'{rounds} rounds, epsilon {epsilon:g}, {kind}'
    levels[f'{name}, {at}'] = found - r['printed'][name][f'{epsilon:g}']
    private[f'{name}, {at}'] = fedavg - found
    if name == 'normalise':
      clip = cells[rounds, epsilon, kind, 'clip'][1]
      gains[rounds, kind, epsilon] = found - clip
  pairs = dict.fromkeys((k, kind) for k, kind, _ in gains)
  ends = sorted({epsilon for *_, epsilon in gains}, reverse=True)
  clip = {at: [cells[at[0], e, at[1], 'clip'][1] for e in ends] for at in pairs}
  words = lambda at: ', '.join(map(str, at))
  one = lambda e: {words(at): x for at, x in gains.items() if at[2] == e}
  return {
    'better': {words(at): x for at, x in gains.items()},
    'larger at 5': {
      words(at): gains[*at, ends[0]] - gains[*at, ends[-1]] for at in pairs
    },
    'gain at 5': one(5.0),
    'gain at 1.5': one(1.5),
    'levels': levels,
    'loses': {words(at): x[0] - x[-1] for at, x in clip.items()},
    'FedAvg is ahead': private,
    'FedAvg is as printed': abs(fedavg - r['printed']['fedavg']),
  }
