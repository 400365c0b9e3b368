"""Makes the reports of the comparison: claims, tables and figures."""

import functools
import math
from typing import Any

from fl_sketch.reporting import figures
import numpy as np

from ..common import study, summaries, verdicts, workspace
from ..common.workspace import Workspace
from . import methods, runs, tasks
from .methods import DENSE
from .runs import Race, Races


def _report(name: str, ws: Workspace) -> study.Report:
  task = tasks.make(ws, name)
  races = runs.equal_rounds(ws, task)
  limited = runs.equal_bytes(ws, task, races)
  claims = _bars(task, races) + _against_rivals(limited)
  more = longer(ws, task, races)
  claims += [_longer(race, races[DENSE, 1.0]) for race in more.values()]
  stages = {
    EQUAL_ROUNDS: races, 'equal bytes': limited, MORE_ROUNDS: more,
  }  # fmt: skip
  spent = runs.spent(races[methods.SAFL, 0.01]) / 1e6
  titles = EQUAL_ROUNDS, f'equal bytes, {spent:,.3g} MB up and down'
  dots = [_dots(t, r) for t, r in zip(titles, (races, limited), strict=True)]
  return study.Report(
    claims,
    {stage: _numbers(found) for stage, found in stages.items()},
    [_table(task, stage, found) for stage, found in stages.items() if found],
    [
      study.Picture(_DOTS, dots, columns=1),
      study.Picture(CURVES, [curves(races | more)]),
    ],
    [PROTOCOL],
  )


mnist = functools.partial(_report, 'mnist')
resnet = functools.partial(_report, 'resnet')
text = functools.partial(_report, 'text')
vit = functools.partial(_report, 'vit')


def longer(ws: Workspace, task: tasks.Task, races: Races) -> Races:
  """Runs the preconditioned sketch for more rounds on ResNet-8 alone."""
  if task.name != 'resnet':
    return {}
  return {(_LONGER, 0.01): runs.longer(ws, task, races, methods.OURS_BOTH)}


EQUAL_ROUNDS, MORE_ROUNDS = 'equal rounds', 'more rounds'
_LONGER = f'{methods.OURS_BOTH}, {MORE_ROUNDS}'
_DOTS = (
  'Test accuracy of every method, mean over seeds with intervals of 95 %; the '
  'bytes are those that a client sends in a round, of those of the model.'
)
CURVES = (
  'Test accuracy against the bytes of all clients, up and down; means over '
  'seeds with intervals of 95 %.'
)
PROTOCOL = (
  'Every method has four rates, half a decade apart, on seed 100, and up to '
  'three more where the best is the first or the last of them; that with the '
  'least training loss runs on five other seeds, or on 20 of ResNet-8 and '
  'SST-2 where a claim compares it with dense FedAdam. Accuracies are means of '
  'the last two evaluations of the whole test set. At equal bytes every method '
  'runs as many rounds as the bytes of SAFL at d / 100 pay for, up and down, '
  'and is tuned again for fewer rounds, not for more. SparseLoCo has AdamW on '
  'clients, an error memory that decays by 0.95 and the mean itself as the '
  'step; DeMo has the momentum 0.999 and steps along signs; PowerSGD has rank '
  '1 and Adam on the server. Client momentum is 0.9, without momentum on the '
  'server.'
)


def _bars(task: tasks.Task, races: Races) -> list[verdicts.Claim]:
  """The claims at equal rounds."""
  claims = []
  for (name, share), bar in methods.BARS.get(task.name, {}).items():
    if (name, share) not in races:
      continue
    values = runs.accuracy(races[name, share])
    text = f'{entry(name, share)}: test accuracy, %'
    if bar <= 0:
      values = values - runs.accuracy(races[DENSE, 1.0])
      text = f'{entry(name, share)}: points above dense FedAdam'
    claims.append(verdicts.of_seeds(text, values, '>=', bar))
  return claims


def _longer(race: Race, dense: Race) -> verdicts.Claim:
  percent = 100 * runs.spent(race) / runs.spent(dense)
  text = (
    f'{methods.OURS_BOTH}, {race.rounds:,} rounds, {percent:.1f} % of the '
    'bytes of dense FedAdam: points above it'
  )
  of_dense = runs.accuracy(dense)[: len(race.runs)]
  above = runs.accuracy(race) - of_dense
  return verdicts.of_seeds(text, above, '>=', 0.0)


