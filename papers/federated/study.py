"""Tunes every method in repetitions, and reports errors against bytes."""

import functools
from typing import Any

from fl_sketch.runs import figures, metrics
import numpy as np

from ..common import comparison, registration, study, workspace
from ..common.comparison import Entry
from ..common.workspace import Workspace
from . import methods, tasks
from .methods import METHODS
from .tasks import Task

Row = tuple[str, float]  # method, share of the bytes of a dense update, up
Entries = dict[Row, Entry]
_QUICK = {
  'repetitions': 2, 'adaptive': [0.003], 'plain': [0.3], 'seeds': [0.1],
}  # fmt: skip


def _report(name: str, ws: Workspace) -> study.Report:
  r = registration.read(f'Federated-{name.capitalize()}')
  if ws.scale == 'quick':
    r |= _QUICK
  task = getattr(tasks, name)(ws)
  entries = play(ws, task, r, rows(ws))
  return study.Report(
    registration.claims(r, _claims(_Values(task, entries))),
    {f'{n} {share:g}': _numbers(task, e) for (n, share), e in entries.items()},
    [_table(task, entries)],
    [study.Picture(_FRONTIER, _panels(task, entries))],
    [_PROTOCOL, _BYTES],
  )  # fmt: skip


clothes = functools.partial(_report, 'clothes')
speakers = functools.partial(_report, 'speakers')


def rows(ws: Workspace) -> list[Row]:
  """Every method with each share that it sends."""
  every = [(name, x) for name, m in METHODS.items() for x in m.shares]
  return ws.pick(every[:8:3], every)


def play(ws: Workspace, task: Task, r: Any, wanted: list[Row]) -> Entries:
  """Tunes and runs each row in repetitions, each on seeds of its own."""
  entries = {}
  for name, share in wanted:
    method, found, rates = METHODS[name], [], []
    fields = task.fields | method.fields(task, share)
    folder = f'federated/{task.name}/{comparison.slug(name)}-{share:g}'
    for i in range(r['repetitions']):
      one = comparison.run(
        ws, f'{folder}/{{}}-{i}', fields, {method.tuned: r[method.rates]},
        [r['seed'] + i], score=workspace.validation_score,
        trials={'seed': r['tuning_seed'] + i, 'client_holdout': 0.1},
      )  # fmt: skip
      found += one.runs
      rates.append(one.rate)
    tuned = {method.tuned: float(np.median(rates))}
    entries[name, share] = Entry(found, tuned, fields['rounds'])
  return entries


class _Values:
  """What claims compare: errors of every repetition, and bytes."""

  def __init__(self, task: Task, entries: Entries):
    self.task, self.entries = task, entries
    dense = [self.error((name, 1.0)) for name in methods.DENSE]
    self.dense = min(dense, key=np.mean)

  def error(self, row: Row) -> np.ndarray:
    """The loss, or what an accuracy lacks to 100 %; that of guessing if NaN."""
    final = self.entries[row].final(self.task.metric, scale=self.task.scale)
    error = final if self.task.is_loss else 100 - final
    return np.nan_to_num(error, nan=self.task.guessing)

  def above_dense(self, *rows: Row) -> dict[str, np.ndarray]:
    """Errors above that of the best dense method, in per cent of it."""
    return {_title(x): 100 * (self.error(x) / self.dense - 1) for x in rows}

  def above(self, row: Row, *others: Row) -> dict[str, np.ndarray]:
    """Error of a row above those of others, in per cent of these."""
    error = self.error(row)
    return {_title(x): 100 * (error / self.error(x) - 1) for x in others}

  def rivals(self, row: Row) -> list[Row]:
    """Rows of other families with at most as many bytes in all."""
    most = 1.1 * self.entries[row].total()
    return [
      x for x, e in self.entries.items()
      if METHODS[x[0]].family != 'sketch' and e.total() <= most
    ]  # fmt: skip


