"""Runs behind Figures 1 and 2 of Haddadpour et al.: cells, rates, seeds.

Section 6: LeNet-5 on MNIST, 50 devices, half of them a round, batches of 32.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...common import comparison
from ...common.comparison import Entry
from ...common.workspace import Fields, Workspace

Table = tuple[int, int]  # rows t, columns k

FEDSGD, SKETCHED = 'FedSGD', 'SketchedSGD'
# Equal shares, and one or two classes a device.
PRIVIX = {'alike': 'FS-PRIVIX', 'unlike': 'FSGATE-PRIVIX'}
HEAPRIX = {'alike': 'FS-HEAPRIX', 'unlike': 'FSGATE-HEAPRIX'}
LITERAL = 'FS-HEAPRIX, literal'
SMALL_GAIN = 'FSGATE-PRIVIX, small gain'
LAST = 3  # evaluations whose mean is an accuracy
SEEDS = 6  # reported ones, from 1; seed 0 is that of the tuning
_GRID = {'client_lr': (0.01, 0.03, 0.1, 0.3)}
_LONE = {'server_lr': (0.03, 0.1, 0.3, 1.0)}  # of the method of one gradient


class Cell(NamedTuple):
  """A method in one panel."""

  name: str  # of the method
  steps: int  # tau, local steps
  table: Table | None = None  # of the sketch; None sends the model

  def __str__(self) -> str:
    table = f', ({self.table[0]}, {self.table[1]})' if self.table else ''
    return f'{self.name}, tau = {self.steps}{table}'


def tables(ws: Workspace) -> tuple[Table, Table]:
  """Table sizes of the paper, 75 and 12 times smaller than its model."""
  return ws.pick(((4, 10), (8, 20)), ((20, 40), (50, 100)))


def panels(ws: Workspace) -> list[tuple[int, Table]]:
  """(tau, table) of the panels; one of them at quick scale."""
  if ws.scale == 'quick':
    return [(5, tables(ws)[1])]
  return [(tau, table) for table in tables(ws) for tau in (1, 2, 5)]


def matched(ws: Workspace) -> Table:
  """The table with which HEAPRIX sends what PRIVIX sends with the large one.

  Two tables of t rows and k values in place of one table: 2 t k' + k' <= t k.
  """
  rows, cols = tables(ws)[1]
  return rows, rows * cols // (2 * rows + 1)


def cells(ws: Workspace, devices: str) -> list[Cell]:
  """Lists every method in every panel, for 'alike' or 'unlike' devices."""
  every = []
  for steps, table in panels(ws):
    every.append(Cell(FEDSGD, steps))
    every += [Cell(who[devices], steps, table) for who in (PRIVIX, HEAPRIX)]
    if steps == 1:
      every.append(Cell(SKETCHED, 1, table))
    if steps == 5 and devices == 'alike' and ws.scale != 'quick':
      every.append(Cell(LITERAL, 5, table))
  return list(dict.fromkeys(every))


def entry(
  ws: Workspace,
  devices: str,
  cell: Cell,
  rates: Mapping[str, float] | None = None,
  label: str = '',
) -> Entry:
  """The runs of a cell over seeds, at the best rate over all rounds of one.

  The rate is of the clients, or of the server where clients send one gradient.
  Runs at other `rates` than the cell's own have a `label`.
  """
  grid = _LONE if cell.name == SKETCHED else _GRID
  untuned = {rate: values[-2] for rate, values in grid.items()}
  name = cell.name.lower().replace(', ', '-').replace(' ', '-')
  table = '-{}x{}'.format(*cell.table) if cell.table else ''
  return comparison.run(
    ws,
    f'haddadpour/{devices}/{{}}/{name}{table}-tau{cell.steps}{label}',
    _fields(ws, devices, cell),
    grid,
    ws.seeds(3, 1 + SEEDS)[1:],
    score=lambda run: -1.0 if run.diverged else run.final(last=2),
    rates=rates or ws.pick(untuned, None),
  )


def accuracy(entry: Entry) -> np.ndarray:
  """Test accuracy of every seed in percent; that of guessing if it diverged."""
  return 100 * np.nan_to_num(entry.final(last=LAST), nan=0.1)


def uplink(entry: Entry) -> float:
  """Bytes of one client in one round: of the first, which no seed lacks."""
  return float(entry.runs[0].curve('uplink_bytes')[1][0])


def _fields(ws, devices, cell) -> Fields:
  mnist = {
    'dataset': 'mnist', 'model': 'lenet5', 'population': 50, 'batch_size': 32,
  }  # fmt: skip
  base: Fields = ws.pick(
    {
      'dataset': 'digits', 'model_options': {'widths': (16,)},
      'population': 10, 'batch_size': 8, 'rounds': 6, 'eval_every': 2,
    },
    mnist | {'test_slice': '0:2000', 'rounds': 60, 'eval_every': 5},
    mnist | {'rounds': 400, 'eval_every': 10},
  )  # fmt: skip
  fields = base | {'cohort': base['population'] // 2}
  if devices == 'unlike':
    # FedSKETCHGATE asks for everybody; as many updates a round as of the alike.
    everybody = ws.pick(5, 25, 50)
    fields |= {'population': everybody, 'cohort': everybody}
    fields |= {'partition': 'classes_per_client', 'classes': 2}
  fields |= {'checkpoint_every': base['rounds'], 'local_steps': cell.steps}
  return fields | _method(cell)


def _method(cell) -> Fields:
  if cell.table is None:
    return {'algorithm': 'fedavg'}
  rows, cols = cell.table
  sketch = {'kind': 'count_sketch', 'rows': rows, 'cols': cols}
  own: dict[str, tuple[str, Fields]] = {
    SKETCHED: ('sketched_sgd', {'k': cols}),
    'FS-PRIVIX': ('fedsketch_privix', {}),
    'FS-HEAPRIX': ('fedsketch_heaprix', {'k': cols}),
    LITERAL: ('fedsketch_heaprix', {'k': cols, 'exact': False}),
    'FSGATE-PRIVIX': ('fedsketchgate', {}),
    'FSGATE-HEAPRIX': ('fedsketchgate', {'k': cols}),
    # 1 / (1 + alpha) of (20, 40), where the default is that of the table.
    SMALL_GAIN: ('fedsketchgate', {'control_gain': 1 / 78}),
  }
  algorithm, options = own[cell.name]
  return {'algorithm': algorithm, 'options': options, 'sketch': sketch}
