"""Tunes every method in repetitions, and reports errors against bytes."""

from collections.abc import Callable, Mapping, Sequence
import re
from typing import Any, NamedTuple

from fl_sketch.runs import DivergedError, figures, metrics
import numpy as np

from ..common import comparison, registration, study, workspace
from ..common.workspace import Fields, Workspace
from .methods import Method
from .tasks import Task

Row = tuple[str, float]  # method, share of a dense update's bytes, up
MARGIN = 10.0  # per cent of an error: at most so much above the dense one
_QUICK = {'adaptive': [0.003], 'plain': [0.3], 'seeds': [0.1]}


class Record(NamedTuple):
  """What a method reached in its repetitions, and what it cost."""

  # The metric at the end, means over the seeds of a repetition; NaN where a run
  # diverged.
  final: list[float]
  curves: list[list[float]]  # the metric at each evaluation, of every seed
  rates: list[float]  # that the repetitions chose
  up: float  # bytes of one client in a run
  down: float
  seconds: float  # of a round in the simulation

  @property
  def total(self) -> float:
    """Bytes of one client in a run, up and down."""
    return self.up + self.down


Records = dict[Row, Record]


def registered(ws: Workspace, name: str) -> dict[str, Any]:
  """Read the registration of a study; less is run at quick scale."""
  quick = _QUICK | {'repetitions': 2}
  return registration.read(name) | ws.pick(quick, {})


def rows(ws: Workspace, methods: Mapping[str, Method]) -> list[Row]:
  """Every method with each share that it sends; a few at quick scale."""
  every = [(name, x) for name, m in methods.items() for x in m.shares]
  return ws.pick(every[:13:4], every)


def report(
  ws: Workspace,
  name: str,
  task: Task,
  methods: Mapping[str, Method],
  claims: Callable[['Compared'], Mapping[str, Any]],
  note: str,
) -> study.Report:
  """Run all methods, and decide the claims of the registration."""
  r, found = registered(ws, name), {}
  for row in rows(ws, methods):
    found[row] = play(ws, task, r, methods[row[0]], *row)
  keep_first(ws)
  compared = Compared(task, found, methods)
  mark = f'The mark is {task.mark:g} ({task.source}).'
  return study.Report(
    registration.claims(r, claims(compared)),
    {title(row): x._asdict() for row, x in found.items()},
    [table(task, found), _by_error(compared)],
    [study.Picture(_FRONTIERS, [_panel(task, found, *way) for way in _WAYS])],
    [mark, _PROTOCOL, *(_frontier(task, found, *way) for way in _WAYS), note],
  )


def keep_first(ws: Workspace):
  """Drop the configs of costs, and of repetitions but the first.

  They differ from those of the first in seeds and rates, which a result has.
  """
  for kept in (ws.configs, ws.seconds):
    for name in [x for x in kept if re.search('/((tune|race)-[1-9]|cost$)', x)]:
      del kept[name]


def play(
  ws: Workspace, task: Task, r: Any, method: Method, name: str, share: float
) -> Record:
  """Tune and run a method in repetitions, each on seeds of its own."""
  fields = task.fields | method.fields(task, share)
  folder = f'compressors/{task.name}/{comparison.slug(name)}-{share:g}'
  each = r.get('seeds_each', 1)
  found = [
    comparison.run(
      ws, f'{folder}/{{}}-{i}', fields, {method.tuned: r[method.rates]},
      [r['seed'] + each * i + j for j in range(each)],
      trials={'seed': r['tuning_seed'] + i, 'client_holdout': 0.1},
      score=workspace.validation_score,
    )
    for i in range(r['repetitions'])
  ]  # fmt: skip
  runs = [run for one in found for run in one.runs]
  ran = [run.row for run in runs if 'round' in run.row]
  if not ran:
    raise DivergedError(f'{name} diverges in the first round of every run.')
  scale, clients = task.scale, ran[0]['participants']
  up, down = (
    # A run that diverged has the bytes of its rounds until then.
    np.mean([x[f'total_{way}link_bytes'] / (x['round'] + 1) for x in ran])
    * (fields['rounds'] / clients)
    for way in ('up', 'down')
  )
  if method.gathers:
    down = min(down, (clients - 1) * up)
  return Record(
    [float(one.final(task.metric, scale=scale).mean()) for one in found],
    [(scale * run.curve(task.metric)[1]).round(3).tolist() for run in runs],
    [one.rate for one in found],
    float(up),
    float(down),
    _seconds(ws, f'{folder}/cost', fields),
  )


def _seconds(ws: Workspace, folder: str, fields: Fields) -> float:
  """Seconds of a round: the second of two short runs, which is not compiled."""
  rounds = min(20, fields['rounds'])
  length = dict.fromkeys(('rounds', 'eval_every', 'checkpoint_every'), rounds)
  few = {'test_slice': '0:32', 'sweep': {'seed': (0, 1)}}
  few |= {'client_schedule': None, 'server_schedule': None}
  _, second = ws.sweep(folder, fields | length | few)
  return second.row['seconds'] / rounds


