"""Makes the reports: claims against the best ceiling, tables and figures."""

from collections.abc import Iterator, Sequence
import functools
from typing import Any

from fl_sketch.runs import figures, metrics, plots
import numpy as np

from ..common import comparison, study, verdicts, workspace
from ..common.workspace import Workspace
from . import methods, runs, tasks
from .methods import METHODS
from .runs import Record
from .tasks import Task

Row = tuple[str, float]  # method, share of the bytes of a dense update
Records = dict[Row, Record]
_MBIT = 1e6 / 8  # bytes a second
_LINKS = (10, 100)  # Mbit/s
_HUNDREDTH = 0.01
_FEW = 0.05  # of all bytes of dense steps: more than ours, like most rivals


def _report(name: str, ws: Workspace) -> study.Report:
  task = tasks.make(ws, name)
  found = {row: runs.record(ws, task, *row) for row in methods.rows(task.name)}
  halves = [_half(found, local) for local in (False, True)]
  costs = {row: runs.cost(ws, task, *row, x.tuned) for row, x in found.items()}
  best = found[_ranked(task, found, _DENSE)[0]].values.mean()
  by_bytes = [_by_bytes(task, half, best) for half in halves if half]
  by_time = [_by_time(task, found, costs, link) for link in _LINKS]
  return study.Report(
    _claims(task, found),
    {runs.name_of(task.name, *row): x._asdict() for row, x in found.items()},
    [_table(task, half, costs) for half in halves if half],
    [study.Picture(_BY_BYTES, by_bytes), study.Picture(_BY_TIME, by_time)],
    [_protocol(task), _BYTES],
  )


digits = functools.partial(_report, 'digits')
characters = functools.partial(_report, 'characters')
clothes = functools.partial(_report, 'clothes')


def _half(found: Records, local: bool) -> Records:
  """Rows of methods that make many steps in a round, or of all the others."""
  return {r: one for r, one in found.items() if METHODS[r[0]].local == local}


def _ranked(task: Task, records: Records, kinds: Sequence[str]) -> list[Row]:
  """Rows of some kinds, by the mean over the reported seeds, best first."""
  sign = 1 if task.is_loss else -1
  mean = lambda row: sign * records[row].values.mean()
  of_kind = [row for row in records if METHODS[row[0]].kind in kinds]
  return sorted(of_kind, key=lambda row: np.nan_to_num(mean(row), nan=np.inf))


def _claims(task: Task, found: Records) -> list[verdicts.Claim]:
  """The mark; ours against the best dense method and the best rival."""
  dense = _ranked(task, found, _DENSE)[0]
  text = f'{_METRICS[task.metric]} of the best dense method, {_title(dense)}'
  relation = '<=' if task.is_loss else '>='
  claims = [verdicts.of_seeds(text, found[dense].values, relation, task.mark)]
  rivals = {r: x for r, x in found.items() if _share(task, r, x) <= _FEW}
  for row in _OURS:
    if row not in found:
      continue
    claims.append(_behind(task, found, row, dense, task.margin))
    half = _half(rivals, METHODS[row[0]].local)
    for rival in _ranked(task, half, ('rival',))[:1]:
      claims.append(_behind(task, found, row, rival, 0.0, _RIVAL))
  return claims


def _behind(
  task: Task, found: Records, row: Row, other: Row, margin: float, what=''
) -> verdicts.Claim:
  """The claim that a row is behind another by a margin at most, by seeds."""
  ours, theirs = found[row].values, found[other].values
  if task.is_loss:
    behind, unit = 100 * (ours / theirs - 1), '%'
  else:
    behind, unit = theirs - ours, 'points'
  text = f'{_title(row)}, behind {_title(other)}{what}, {unit}'
  return verdicts.of_seeds(text, behind, '<=', margin)