def _against_rivals(limited: Races) -> list[verdicts.Claim]:
  """At equal bytes, our method above each of the other compressors."""
  ours = runs.accuracy(limited[methods.OURS_BOTH, 0.01])
  rivals = {
    name: ours - runs.accuracy(limited[name, 0.01])
    for name in methods.RIVALS
    if (name, 0.01) in limited
  }
  text = f'{methods.OURS_BOTH}: points above each other method at equal bytes'
  return [verdicts.of_seeds(text, rivals, '>=', 0.0)] if rivals else []


def _numbers(races: Races) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  return {
    entry(name, share): {
      '%': runs.accuracy(race).tolist(),
      'loss': [run.final('train_loss', last=20) for run in race.runs],
      'rate': race.rate,
      'rounds': race.rounds,
      'bytes': runs.spent(race),
    }
    for (name, share), race in races.items()
  }


def _table(task: tasks.Task, stage: str, races: Races) -> study.Table:
  """Lists bytes, rate, loss and accuracy, one row for each method."""
  rows = []
  order = sorted(races, key=lambda key: -_mean(races[key]))
  clients = task.fields['cohort']
  for name, share in order:
    race = races[name, share]
    sent = [
      np.mean([run.row[f'total_{way}link_bytes'] for run in race.runs])
      / (race.rounds * clients)
      for way in ('up', 'down')
    ]
    values = runs.accuracy(race)
    _, low, high = summaries.interval(values)
    losses = [run.final('train_loss', last=20) for run in race.runs]
    rows.append([
      name, label(share), f'{race.rounds:,}',
      *(f'{number:,.0f}' for number in (*sent, sum(sent))),
      f'{runs.spent(race) / 1e6:,.3g}', f'{race.rate:g}',
      workspace.shown(losses, digits=3), workspace.shown(values, digits=2),
      '' if math.isnan(low) else f'{low:.2f} to {high:.2f}',
    ])  # fmt: skip
  caption = (
    f'{stage.capitalize()}: d = {task.dimension:,}; bytes of one client in a '
    'round, MB of all clients; means over seeds ± standard errors.'
  )
  return study.Table(caption, _HEAD, rows)


_HEAD = (
  'method', 'up', 'rounds', 'bytes up', 'bytes down', 'sum', 'MB in all',
  'rate', 'training loss', 'test accuracy, %', '95 % interval',
)  # fmt: skip


def _dots(title: str, races: Races) -> figures.Panel:
  """Plots a dot for the test accuracy of each method, by uplink bytes."""
  order = sorted(races, key=lambda key: (key[1], _mean(races[key])))
  dots = {}
  for name, share in order:
    ends = summaries.interval(runs.accuracy(races[name, share]))
    mean, low, high = map(float, ends)
    family = methods.METHODS[name].family
    dots[entry(name, share)] = figures.Dot(mean, low, high, family)
  return figures.dot_plot('test accuracy, %', dots, title)


def curves(races: Races) -> figures.Panel:
  """Plots the accuracy of a few methods at d / 100 against the bytes."""
  lines = []
  for (name, share), race in races.items():
    if share < 0.01 or name not in (*_DRAWN, _LONGER):
      continue
    method = methods.METHODS[name.removesuffix(f', {MORE_ROUNDS}')]
    lines += summaries.against_bytes(
      name,
      race.runs,
      runs.accuracy(race),
      digits=2,
      family=method.family,
      variant=_VARIANTS.get(name, 0),
    )
  labels = figures.MEGABYTES, 'test accuracy, %'
  return figures.Panel(*labels, lines, x_scale='log')


_DRAWN = (
  DENSE, methods.OURS, methods.OURS_BOTH, methods.SAFL, 'SparseLoCo', 'DeMo',
  'FetchSGD',
)  # fmt: skip
_VARIANTS = {methods.OURS_BOTH: 1, _LONGER: 2, 'DeMo': 1}


def entry(name: str, share: float) -> str:
  """Returns the name of a method at a share of the model's bytes.

  >>> entry('SAFL', 0.01)
  'SAFL, d / 100'
  """
  return f'{name}, {label(share)}'


def label(share: float) -> str:
  """Returns the name of a share of the model's bytes.

  >>> label(1.0), label(0.001)
  ('d', 'd / 1,000')
  """
  return 'd' if share == 1 else f'd / {round(1 / share):,}'


def _mean(race: Race) -> float:
  return float(np.nan_to_num(runs.accuracy(race).mean()))
