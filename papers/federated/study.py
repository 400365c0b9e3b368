"""Tunes every method in repetitions, and reports accuracy against bytes."""

from collections.abc import Callable, Sequence
import functools
from typing import Any

from fl_sketch.runs import figures, metrics
import numpy as np

from ..common import comparison, registration, study, workspace
from ..common.comparison import Entry
from ..common.workspace import Workspace
from . import methods, tasks
from .methods import METHODS, Method
from .tasks import Task

Row = tuple[str, float]  # method, share of a dense update's bytes, up
Entries = dict[Row, Entry]
_ACCURACY = 'test accuracy, %'
MARGIN = 10.0  # per cent of an error: at most so much above the dense one
_QUICK = {
  'repetitions': 2, 'adaptive': [0.003], 'plain': [0.3], 'seeds': [0.1],
}  # fmt: skip


def _report(name: str, ws: Workspace) -> study.Report:
  task = getattr(tasks, name)(ws)
  r = registered(ws, name)
  entries = {row: play(ws, task, r, METHODS[row[0]], *row) for row in rows(ws)}
  made = registration.claims(r, _Compared(entries).claims())
  return study.Report(
    made,
    {title(row): numbers(e) for row, e in entries.items()},
    [table(task, entries)],
    [study.Picture(_FRONTIERS, [_panel(entries, *way) for way in _WAYS])],
    [_mark(task), _PROTOCOL, *(_frontier(entries, *way) for way in _WAYS)],
  )  # fmt: skip


clothes = functools.partial(_report, 'clothes')
digits = functools.partial(_report, 'digits')


def name_of(task: str) -> str:
  """The name of a task's study."""
  return f'Federated-{task.capitalize()}'


def registered(ws: Workspace, name: str) -> dict[str, Any]:
  """The registration of a task's study, with less to run at quick scale."""
  r = registration.read(name_of(name))
  return r | ws.pick(_QUICK, {})


def rows(ws: Workspace) -> list[Row]:
  """Every method with each share that it sends."""
  every = [(name, x) for name, m in METHODS.items() for x in m.shares]
  return ws.pick([every[0], *every[5:15:4]], every)


def play(
  ws: Workspace, task: Task, r: Any, method: Method, name: str, share: float
) -> Entry:
  """Tunes and runs a method in repetitions, each on seeds of its own."""
  fields = task.fields | method.fields(task, share)
  folder = f'federated/{task.name}/{comparison.slug(name)}-{share:g}'
  found = [
    comparison.run(
      ws, f'{folder}/{{}}-{i}', fields, {method.tuned: r[method.rates]},
      [r['seed'] + i], score=workspace.validation_score,
      trials={'seed': r['tuning_seed'] + i, 'client_holdout': 0.1},
    )
    for i in range(r['repetitions'])
  ]  # fmt: skip
  rates = {f'{method.tuned} {i}': one.rate for i, one in enumerate(found)}
  return Entry([x for one in found for x in one.runs], rates, fields['rounds'])


def errors(accuracies: np.ndarray) -> np.ndarray:
  """Errors in per cent; a run that diverged guesses one of ten classes.

  >>> errors(np.array([85.0, np.nan])).tolist()
  [15.0, 90.0]
  """
  return np.nan_to_num(100 - accuracies, nan=90.0)


class _Compared:
  """What claims compare: errors in per cent of other errors, by repetition."""

  def __init__(self, entries: Entries):
    final = {row: e.final(scale=100) for row, e in entries.items()}
    self.errors = {row: errors(x) for row, x in final.items()}
    self.bytes = {row: e.total() for row, e in entries.items()}
    dense = [x for (name, _), x in self.errors.items() if name in methods.DENSE]
    self.dense = min(dense, key=np.mean)

  def above(self, row: Row, others: Sequence[Row]) -> dict[str, np.ndarray]:
    """The error of a row above those of others, in per cent of theirs."""
    error, known = self.errors.get(row), self.errors
    if error is None:
      return {}
    apart = lambda other: 100 * (error / known[other] - 1)
    return {title(x): apart(x) for x in others if x in known}

  def above_dense(self, row: Row) -> np.ndarray | dict[str, np.ndarray]:
    """The error of a row above that of the best dense one, in per cent."""
    error = self.errors.get(row)
    return {} if error is None else 100 * (error / self.dense - 1)

  def rivals(self, row: Row) -> list[Row]:
    """Rows of other families with at most 1.1 times as many bytes in all."""
    most = 1.1 * self.bytes.get(row, 0.0)
    is_rival = lambda x: METHODS[x[0]].family != methods.SKETCH
    return [x for x, n in self.bytes.items() if is_rival(x) and n <= most]

  def claims(self) -> dict[str, Any]:
    """The values of the registered claims."""
    ours = methods.SUBSPACE
    behind = {title(row): self.above_dense(row) for row in _SHOWN}
    one_bit, fewer = (methods.ONE_BIT, 0.01), (methods.FEWER, 0.1)
    return {
      'mark': 100 - self.dense,
      **behind,
      'rivals, 0.01': self.above((ours, 0.01), self.rivals((ours, 0.01))),
      'rivals, 0.001': self.above((ours, 0.001), self.rivals((ours, 0.001))),
      'trivial rival': self.above((methods.TABLES, 0.1), [fewer]),
      'bits': self.above(one_bit, [(methods.TABLES, 0.01)]),
      'one hash': self.above((ours, 0.01), [(methods.BOTH_WAYS, 0.01)]),
      'uplink alone': self.above((methods.EDEN, 0.01), [one_bit]),
    }


