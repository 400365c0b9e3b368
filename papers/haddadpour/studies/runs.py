"""Runs behind Figures 1 and 2 of Haddadpour et al.: cells, rates, seeds.

Section 7: LeNet-5 on MNIST, 50 devices, half of them a round, batches of 32.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...common import comparison
from ...common.comparison import Comparison, Entry
from ...common.workspace import Fields, PointRun, Workspace

Table = tuple[int, int]  # rows t, columns k
Registered = Mapping[str, Any]

FEDSGD, SKETCHED = 'FedSGD', 'SketchedSGD'
IID = 'FedSGD, IID clients'  # beside clients of one or two classes
LITERAL = 'FS-HEAPRIX, literal'
PRINTED = 'FSGATE-PRIVIX, printed'
LAST = 2  # evaluations whose mean is an accuracy
# Algorithm and options of a method; k is the number of columns.
_SENT: dict[str, tuple[str, Fields]] = {
  SKETCHED: ('sketched_sgd', {'k': 0}),
  'FS-PRIVIX': ('fedsketch_privix', {}),
  'FS-HEAPRIX': ('fedsketch_heaprix', {'k': 0}),
  LITERAL: ('fedsketch_heaprix', {'k': 0, 'exact': False}),
  'FSGATE-PRIVIX': ('fedsketchgate', {}),
  'FSGATE-HEAPRIX': ('fedsketchgate', {'k': 0}),
  PRINTED: ('fedsketchgate', {'printed': True}),
}
_MNIST = {
  'dataset': 'mnist', 'model': 'lenet5', 'population': 50, 'cohort': 25,
  'batch_size': 32,
}  # fmt: skip
_DIGITS = {
  'dataset': 'digits', 'model_options': {'widths': (16,)}, 'population': 10,
  'cohort': 5, 'batch_size': 8,
}  # fmt: skip


class Cell(NamedTuple):
  """A method in one panel."""

  name: str  # of the method
  steps: int  # tau, local steps
  table: Table | None = None  # of the sketch; None sends the model

  def __str__(self) -> str:
    table = f', ({self.table[0]}, {self.table[1]})' if self.table else ''
    return f'{self.name}, tau = {self.steps}{table}'


def cell(name: str, steps: int, table: Table) -> Cell:
  """The cell of a method in the panel of these steps and this table."""
  return Cell(name, steps, table if name in _SENT else None)


def play(ws: Workspace, r: Registered) -> Comparison:
  """Tune and run all registered cells, by `Cell`."""
  every = [
    cell(name, steps, table)
    for table in map(tuple, r['tables'])
    for name, taus in r['cells'].items()
    for steps in taus
  ]
  return {one: _entry(ws, r, one) for one in dict.fromkeys(every)}


def accuracy(entry: Entry) -> np.ndarray:
  """Test accuracy of every seed in percent; that of guessing if it diverged."""
  return 100 * np.nan_to_num(entry.final(last=LAST), nan=0.1)


def uplink(entry: Entry) -> float:
  """Bytes of one client in one round: of the first, which no seed lacks."""
  return float(entry.runs[0].curve('uplink_bytes')[1][0])


def _entry(ws: Workspace, r: Registered, one: Cell) -> Entry:
  """The runs of a cell over seeds, at its best rates.

  Rates are tuned one after the other, the second at the best first one, by the
  accuracy on what clients hold out, on a seed apart and in fewer rounds.
  """
  name = comparison.slug(str(one)).replace('__', '_')
  folder = f'haddadpour/{r["figure"]}/{{}}/{name}'
  fields = _fields(ws, r, one)
  trial = fields | _length(r['tuning_rounds'][str(one.steps)], 1)
  trial |= {
    'seed': r['tuning_seed'], 'client_holdout': r['client_holdout'],
    'test_slice': '0:100',
  }  # fmt: skip
  rates: dict[str, float] = {}
  for rate, grid in _grids(r, one).items():
    where = f'{folder.format("tune")}_{rate}'
    rates |= ws.tune(where, trial | rates, {rate: grid}, _held_out)
  swept = {'sweep': {'seed': r['seeds']}}
  runs = ws.sweep(folder.format('race'), fields | rates | swept)
  return Entry(runs, rates, fields['rounds'])


def _held_out(run: PointRun) -> float:
  return float(np.nan_to_num(run.final('client_accuracy_pooled'), nan=-1.0))


def _grids(r: Registered, one: Cell) -> dict[str, list[float]]:
  """Rates and their values; at one local step only their product matters."""
  if one.name == SKETCHED:
    return {'server_lr': r['sketched_lr']}
  both = {'client_lr': r['client_lr'], 'server_lr': r['server_lr']}
  return both if one.steps > 1 else {'client_lr': r['client_lr']}


def _length(rounds: int, evaluations: int) -> Fields:
  every = max(1, rounds // evaluations)
  return {
    'rounds': rounds, 'eval_every': every, 'log_every': max(1, every // 2),
    'checkpoint_every': rounds,
  }  # fmt: skip


def _fields(ws: Workspace, r: Registered, one: Cell) -> Fields:
  steps = str(one.steps)
  fields: Fields = ws.pick(_DIGITS, _MNIST) | {'local_steps': one.steps}
  fields |= _length(r['rounds'][steps], r['evaluations'][steps])
  if one.name != IID:
    fields |= r['partition']
  if one.table is None:
    return fields | {'algorithm': 'fedavg', 'server_lr': 1.0}
  algorithm, options = _SENT[one.name]
  rows, cols = one.table
  if 'k' in options:
    options = options | {'k': cols}
  sketch = {'kind': 'count_sketch', 'rows': rows, 'cols': cols}
  own = {'algorithm': algorithm, 'options': options, 'sketch': sketch}
  lone = {} if one.name == SKETCHED else {'server_lr': 1.0}
  return fields | own | lone