def _share(task: Task, row: Row, one: Record) -> float:
  """All bytes of a worker, of those of dense updates at every step."""
  return sum(_bytes(task, row, one)) / (8 * task.dimension * task.steps)


def _bytes(task: Task, row: Row, one: Record) -> tuple[float, float]:
  """Bytes of a worker in a run, up and down.

  Where workers may gather, they receive what a server sends, or the payloads of
  the others if these are fewer bytes.
  """
  gathered = (task.workers - 1) * one.up if METHODS[row[0]].gathers else np.inf
  return one.up, min(one.down, gathered)


def _table(task: Task, records: Records, costs) -> study.Table:
  """A row a method and size, the best first."""
  per_step = lambda value: f'{value / task.steps:,.0f}'
  tuned = lambda one: ', '.join(f'{k} {v:g}' for k, v in one.tuned.items())
  columns = {
    'method': lambda row, _: row[0],
    'size': lambda row, _: label(row),
    'bytes up a step': lambda row, x: per_step(_bytes(task, row, x)[0]),
    'down': lambda row, x: per_step(_bytes(task, row, x)[1]),
    'times fewer': lambda row, x: _times(1 / _share(task, row, x)),
    'ms a step': lambda row, _: f'{1e3 * costs[row][0]:.3g}',
    'own state, d': lambda row, _: f'{costs[row][1]:.2g}',
    'tuned': lambda _, one: tuned(one),
    _METRICS[task.metric]: comparison.shown(task.decimals, lambda x: x.values),
    '95 % interval': comparison.interval(task.decimals, lambda x: x.values),
  }
  caption = (
    f'{task.title}, {_rhythm(task, records)}: d = {task.dimension:,}, '
    f'{task.workers} workers, '
    f'{task.workers * task.batch_size * task.steps:,} samples seen; bytes of '
    'one worker; ms of its step in the simulation, which includes the round; '
    'numbers of its own that it keeps between rounds, beside what all workers '
    'compute alike; means over seeds ± standard errors.'
  )
  ordered = {row: records[row] for row in _ranked(task, records, _KINDS)}
  return comparison.table(caption, ordered, columns)


def _rhythm(task: Task, records: Records) -> str:
  """How often the methods of these rows send something."""
  local = any(METHODS[name].local for name, _ in records)
  return f'{task.local_steps} local steps a round' if local else 'every step'


def _by_bytes(task: Task, records: Records, best: float) -> figures.Panel:
  """A curve a method over its sizes, and the best dense method as a line."""
  curves: dict[str, list[Any]] = {}
  for row in sorted(records, key=lambda row: -row[1]):
    one = records[row]
    megabytes = sum(_bytes(task, row, one)) / 1e6
    mean, low, high = map(float, metrics.interval(one.values))
    cell = workspace.shown(one.values, digits=task.decimals)
    curves.setdefault(row[0], []).append((megabytes, mean, low, high, cell))
  lines = []
  for name, points in curves.items():
    x, y, low, high, cells = map(list, zip(*sorted(points), strict=True))
    lines.append(figures.Line('', x, y, family=name))
    ends = figures.Line(name, x, y, low, high, name, points=True)
    lines.append(ends._replace(cell=cells[-1]))
  return figures.Panel(
    'bytes of a worker, up and down (MB)', _METRICS[task.metric], lines,
    _rhythm(task, records), x_scale='log', y_mark=float(best),
  )  # fmt: skip


def _drawn(found: Records) -> Iterator[Row]:
  """The rows whose curves are drawn: of a method the size near d / 100."""
  for name in _DRAWN:
    sizes = [row for row in found if row[0] == name]
    yield from sorted(sizes, key=lambda row: abs(row[1] - _HUNDREDTH))[:1]