class Compared:
  """What claims compare: errors in per cent of other errors, by repetition."""

  def __init__(self, task: Task, found: Records, methods: Mapping[str, Method]):
    self.task, self.methods = task, methods
    self.errors = {row: task.errors(x.final) for row, x in found.items()}
    self.bytes = {row: x.total for row, x in found.items()}
    dense = [x for r, x in self.errors.items() if self._family(r) == 'dense']
    self.dense = min(dense, key=np.mean)

  def _family(self, row: Row) -> str:
    return self.methods[row[0]].family

  @property
  def mark(self) -> np.ndarray:
    """The metric of the best dense method."""
    return self.dense if self.task.is_loss else 100 - self.dense

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

  def rivals(self, row: Row, family: str) -> list[Row]:
    """Rows not of a family with at most 1.1 times as many bytes in all."""
    most = 1.1 * self.bytes.get(row, 0.0)
    few = [x for x, n in self.bytes.items() if n <= most and x != row]
    return [x for x in few if self._family(x) != family]


def title(row: Row) -> str:
  """The name of a row.

  >>> title(('EDEN', 0.01)), title(('FedAvg', 1.0))
  ('EDEN, 0.01', 'FedAvg')
  """
  name, share = row
  return name if share == 1 else f'{name}, {share:g}'


def table(task: Task, found: Records) -> study.Table:
  """A row a method and share, by all bytes."""
  a_round = lambda size: f'{size / task.fields["rounds"]:,.0f}'
  times = lambda x: 2 * task.dense_bytes / x.total
  rounded = lambda x: f'{float(f"{x:.3g}"):,g}'  # no exponent
  rates = lambda x: ', '.join(f'{rate:g}' for rate in sorted({*x.rates}))
  columns = {
    'method': lambda row, _: row[0],
    'share up': lambda row, _: f'{row[1]:g}',
    'bytes up': lambda _, x: a_round(x.up),
    'bytes down': lambda _, x: a_round(x.down),
    'times fewer': lambda _, x: rounded(times(x)),
    'than bfloat16': lambda _, x: rounded(times(x) / 2),
    'ms': lambda _, x: rounded(1e3 * x.seconds),
    'rates': lambda _, x: rates(x),
    task.unit: comparison.shown(task.digits, lambda x: x.final),
    '95 % interval': comparison.interval(task.digits, lambda x: x.final),
  }
  caption = (
    f'{task.title}, d = {task.dimension:,}: bytes of one client in one of '
    f'{task.fields["rounds"]:,} rounds; all bytes against those of dense '
    'updates and of bfloat16 both ways; ms of a round in the simulation; rates '
    'that repetitions chose; means over repetitions ± standard errors.'
  )
  ordered = dict(sorted(found.items(), key=lambda x: x[1].total))
  return comparison.table(caption, ordered, columns)


def _by_error(compared: Compared) -> study.Table:
  """A row a method and share, by error, and what makes it again."""
  task = compared.task
  columns = {
    'method': lambda row, _: title(row),
    'error': comparison.shown(task.digits, lambda error: error),
    'above dense, %': lambda row, _: _ends(compared.above_dense(row)),
    'command': lambda row, error: (
      f"fl-sketch compare '{title(row)}' --task={task.name} "
      f'--repetitions={len(error)}'
    ),
  }
  caption = (
    'By the error (of accuracies 100 - test accuracy): its mean over '
    'repetitions ± standard errors, how far it is above that of the best dense '
    'method with its interval of 95 %, and what makes the row again.'
  )
  ordered = sorted(compared.errors.items(), key=lambda x: x[1].mean())
  return comparison.table(caption, dict(ordered), columns)


def _ends(values: Any) -> str:
  mean, low, high = map(float, metrics.interval(values))
  return f'{mean:.1f} [{low:.1f}, {high:.1f}]'


def _panel(
  task: Task, found: Records, name: str, size: Callable[[Record], float]
) -> figures.Panel:
  """The metric against bytes, a curve a method over its shares."""
  curves: dict[str, list[Any]] = {}
  for (method, _), x in found.items():
    ends = map(float, metrics.interval(x.final))
    curves.setdefault(method, []).append((size(x) / 1e6, *ends))
  lines = []
  for method, points in curves.items():
    x, y, low, high = map(list, zip(*sorted(points), strict=True))
    lines.append(figures.Line('', x, y, family=method))
    lines.append(figures.Line(method, x, y, low, high, method, points=True))
  return figures.Panel(f'{name}, MB', task.unit, lines, x_scale='log')


def _frontier(
  task: Task, found: Records, name: str, size: Callable[[Record], float]
) -> str:
  """Names the rows to which none of fewer bytes is equal, by means."""
  best, shown = np.inf, []
  finite = [x for x in found.items() if np.isfinite(x[1].final).all()]
  for row, x in sorted(finite, key=lambda x: size(x[1])):
    error = task.errors(x.final).mean()
    if error < best:
      best = error
      cell = workspace.shown(x.final, digits=task.digits)
      shown.append(f'{title(row)} ({cell})')
  return f'The frontier of {name}: {"; ".join(shown)}.'


_WAYS: Sequence[tuple[str, Callable[[Record], float]]] = (
  ('bytes of a client, up and down', lambda x: x.total),
  ('bytes of a client, up', lambda x: x.up),
)
_FRONTIERS = (
  'The metric at the end against bytes, a curve a method over its shares; '
  'means over repetitions with intervals of 95 %.'
)
_PROTOCOL = (
  'A repetition tunes the rate of a method on a seed of its own, by the loss '
  'on a tenth of what clients train on, in runs of full length, over a range '
  'that grows, by three rates at most, until the best is inside, and trains on '
  'fresh seeds. Intervals '
  'are over repetitions, of tuning and training. The best dense method has the '
  'best mean over the repetitions.'
)