def _claims(v: _Values) -> dict[str, Any]:
  row = lambda name, share: (name, share)
  ours = [row(methods.SUBSPACE, x) for x in (0.01, 0.001)]
  dense = v.dense if v.task.is_loss else 100 - v.dense
  return {
    'mark': dense,
    'a tenth': v.above_dense(row('SAFL, block_srht', 0.1)),
    'a hundredth': v.above_dense(row('SAFL, one bit', 0.01), ours[0]),
    'a thousandth': v.above_dense(ours[1]),
    'frontier': v.above(ours[0], *v.rivals(ours[0])),
    'small frontier': v.above(ours[1], *v.rivals(ours[1])),
    'bits': v.above(row('SAFL, one bit', 0.01), row('SAFL, block_srht', 0.01)),
    'one hash': v.above(ours[0], row('SAFL, one bit both ways', 0.01)),
    'trivial rival': v.above(
      row('SAFL, block_srht', 0.1), row('FedAdam, fewer rounds', 0.1)
    ),
    'uplink': v.above(row('EDEN', 0.01), row('SAFL, one bit', 0.01)),
  }  # fmt: skip


def _title(row: Row) -> str:
  name, share = row
  return name if share == 1 else f'{name}, {share:g} d'


def _numbers(task: Task, e: Entry) -> dict[str, Any]:
  """Numbers of every repetition, for the JSON."""
  return {
    'final': e.final(task.metric, scale=task.scale).tolist(),
    **{way: e.total(way) for way in ('up', 'down')},
    **e.rates,
  }


def _table(task: Task, entries: Entries) -> study.Table:
  """A row a method and share, by all bytes."""
  turns = task.fields['rounds'] * task.fields['cohort']
  final = lambda e: e.final(task.metric, scale=task.scale)
  digits = 3 if task.is_loss else 1
  columns = {
    'method': lambda row, _: row[0],
    'share up': lambda row, _: f'{row[1]:g}',
    'bytes up': lambda _, e: f'{e.total("up") / turns:,.0f}',
    'bytes down': lambda _, e: f'{e.total("down") / turns:,.0f}',
    'MB in all': lambda _, e: f'{e.total() / 1e6:,.4g}',
    'rate': comparison.rates,
    task.unit: comparison.shown(digits, final),
    '95 % interval': comparison.interval(digits, final),
  }  # fmt: skip
  caption = (
    f'{task.title}, d = {task.dimension:,}: bytes of one client in a round, '
    'in the mean over the run, and MB of all clients; means over repetitions '
    'of tuning and training ± standard errors; the median rate.'
  )
  ordered = dict(sorted(entries.items(), key=lambda x: x[1].total()))
  return comparison.table(caption, ordered, columns)


def _panels(task: Task, entries: Entries) -> list[Any]:
  """The metric at the end against bytes: of all ways, and up alone."""
  return [
    _panel(task, entries, 'bytes of all clients, up and down (MB)', ()),
    _panel(task, entries, 'uplink alone (MB)', ('up',)),
  ]


def _panel(task: Task, entries: Entries, x_label: str, ways) -> figures.Panel:
  curves: dict[str, list[Any]] = {}
  for (name, _), e in entries.items():
    final = e.final(task.metric, scale=task.scale)
    ends = map(float, metrics.interval(final))
    curves.setdefault(name, []).append((e.total(*ways) / 1e6, *ends))
  lines = []
  for name, points in curves.items():
    x, y, low, high = map(list, zip(*sorted(points), strict=True))
    lines.append(figures.Line('', x, y, family=name))
    lines.append(figures.Line(name, x, y, low, high, name, points=True))
  return figures.Panel(x_label, task.unit, lines, x_scale='log')


_FRONTIER = (
  'The metric at the end against bytes, a curve a method over its shares; '
  'means over repetitions of tuning and training with intervals of 95 %.'
)
_PROTOCOL = (
  'A repetition tunes the rate of a method on a seed of its own, by the loss '
  'on a tenth of what clients train on, over a grid that grows until the best '
  'is inside, in runs of full length, and trains on a fresh seed. Intervals '
  'are over repetitions. No method keeps state on clients.'
)
_BYTES = (
  'A client that was away receives what it missed, or the whole model where '
  'that is fewer bytes. Fewer rounds are of as many local steps in all.'
)