def _by_time(task: Task, found: Records, costs, link: int) -> figures.Panel:
  """The metric against seconds of compute and of a link of so many Mbit/s."""
  lines = []
  for row in _drawn(found):
    one, (step, _) = found[row], costs[row]
    sent = sum(_bytes(task, row, one)) / one.rounds / (link * _MBIT)
    a_round = sent + step * task.steps / one.rounds
    at = [a_round * x for x in one.at]
    if all(len(curve) == len(at) for curve in one.curves):  # none diverged
      xs, look = [at] * len(one.curves), {'family': row[0]}
      lines.append(plots.mean_line(_title(row), xs, one.curves, **look))
  return figures.Panel(
    'seconds', _METRICS[task.metric], lines, f'{link} Mbit/s', x_scale='log'
  )


def label(row: Row) -> str:
  """Returns the name of the size of a row.

  >>> label(('SAFL', 0.01)), label(('AdamW', 1.0)), label(('PowerSGD', 2))
  ('d / 100', 'd', 'rank 2')
  """
  name, share = row
  if name == methods.POWER_SGD:
    return f'rank {share:g}'
  return 'd' if share == 1 else f'd / {round(1 / share, 1):,g}'


def _title(row: Row) -> str:
  dense = row[1] == 1 and row[0] != methods.POWER_SGD
  return row[0] if dense else f'{row[0]}, {label(row)}'


def _times(fewer: float) -> str:
  return f'{fewer:,.0f}' if fewer >= 100 else f'{fewer:.3g}'


_DENSE = ('ceiling', 'dense ours')
_KINDS = (*_DENSE, 'ours', 'rival')
_OURS: tuple[Row, ...] = (
  (methods.OURS, _HUNDREDTH), (methods.MULOCO_BITS, methods.TWO_BITS),
  (methods.DILOCO_BITS, _HUNDREDTH),
)  # fmt: skip
_METRICS = {
  'test_loss': 'test loss, nats', 'test_accuracy': 'test accuracy, %',
}  # fmt: skip
_RIVAL = f', the best rival of at most {100 * _FEW:g} % of all bytes'
_DRAWN = (
  methods.ADAMW, methods.MUON, methods.OURS, methods.SAFL, methods.POWER_SGD,
  methods.DEMO, methods.DILOCO, methods.DILOCO_BITS, methods.MULOCO_BITS,
  methods.SPARSE_LOCO,
)  # fmt: skip
_BY_BYTES = (
  'The metric at the end against the bytes of a worker, a curve a method over '
  'its sizes, mean over seeds with intervals of 95 %. The line is the best '
  'dense method.'
)
_BY_TIME = (
  'The metric over a run against seconds: those of a worker in the simulation '
  'on one CPU core, and its bytes over the link; means over seeds with '
  'intervals of 95 %.'
)
_BYTES = (
  'What a worker of DeMo, top-k, EDEN or SparseLoCo receives is counted as the '
  'payloads of the others, or as what a server sends where that is less. '
  'PowerSGD counts its dense parts. Muon is that of optax: '
  'arrays of other than two axes, like kernels of convolutions, have Adam at '
  'the same rate.'
)


def _protocol(task: Task) -> str:
  seed, other = runs.TUNED_ON
  return (
    f'The mark is {task.mark:g} ({task.source}). All methods see equally many '
    f'samples. Each has {runs.TRIALS} trials at random rates, half of them '
    'with either value of another hyperparameter, and four trials around the '
    f'best of these. A trial is a run of {100 / runs.PART:g} % of the steps, '
    f'with its whole schedule, on seed {seed}. The {runs.FINALISTS} best '
    f'settings run with all steps on seed {other}. That with the least loss on '
    f'the {100 * runs.HELD_OUT:g} % of the training data that these runs hold '
    f'out runs on seeds {task.seeds[0]} to {task.seeds[-1]}. Ranges, trials '
    'and tuned values are in the file of the result. Rates rise over 5 % of a '
    'run and fall along half a cosine to 5 %. The best dense method is that '
    'with the best mean over the reported seeds. Our methods were developed '
    'on the digits and the characters.'
  )