# Rows of README's table, each with a claim on its error.
_SHOWN: Sequence[Row] = (
  (methods.TABLES, 0.1), (methods.TABLES, 0.01), (methods.ONE_BIT, 0.01),
  (methods.ONE_BIT, 0.001), (methods.BOTH_WAYS, 0.01),
  (methods.SUBSPACE, 0.01), (methods.SUBSPACE, 0.001), (methods.EDEN, 0.01),
  (methods.EDEN, 0.001), (methods.FEWER, 0.1),
)  # fmt: skip


def title(row: Row) -> str:
  """The name of a row.

  >>> title(('EDEN', 0.01)), title(('FedAvg', 1.0))
  ('EDEN, 0.01', 'FedAvg')
  """
  name, share = row
  return name if share == 1 else f'{name}, {share:g}'


def numbers(e: Entry) -> dict[str, Any]:
  """Numbers of every repetition, for the JSON."""
  curves = [(100 * run.curve()[1]).round(2).tolist() for run in e.runs]
  final = e.final(scale=100).round(4).tolist()
  sent = {way: e.total(way) for way in ('up', 'down')}
  rates = [*e.rates.values()]
  return {'final': final, 'curves': curves, 'rates': rates, **sent}


def dense_bytes(task: Task) -> int:
  """Bytes of the dense updates of all clients in a run."""
  return 4 * task.dimension * task.fields['rounds'] * task.fields['cohort']


def table(task: Task, entries: Entries) -> study.Table:
  """A row a method and share, by all bytes."""
  turns = task.fields['rounds'] * task.fields['cohort']
  dense = 2 * dense_bytes(task)
  final = lambda e: e.final(scale=100)
  rates = lambda e: ', '.join(f'{x:g}' for x in sorted({*e.rates.values()}))
  columns = {
    'method': lambda row, _: row[0],
    'share up': lambda row, _: f'{row[1]:g}',
    'bytes up': lambda _, e: f'{e.total("up") / turns:,.0f}',
    'bytes down': lambda _, e: f'{e.total("down") / turns:,.0f}',
    'times fewer': lambda _, e: f'{dense / e.total():,.3g}',
    'than bfloat16': lambda _, e: f'{dense / 2 / e.total():,.3g}',
    'rates': lambda _, e: rates(e),
    _ACCURACY: comparison.shown(1, final),
    '95 % interval': comparison.interval(1, final),
  }  # fmt: skip
  caption = (
    f'{task.title}, d = {task.dimension:,}: bytes of one client in a round, '
    'mean over the run; all bytes against those of dense updates and of '
    'bfloat16 both ways; means over repetitions ± standard errors; rates that '
    'repetitions chose.'
  )
  ordered = dict(sorted(entries.items(), key=lambda x: x[1].total()))
  return comparison.table(caption, ordered, columns)


def _panel(entries: Entries, name: str, ways: Sequence[str]) -> figures.Panel:
  """Accuracy against bytes, a curve a method over its shares."""
  curves: dict[str, list[Any]] = {}
  for (method, _), e in entries.items():
    ends = map(float, metrics.interval(e.final(scale=100)))
    curves.setdefault(method, []).append((e.total(*ways) / 1e6, *ends))
  lines = []
  for method, points in curves.items():
    x, y, low, high = map(list, zip(*sorted(points), strict=True))
    lines.append(figures.Line('', x, y, family=method))
    lines.append(figures.Line(method, x, y, low, high, method, points=True))
  return figures.Panel(f'{name}, MB', _ACCURACY, lines, x_scale='log')


def _frontier(entries: Entries, name: str, ways: Sequence[str]) -> str:
  """Names the rows above which none has as few bytes, by means."""
  mean: Callable[[Entry], float] = lambda e: np.nan_to_num(e.final()).mean()
  best, found = -1.0, []
  for row, e in sorted(entries.items(), key=lambda x: x[1].total(*ways)):
    if mean(e) > best:
      best = mean(e)
      found.append(f'{title(row)} ({100 * best:.1f})')
  return f'The frontier of {name}: {"; ".join(found)}.'


def _mark(task: Task) -> str:
  return f'The mark is {task.mark:g} % ({task.source}).'


_WAYS: Sequence[tuple[str, Sequence[str]]] = (
  ('bytes of all clients, up and down', ()), ('bytes up', ('up',)),
)  # fmt: skip
_FRONTIERS = (
  'Accuracy at the end against bytes, a curve a method over its shares; means '
  'over repetitions with intervals of 95 %.'
)
_PROTOCOL = (
  'A repetition tunes the rate of a method on a seed of its own, by the loss '
  'on a tenth of what clients train on, in runs of full length, over a range '
  'that grows until the best is inside, and trains on a fresh seed. Intervals '
  'are over repetitions, of tuning and training. The best dense method has the '
  'best mean over the repetitions. No method keeps state on clients; a client '
  'that was away receives what it missed, or the whole model where that is '
  'fewer bytes. Fewer rounds are of as many samples in all.'
)
