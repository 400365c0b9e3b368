"""Reports the runs of Haddadpour et al.'s cells: numbers, tables, figures."""

import itertools
from typing import Any

from fl_sketch.reporting import figures
import numpy as np

from ...common import study, summaries, workspace
from ...common.workspace import Workspace
from . import runs as runs_lib
from .runs import Cell, Runs

Race = dict[Cell, Runs]
_FAMILIES = {
  runs_lib.FEDSGD: 'dense', runs_lib.SKETCHED: 'heavy hitters',
  **dict.fromkeys(runs_lib.PRIVIX.values(), 'privix'),
  **dict.fromkeys(runs_lib.HEAPRIX.values(), 'heaprix'),
}  # fmt: skip


def gap(race: Race, some: Cell, other: Cell) -> dict[str, np.ndarray]:
  """Test accuracy of `some` above that of `other`, in points, by seed.

  Returns:
    One entry by the name of the cell, the one with a table, or none if one of
    the two was not run.
  """
  if some not in race or other not in race:
    return {}
  apart = [runs_lib.accuracy(race[cell]) for cell in (some, other)]
  return {str(some if some.table else other): apart[0] - apart[1]}


def seeds(race: Race) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  return summaries.seeds(
    race,
    lambda run: {
      'diverged': run.diverged,
      'test_accuracy': run.final(last=runs_lib.LAST),
      'train_loss': run.final('train_loss', last=10),
      'rounds_to_90': run.reaches(0.9, x='round'),
      'total_uplink_bytes': run.row.get('total_uplink_bytes'),
      'total_downlink_bytes': run.row.get('total_downlink_bytes'),
    },
  )


def table(ws: Workspace, devices: str, race: Race) -> study.Table:
  """Tabulates a row a cell: bytes, compression, rates, loss, accuracy."""
  dense = max(runs_lib.uplink(runs) for runs in race.values())
  rows = []
  for cell, runs in race.items():
    sent = runs_lib.uplink(runs)
    lost = sum(run.diverged for run in runs)
    loss = [r.final('train_loss', last=10) for r in runs if not r.diverged]
    rates = runs_lib.rates(ws, devices, cell).values()
    accuracy = workspace.shown(runs_lib.accuracy(runs))
    rows.append([
      cell.name, str(cell.steps),
      '{}, {}'.format(*cell.table) if cell.table else '',
      f'{sent:,.0f}', f'{dense / sent:.1f}',
      ', '.join(f'{v:g}' for v in rates),
      workspace.shown(loss, digits=3) if loss else '',
      f'{accuracy}, {lost} diverged' if lost else accuracy,
    ])  # fmt: skip
  head = (
    'method', 'tau', 't, k', 'bytes up', 'compression', 'rates',
    'training loss', 'test accuracy, %',
  )  # fmt: skip
  caption = (
    'Of one client in one round, second uplinks counted; means over seeds, of '
    'the last rounds. Rates of clients, server; one of the server alone.'
  )
  return study.Table(caption, head, rows)


def rounds_to_90(runs: Runs) -> np.ndarray:
  """Counts rounds of each seed to 90 %; the last round if it is not reached."""
  return np.array(
    [min(run.reaches(0.9, x='round'), run.curve()[0].max()) for run in runs]
  )


def by_round(race: Race) -> list[figures.Panel]:
  """Training loss and test accuracy against rounds: a pair a tau and table."""
  sizes, taus = _sizes_and_taus(race)
  panels = []
  for size, (metric, label, scale) in itertools.product(sizes, _METRICS):
    for tau in taus:
      lines = [
        summaries.curve(cell.name, runs, metric, scale=scale, **_look(cell))
        for cell, runs in race.items()
        if cell.steps == tau and cell.table in (None, size)
      ]
      title = f'tau = {tau}, {size}'
      panels.append(figures.Panel('round', label, lines, title))
  return panels


_METRICS = (
  ('train_loss', 'training loss', 1),
  ('test_accuracy', 'test accuracy, %', 100),
)


def by_bytes(race: Race) -> list[figures.Panel]:
  """Test accuracy against the bytes of all clients, a panel a tau."""
  sizes, taus = _sizes_and_taus(race)
  panels = []
  for tau in taus:
    lines = []
    for cell, runs in race.items():
      if cell.steps == tau:
        variant = int(cell.table == sizes[0])
        look: dict[str, Any] = _look(cell) | {'variant': variant}
        label = f'{cell.name} {cell.table or ""}'.strip()
        finals = runs_lib.accuracy(runs)
        lines += summaries.against_bytes(label, runs, finals, **look)
    labels = figures.MEGABYTES, 'test accuracy, %'
    panels.append(figures.Panel(*labels, lines, f'tau = {tau}', x_scale='log'))
  return panels


def _sizes_and_taus(race: Race) -> tuple[list[runs_lib.Table], list[int]]:
  sizes = sorted({cell.table for cell in race if cell.table})
  return sizes, sorted({cell.steps for cell in race})


def _look(cell: Cell) -> dict[str, Any]:
  return {'family': _FAMILIES.get(cell.name, cell.name)}
