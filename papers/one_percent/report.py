"""Makes the reports of the comparison: claims, tables and figures."""

import functools
import math
from typing import Any

from fl_sketch.reporting import figures
import numpy as np

from ..common import comparison, results, study, summaries, verdicts, workspace
from ..common.comparison import Entry
from ..common.workspace import Workspace
from . import methods, runs, tasks
from .methods import DENSE
from .runs import Entries


def _report(name: str, ws: Workspace) -> study.Report:
  task = tasks.make(ws, name)
  entries = runs.equal_rounds(ws, task)
  limited = runs.equal_bytes(ws, task, entries)
  claims = _bars(task, entries) + _against_rivals(limited)
  more: Entries = {}
  if task.name == 'resnet':
    more[_LONGER, 0.01] = runs.longer(ws, task, entries, methods.OURS_BOTH)
  claims += [_longer(one, entries[DENSE, 1.0]) for one in more.values()]
  stages = {
    EQUAL_ROUNDS: entries, 'equal bytes': limited, MORE_ROUNDS: more,
  }  # fmt: skip
  spent = entries[methods.SAFL, 0.01].total() / 1e6
  titles = EQUAL_ROUNDS, f'equal bytes, {spent:,.3g} MB up and down'
  dots = [_dots(t, r) for t, r in zip(titles, (entries, limited), strict=True)]
  return study.Report(
    claims,
    {stage: _numbers(found) for stage, found in stages.items()},
    [_table(task, stage, found) for stage, found in stages.items() if found],
    [
      study.Picture(_DOTS, dots, columns=1),
      study.Picture(CURVES, [curves(entries | more)]),
    ],
    [PROTOCOL],
  )


mnist = functools.partial(_report, 'mnist')
resnet = functools.partial(_report, 'resnet')
text = functools.partial(_report, 'text')
vit = functools.partial(_report, 'vit')


