"""Reports the runs of Haddadpour et al.'s cells: numbers, tables, figures."""

import itertools
from typing import Any

from fl_sketch.runs import figures
import numpy as np

from ...common import comparison, study, summaries, workspace
from ...common.comparison import Comparison, Entry
from . import runs as runs_lib
from .runs import Cell

_CAPTION = (
  'Of one client in one round, second uplinks counted; means over seeds, of '
  'the last rounds. Rates of clients, server; one of the server alone.'
)
_METRICS = (
  ('train_loss', 'training loss', 1),
  ('test_accuracy', 'test accuracy, %', 100),
)


def gap(entries: Comparison, some: Cell, other: Cell) -> dict[str, np.ndarray]:
  """Test accuracy of `some` above that of `other`, in points, by seed.

  By the name of the cell that has a table; none if one of the two was not run.
  """
  if some not in entries or other not in entries:
    return {}
  ours, theirs = (runs_lib.accuracy(entries[cell]) for cell in (some, other))
  return {str(some if some.table else other): ours - theirs}


def seeds(entries: Comparison) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  runs = {cell: entry.runs for cell, entry in entries.items()}
  more = lambda run: {
    'diverged': run.diverged, 'rounds_to_90': run.reaches(0.9, x='round'),
  }  # fmt: skip
  return summaries.seeds(runs, runs_lib.LAST, losses=10, more=more)


def table(entries: Comparison) -> study.Table:
  """Tabulates a row a cell: bytes, compression, rates, loss, accuracy."""
  dense = max(map(runs_lib.uplink, entries.values()))
  columns = {
    'method': lambda cell, _: cell.name,
    'tau': lambda cell, _: cell.steps,
    't, k': lambda cell, _: '{}, {}'.format(*cell.table) if cell.table else '',
    'bytes up': lambda _, entry: f'{runs_lib.uplink(entry):,.0f}',
    'compression': lambda _, e: f'{dense / runs_lib.uplink(e):.1f}',
    'rates': comparison.rates,
    'training loss': _loss,
    'test accuracy, %': _accuracy,
  }
  return comparison.table(_CAPTION, entries, columns)


def _loss(_, entry) -> str:
  loss = [r.final('train_loss', last=10) for r in entry.runs if not r.diverged]
  return workspace.shown(loss, digits=3) if loss else ''


def _accuracy(_, entry) -> str:
  lost = sum(run.diverged for run in entry.runs)
  text = workspace.shown(runs_lib.accuracy(entry))
  return f'{text}, {lost} diverged' if lost else text


def rounds_to_90(entry: Entry) -> np.ndarray:
  """Counts rounds of each seed to 90 %; the last round if it is not reached."""
  least = lambda run: min(run.reaches(0.9, x='round'), run.curve()[0].max())
  return np.array([least(run) for run in entry.runs])


def by_round(entries: Comparison) -> list[figures.Panel]:
  """Training loss and test accuracy against rounds: a pair a tau and table."""
  sizes, taus = _sizes_and_taus(entries)
  panels = []
  for size, (metric, label, scale) in itertools.product(sizes, _METRICS):
    for tau in taus:
      lines = [
        summaries.curve(cell.name, e.runs, metric, scale=scale, **_look(cell))
        for cell, e in entries.items()
        if cell.steps == tau and cell.table in (None, size)
      ]
      title = f'tau = {tau}, {size}'
      panels.append(figures.Panel('round', label, lines, title))
  return panels


def by_bytes(entries: Comparison) -> list[figures.Panel]:
  """Test accuracy against the bytes of all clients, a panel a tau."""
  sizes, taus = _sizes_and_taus(entries)
  look = lambda cell: {
    **_look(cell), 'label': f'{cell.name} {cell.table or ""}'.strip(),
    'variant': int(cell.table == sizes[0]),
  }  # fmt: skip
  panels = []
  for tau in taus:
    own = {cell: e for cell, e in entries.items() if cell.steps == tau}
    drawn = own, look, runs_lib.accuracy
    panels.append(comparison.by_bytes(*drawn, title=f'tau = {tau}'))
  return panels


def _sizes_and_taus(entries: Comparison) -> tuple[list, list[int]]:
  sizes = sorted({cell.table for cell in entries if cell.table})
  return sizes, sorted({cell.steps for cell in entries})


def _look(cell: Cell) -> dict[str, Any]:
  return {'family': cell.name}
