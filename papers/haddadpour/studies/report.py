"""Numbers, tables and figures of the cells of Haddadpour et al."""

from collections.abc import Callable, Iterable
import itertools
from typing import Any

from fl_sketch.runs import figures
import numpy as np

from ...common import comparison, study, summaries, workspace
from ...common.comparison import Comparison, Entry
from . import runs as runs_lib
from .runs import Table

_CAPTION = (
  'Of one client in one round, second uplinks counted; means over seeds, of '
  'the last evaluations. Rates of clients, server; one of the server alone.'
)
_METRICS = (
  ('train_loss', 'training loss', 1),
  ('test_accuracy', 'test accuracy, %', 100),
)
Values = dict[str, np.ndarray]  # of every seed, by what is compared


def lead(
  entries: Comparison,
  ours: Iterable[str],
  theirs: Iterable[str],
  taus: Iterable[int],
  tables: Iterable[Table],
  of: Callable[[Entry], Any] = runs_lib.accuracy,
) -> Values:
  """A number of our methods less that of theirs, in panels that have both."""
  found = {}
  for a, b, tau, table in itertools.product(ours, theirs, taus, tables):
    one, other = (entries.get(runs_lib.cell(x, tau, table)) for x in (a, b))
    if one is not None and other is not None:
      found[f'{a} over {b}, tau = {tau}, {table}'] = of(one) - of(other)
  return found


def loss(entry: Entry) -> np.ndarray:
  """Training loss of every seed; that of guessing if it diverged."""
  return np.nan_to_num(entry.final('train_loss', last=3), nan=np.log(10))


def accuracy_at(entry: Entry, round: float) -> np.ndarray:
  """Test accuracy of every seed at a round, between evaluations by a line."""
  at = lambda run: 0.1 if run.diverged else np.interp(round, *run.curve())
  return 100 * np.array([at(run) for run in entry.runs])


def rounds_to_90(run: workspace.PointRun) -> float:
  """The round at which a line between evaluations meets 90 %; NaN if none."""
  xs, ys = run.curve()
  above = ys >= 0.9
  at = int(above.argmax()) if above.any() else 0
  if not at:
    return float(xs[0]) if above.any() else float('nan')
  return float(np.interp(0.9, ys[at - 1 : at + 1], xs[at - 1 : at + 1]))


def falls(entry: Entry) -> np.ndarray:
  """By how many points the accuracy falls between evaluations, in all."""
  down = lambda run: -np.minimum(np.diff(run.curve()[1]), 0).sum()
  return 100 * np.array([down(run) for run in entry.runs])


def at_equal_bytes(dense: Entry, ours: Entry) -> np.ndarray:
  """Our accuracy less that of `dense` after the same bytes, up and down.

  Before its first evaluation `dense` is given what it has there.
  """
  round = dense.rounds * ours.total() / dense.total()
  return runs_lib.accuracy(ours) - accuracy_at(dense, round)


def seeds(entries: Comparison) -> dict[str, Any]:
  """The numbers of every seed, for the JSON."""
  runs = {cell: entry.runs for cell, entry in entries.items()}
  more = lambda run: {
    'diverged': run.diverged, 'rounds_to_90': rounds_to_90(run),
  }  # fmt: skip
  return summaries.seeds(runs, runs_lib.LAST, losses=3, more=more)


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
    'training loss': comparison.shown(3, loss),
    'test accuracy, %': _accuracy,
  }
  return comparison.table(_CAPTION, entries, columns)


def _accuracy(_, entry) -> str:
  lost = sum(run.diverged for run in entry.runs)
  text = workspace.shown(runs_lib.accuracy(entry))
  return f'{text}, {lost} diverged' if lost else text


def by_round(entries: Comparison) -> list[figures.Panel]:
  """Training loss and test accuracy against rounds: a pair a tau and table."""
  sizes = sorted({cell.table for cell in entries if cell.table})
  taus = sorted({cell.steps for cell in entries})
  panels = []
  for size, (metric, label, scale) in itertools.product(sizes, _METRICS):
    for tau in taus:
      lines = [
        summaries.curve(cell.name, e.runs, metric, scale=scale)
        for cell, e in entries.items()
        if cell.steps == tau and cell.table in (None, size)
      ]
      title = f'tau = {tau}, {size}'
      panels.append(figures.Panel('round', label, lines, title))
  return panels