EQUAL_ROUNDS, MORE_ROUNDS = 'equal rounds', 'more rounds'
_LONGER = f'{methods.OURS_BOTH}, {MORE_ROUNDS}'
_DOTS = (
  'Test accuracy of every method, mean over seeds with intervals of 95 %; the '
  'bytes are those that a client sends in a round, of those of the model.'
)
CURVES = (
  'Test accuracy of some of the methods against the bytes of all clients, up '
  'and down; means over seeds with intervals of 95 %.'
)
_PERCENT = 'bytes up and down, % of dense FedAdam'
_SHOWN = (
  'Test accuracy of every row of the table against the bytes of all clients, '
  'up and down, mean over seeds with intervals of 95 %. Hollow: d / 1,000. '
  'Axes begin at the second worst; an arrow has the value of the worst.'
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


def _bars(task: tasks.TunedTask, entries: Entries) -> list[verdicts.Claim]:
  """The claims at equal rounds."""
  claims = []
  for (name, share), bar in methods.BARS.get(task.name, {}).items():
    if (name, share) not in entries:
      continue
    values = entries[name, share].accuracy
    text = f'{entry(name, share)}: test accuracy, %'
    if bar <= 0:
      values = values - entries[DENSE, 1.0].accuracy
      text = f'{entry(name, share)}: points above dense FedAdam'
    claims.append(verdicts.of_seeds(text, values, '>=', bar))
  return claims


def _longer(one: Entry, dense: Entry) -> verdicts.Claim:
  percent = 100 * one.total() / dense.total()
  text = (
    f'{methods.OURS_BOTH}, {one.rounds:,} rounds, {percent:.1f} % of the '
    'bytes of dense FedAdam: points above it'
  )
  paired = dense._replace(runs=dense.runs[: len(one.runs)])
  return comparison.above(text, one, paired)


def _against_rivals(limited: Entries) -> list[verdicts.Claim]:
  """At equal bytes, our method above each of the other compressors."""
  ours = limited[methods.OURS_BOTH, 0.01].accuracy
  rivals = {
    name: ours - limited[name, 0.01].accuracy
    for name in methods.RIVALS
    if (name, 0.01) in limited
  }
  text = f'{methods.OURS_BOTH}: points above each other method at equal bytes'
  return [verdicts.of_seeds(text, rivals, '>=', 0.0)] if rivals else []


def _numbers(entries: Entries) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  return {
    entry(*key): {
      '%': one.accuracy.tolist(), 'loss': one.loss.tolist(), 'rate': one.rate,
      'rounds': one.rounds, 'bytes': one.total(),
    }
    for key, one in entries.items()
  }  # fmt: skip


def _table(task: tasks.TunedTask, stage: str, entries: Entries) -> study.Table:
  """Lists bytes, rate, loss and accuracy, one row for each method."""
  clients = task.fields['cohort']
  of_client = lambda *ways: (
    lambda _, one: f'{one.total(*ways) / (one.rounds * clients):,.0f}'
  )
  columns = {
    'method': lambda key, _: key[0],
    'up': lambda key, _: label(key[1]),
    'rounds': lambda _, one: f'{one.rounds:,}',
    'bytes up': of_client('up'),
    'bytes down': of_client('down'),
    'sum': of_client(),
    'MB in all': lambda _, one: f'{one.total() / 1e6:,.3g}',
    'rate': comparison.rates,
    'training loss': comparison.shown(3, lambda one: one.loss),
    'test accuracy, %': comparison.shown(2, lambda one: one.accuracy),
    '95 % interval': comparison.interval(2, lambda one: one.accuracy),
  }
  caption = (
    f'{stage.capitalize()}: d = {task.dimension:,}; bytes of one client in a '
    'round, MB of all clients; means over seeds ± standard errors.'
  )
  ordered = dict(sorted(entries.items(), key=lambda item: -_mean(item[1])))
  return comparison.table(caption, ordered, columns)


def _dots(title: str, entries: Entries) -> figures.Panel:
  """Plots a dot for the test accuracy of each method, by uplink bytes."""
  order = sorted(entries, key=lambda key: (key[1], _mean(entries[key])))
  names = {key: (entry(*key), key[0]) for key in order}
  return comparison.dots(entries, names, title=title)


def _from_second_worst(values: list[float]) -> tuple[float, float] | None:
  """Limits of an axis that the least of the values does not stretch."""
  finite = sorted(v for v in values if math.isfinite(v))[1:]
  margin = 0.1 * (finite[-1] - finite[0]) if finite else 0.0
  return (finite[0] - 2 * margin, finite[-1] + margin) if margin else None


def curves(entries: Entries) -> figures.Panel:
  """Plots the accuracy of a few methods at d / 100 against the bytes."""
  drawn = {
    (name, share): one
    for (name, share), one in entries.items()
    if share >= 0.01 and name in (*_DRAWN, _LONGER)
  }
  return comparison.by_bytes(drawn, lambda key: _look(entry(*key)), digits=2)


def _look(key: str) -> dict[str, Any]:
  """Label, colour and variant of an entry: hollow at a thousandth."""
  name, share = key.rsplit(', ', 1)
  small = share == label(0.001)
  method = name.removesuffix(f', {MORE_ROUNDS}')
  return {
    'label': key if small else name, 'family': method,
    'variant': 1 if small else 2 * (name != method),
  }  # fmt: skip


_DRAWN = (
  DENSE, methods.OURS, methods.OURS_BOTH, methods.SAFL, 'SparseLoCo', 'DeMo',
  'FetchSGD',
)  # fmt: skip


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


def _mean(one: Entry) -> float:
  return float(np.nan_to_num(one.accuracy.mean()))


_STUDIES = {
  'mnist': 'One-Percent-MNIST', 'resnet': 'One-Percent-ResNet',
  'text': 'One-Percent-Text', 'vit': 'One-Percent-ViT',
}  # fmt: skip
_OVERVIEW = (
  'Test accuracy in per cent, means over seeds ± standard errors, at equal '
  'rounds; "more rounds" are those that 5 % of the bytes of dense FedAdam pay '
  'for. The bytes are those that a client sends up, of those of the model (d), '
  'and those of all clients, up and down, in per cent of dense FedAdam: from '
  'the least to the most of the tasks.'
)


def overview(ws: Workspace) -> study.Report:
  """Makes the table and the figure of all tasks, at equal rounds.

  The result of a task is read from the folder of the workspace, or made where
  there is none.
  """
  panels, scores, spent = [], {}, []
  for task, title in tasks.TITLES.items():
    methods_of_task = _result(ws, task)
    scores[title] = {key: x['%'] for key, x in methods_of_task.items()}
    dense = methods_of_task[entry(DENSE, 1.0)]['bytes']
    percent = {k: 100 * x['bytes'] / dense for k, x in methods_of_task.items()}
    spent.append(percent)
    panels.append(_ends(title, scores[title], percent))
  rows = []
  for key in dict.fromkeys(key for task in spent for key in task):
    percents = [task[key] for task in spent if key in task]
    ends = dict.fromkeys(f'{end:.3g}' for end in (min(percents), max(percents)))
    columns = [column.get(key) for column in scores.values()]
    cells = ['' if x is None else workspace.shown(x, digits=2) for x in columns]
    rows.append([*key.rsplit(', ', 1), ' to '.join(ends), *cells])
  head = ['method', 'up', '% of all bytes', *tasks.TITLES.values()]
  return study.Report(
    [],
    scores,
    [study.Table(_OVERVIEW, head, rows)],
    [study.Picture(_SHOWN, panels, columns=2)],
    [PROTOCOL],
  )


def _result(ws, task):
  """Returns the numbers of a task but at equal bytes."""
  kept = results.read(ws.folder, _STUDIES[task])
  seeds = kept['seeds'] if kept is not None else _report(task, ws).seeds
  return seeds[EQUAL_ROUNDS] | seeds[MORE_ROUNDS]


def _ends(title, scores, percent) -> figures.Panel:
  """Plots a point for each method, at its bytes and its accuracy."""
  lines, means = [], []
  for key, x in scores.items():
    ends = summaries.interval(np.reshape(x, (-1, 1)))
    means.append(float(ends[0][0]))
    point = {'points': True, 'cell': workspace.shown(x, digits=2)}
    line = figures.Line(x=[percent[key]], y=ends[0], **_look(key), **point)
    lines.append(line._replace(low=ends[1], high=ends[2]))
  return figures.Panel(
    _PERCENT, 'test accuracy, %', lines, title, x_scale='log',
    y_limits=_from_second_worst(means),
  )  # fmt: skip
