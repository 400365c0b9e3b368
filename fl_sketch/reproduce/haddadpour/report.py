"""Reports the runs of Haddadpour et al.'s cells: numbers, tables, figures."""

from typing import Any

from fl_sketch import reporting
from fl_sketch.reproduce import lab as lab_lib, study, summaries
from fl_sketch.reproduce.haddadpour import runs as runs_lib
from fl_sketch.reproduce.haddadpour.runs import Cell, Runs
from matplotlib import figure
import numpy as np

Race = dict[Cell, Runs]
_METHODS = (
  runs_lib.FEDSGD, runs_lib.SKETCHED, 'FS-PRIVIX', 'FS-HEAPRIX',
  'FSGATE-PRIVIX', 'FSGATE-HEAPRIX', runs_lib.LITERAL,
)  # fmt: skip


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
    },
  )


def table(lab: lab_lib.Lab, devices: str, race: Race) -> study.Table:
  """Tabulates a row a cell: bytes, compression, rates, loss, accuracy."""
  dense = max(runs_lib.uplink(runs) for runs in race.values())
  rows = []
  for cell, runs in race.items():
    sent = runs_lib.uplink(runs)
    lost = sum(run.diverged for run in runs)
    loss = [r.final('train_loss', last=10) for r in runs if not r.diverged]
    rates = runs_lib.rates(lab, devices, cell).values()
    accuracy = lab_lib.shown(runs_lib.accuracy(runs))
    rows.append([
      cell.name, str(cell.steps),
      '{}, {}'.format(*cell.table) if cell.table else '',
      f'{sent:,.0f}', f'{dense / sent:.1f}',
      ', '.join(f'{v:g}' for v in rates),
      lab_lib.shown(loss, digits=3) if loss else '',
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


def draw(race: Race) -> figure.Figure:
  """Training loss and test accuracy against rounds: a pair a tau and table."""
  sizes, taus = _sizes_and_taus(race)
  titles = []
  for rows, cols in sizes:
    titles += [f'tau = {tau}, ({rows}, {cols})' for tau in taus]
    titles += [''] * len(taus)
  look = {'sharex': True, 'sharey': 'row'}
  size = 2 + 3.4 * len(taus), 5.2 * len(sizes)
  fig, axes = summaries.panels(titles, len(taus), size, **look)
  for cell, runs in race.items():
    for size in [cell.table] if cell.table else sizes:
      row, column = 2 * sizes.index(size), taus.index(cell.steps)
      loss, accuracy = axes[row : row + 2, column]
      x, y = summaries.mean_curve(runs, 'train_loss')
      loss.plot(x, y, label=cell.name, **_look(cell))
      x, y = summaries.mean_curve(runs, 'test_accuracy')
      accuracy.plot(x, 100 * y, label=cell.name, **_look(cell))
  for loss, accuracy in axes[:, 0].reshape(-1, 2):
    loss.set(ylabel='training loss', ylim=(0, 2.5))
    accuracy.set(ylabel='test accuracy, %', ylim=(0, 100))
  fig.supxlabel('round')
  _legend(fig)
  return fig


def draw_bytes(race: Race) -> figure.Figure:
  """Test accuracy against the bytes of all clients, a panel a tau."""
  sizes, taus = _sizes_and_taus(race)
  titles = [f'tau = {tau}' for tau in taus]
  size = 2 + 4.6 * len(taus), 4.2
  fig, (axes,) = summaries.panels(titles, len(taus), size, sharey='row')
  for cell, runs in race.items():
    table = f' ({cell.table[0]}, {cell.table[1]})' if cell.table else ''
    look = _look(cell)
    if cell.table == sizes[0] and len(sizes) > 1:
      look['linestyle'] = '--'
    ax = axes[taus.index(cell.steps)]
    summaries.plot_against_bytes(ax, runs, cell.name + table, **look)
  for ax in axes[1:]:
    ax.set(ylabel='')
  axes[0].set(ylim=(0, 100))
  _legend(fig)
  return fig


def _sizes_and_taus(race: Race) -> tuple[list[runs_lib.Table], list[int]]:
  sizes = sorted({cell.table for cell in race if cell.table})
  return sizes, sorted({cell.steps for cell in race})


def _look(cell: Cell) -> dict[str, Any]:
  return reporting.look(_METHODS.index(cell.name)) | {'linestyle': '-'}


def _legend(fig: figure.Figure) -> None:
  """One legend for all axes."""
  names = {}
  for ax in fig.axes:
    lines, labels = ax.get_legend_handles_labels()
    names |= dict(zip(labels, lines, strict=True))
  fig.legend(
    names.values(), names, loc='outside right center', fontsize=8, frameon=False
  )
