"""What runs of Haddadpour et al.'s cells show: claims, tables, pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from fl_sketch import reporting
from fl_sketch.reproduce import lab as lab_lib, study
from fl_sketch.reproduce.haddadpour import runs as runs_lib
from fl_sketch.reproduce.haddadpour.runs import Cell, Runs
from matplotlib import figure
import numpy as np

Found = dict[Cell, Runs]
_METHODS = (
  runs_lib.FEDSGD, runs_lib.SKETCHED, 'FS-PRIVIX', 'FS-HEAPRIX',
  'FSGATE-PRIVIX', 'FSGATE-HEAPRIX', runs_lib.LITERAL,
)  # fmt: skip
_NOT_HERE = 'This scale does not run the cells that it compares.'


def gap(found: Found, some: Cell, other: Cell) -> dict[str, np.ndarray]:
  """Test accuracy of `some` above that of `other`, in points, by seed.

  Returns:
    One entry by the name of the cell, the one with a table, or none if one of
    the two was not run.
  """
  if some not in found or other not in found:
    return {}
  apart = [runs_lib.accuracy(found[cell]) for cell in (some, other)]
  return {str(some if some.table else other): apart[0] - apart[1]}


def claim(
  text: str,
  values: Mapping[str, np.ndarray],
  relation: str,
  bound: float,
  remark: str = '',
) -> study.Claim:
  """A claim on all of these, by the one that is worst for it.

  >>> pair = {'a': np.array([1.0, 3.0]), 'b': np.array([0.0, 0.5])}
  >>> claim('points', pair, '>=', 0)[:2]
  ('points; the worst: b', 0.25)

  Args:
    text: with the unit of the numbers.
    values: numbers by seed; of nothing, it cannot be tested.
    relation: '>=' or '<='.
    bound: what each mean is compared with.
    remark: if it does not hold.
  """
  if not values:
    return study.Claim(text, None, relation, bound, remark=_NOT_HERE)
  means = {name: lab_lib.mean_and_error(x) for name, x in values.items()}
  mean, error = lab_lib.worst(means.values(), relation)
  if len(means) > 1:
    name = next(n for n, found in means.items() if found == (mean, error))
    text = f'{text}; the worst: {name}'
  return study.Claim(text, mean, relation, bound, error, remark=remark)


def seeds(found: Found) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  return {
    str(cell): [
      {
        **run.values,
        'diverged': run.diverged,
        'test_accuracy': run.final(last=runs_lib.LAST),
        'train_loss': run.final('train_loss', last=10),
        'rounds_to_90': run.reaches(0.9, x='round'),
        'total_uplink_bytes': run.row.get('total_uplink_bytes'),
      }
      for run in runs
    ]
    for cell, runs in found.items()
  }


def table(lab: lab_lib.Lab, devices: str, found: Found) -> study.Table:
  """A row a cell: bytes, how much less they are, rates, loss, accuracy."""
  dense = max(runs_lib.uplink(runs) for runs in found.values())
  rows = []
  for cell, runs in found.items():
    sent = runs_lib.uplink(runs)
    lost = sum(run.diverged for run in runs)
    loss = [r.final('train_loss', last=10) for r in runs if not r.diverged]
    rates = runs_lib.rates(lab, devices, cell).values()
    rows.append(
      [
        cell.name,
        str(cell.steps),
        '{}, {}'.format(*cell.table) if cell.table else '',
        f'{sent:,.0f}',
        f'{dense / sent:.1f}',
        ', '.join(f'{v:g}' for v in rates),
        lab_lib.shown(loss, digits=3) if loss else '',
        lab_lib.shown(runs_lib.accuracy(runs))
        + (f', {lost} diverged' if lost else ''),
      ]
    )
  head = (
    'method', 'tau', 't, k', 'bytes up', 'compression', 'rates',
    'training loss', 'test accuracy, %',
  )  # fmt: skip
  caption = (
    'Of one client in one round, second uplinks counted; means over seeds, of '
    'the last rounds. Rates of clients, server; one of the server alone.'
  )
  return study.Table(caption, head, rows)


def draw(found: Found) -> figure.Figure:
  """Training loss and test accuracy against rounds: a pair a tau and table."""
  sizes = sorted({cell.table for cell in found if cell.table})
  taus = sorted({cell.steps for cell in found})
  height, width = 2 * len(sizes), len(taus)
  fig = figure.Figure(
    figsize=(2 + 3.4 * width, 2.6 * height), layout='constrained'
  )
  axes = fig.subplots(height, width, squeeze=False, sharex=True, sharey='row')
  for cell, runs in found.items():
    for size in [cell.table] if cell.table else sizes:
      row, column = 2 * sizes.index(size), taus.index(cell.steps)
      loss, accuracy = axes[row : row + 2, column]
      loss.set_title(f'tau = {cell.steps}, ({size[0]}, {size[1]})')
      _plot(loss, cell.name, *_curve(runs, 'train_loss'))
      x, y = _curve(runs, 'test_accuracy')
      _plot(accuracy, cell.name, x, 100 * y)
  for loss, accuracy in axes[:, 0].reshape(-1, 2):
    loss.set(ylabel='training loss', ylim=(0, 2.5))
    accuracy.set(ylabel='test accuracy, %', ylim=(0, 100))
  fig.supxlabel('round')
  _finish(fig, axes.ravel().tolist())
  return fig


def draw_bytes(found: Found) -> figure.Figure:
  """Test accuracy against the bytes of all clients, a panel a tau."""
  taus = sorted({cell.steps for cell in found})
  sizes = sorted({cell.table for cell in found if cell.table})
  fig = figure.Figure(figsize=(2 + 4.6 * len(taus), 4.2), layout='constrained')
  axes = fig.subplots(1, len(taus), squeeze=False, sharey='row')[0]
  for tau, ax in zip(taus, axes, strict=True):
    for cell, runs in found.items():
      if cell.steps == tau:
        x, y = _curve(runs, 'test_accuracy', 'total_uplink_bytes')
        size = f' ({cell.table[0]}, {cell.table[1]})' if cell.table else ''
        style = '--' if cell.table == sizes[0] and len(sizes) > 1 else '-'
        _plot(ax, cell.name, x / 1e6, 100 * y, size, linestyle=style)
    ax.set_title(f'tau = {tau}')
    ax.set_xscale('log')
    reporting.plain_ticks(ax.xaxis)
    ax.set_xlabel('uplink of all clients, MB')
  axes[0].set(ylabel='test accuracy, %', ylim=(0, 100))
  _finish(fig, axes)
  return fig


def _curve(runs: Runs, metric: str, x: str = 'round'):
  """The mean over seeds, as far as all of them went."""
  curves = [run.curve(metric, x) for run in runs]
  length = min(len(xs) for xs, _ in curves)
  cut = np.array([[xs[:length], ys[:length]] for xs, ys in curves])
  return cut.mean(0)


def _plot(ax, name, x, y, label='', **style):
  look = reporting.look(_METHODS.index(name)) | {'linestyle': '-'} | style
  ax.plot(x, y, label=name + label, **look)


def _finish(fig: figure.Figure, axes: Sequence[Any]):
  """One legend for all axes, a grid for each."""
  names = {}
  for ax in axes:
    ax.grid(color='0.9')
    lines, labels = ax.get_legend_handles_labels()
    names |= dict(zip(labels, lines, strict=True))
  fig.legend(
    names.values(), names, loc='outside right center', fontsize=8, frameon=False
  )
