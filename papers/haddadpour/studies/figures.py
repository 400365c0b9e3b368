"""Figures 1 and 2 of Haddadpour et al., and what section 7 says of them."""

import itertools
from typing import Any

import numpy as np

from ...common import registration, study
from ...common.comparison import Comparison
from ...common.workspace import Workspace
from . import report, runs as runs_lib
from .runs import FEDSGD, SKETCHED

_RATES = (
  'FedSGD is, as in the paper, local SGD without compression. Rates are tuned '
  'on a seed apart, in half of the rounds, by the accuracy on a tenth of the '
  'data of every client, which these runs hold out: first that of the clients '
  'at a global rate of 1, then the global one. Each has three values, and '
  'further ones while the best is at an end. At one local step only their '
  'product matters; SketchedSGD has one rate. Rounds times local steps are the '
  'same in every panel, all test images are evaluated, and a run that diverged '
  'counts as guessing, 10 %.'
)
_BYTES = (
  'Compression is that of floats of LeNet-5, 61,706, where the paper has 75 '
  'and 12 times. HEAPRIX sends a second table, of independent hashes, and the '
  'exact values of the heavy coordinates, which the paper does not count; '
  '"literal" is the paper read to the letter, one table and no second uplink. '
  'SketchedSGD sends the exact values of 4 k candidates. PRIVIX takes the mean '
  'of the two middle rows: t is even, and the lower one is biased.'
)
_GATE = (
  'Images are sorted by their digit and cut into 50 parts: a device has one '
  'class, or two where a part has an end of a class. Absent devices keep their '
  'variates, which are read by the mean of the rows with a gain of 1 / (1 + '
  'alpha), a choice of this project; "printed" reads them by the median and '
  'divides by tau alone.'
)
_PANELS = 'Means over seeds with intervals of 95 %, as far as all of them went.'
_QUICK = {
  'seeds': [1, 2, 3], 'tables': [[8, 20]], 'rounds': {'5': 6},
  'tuning_rounds': {'5': 3}, 'evaluations': {'5': 3},
}  # fmt: skip


def figure_1(ws: Workspace) -> study.Report:
  """Reproduces Figure 1: homogeneous clients."""
  return _figure(ws, 'S2-Fig1', _RATES, _BYTES)


def figure_2(ws: Workspace) -> study.Report:
  """Devices of one or two classes each, with gradient tracking."""
  return _figure(ws, 'S2-Fig2', _RATES, _BYTES, _GATE)


def _figure(ws: Workspace, name: str, *notes: str) -> study.Report:
  r = registration.read(name)
  if ws.scale == 'quick':
    own = {name: [5] for name, taus in r['cells'].items() if 5 in taus}
    r |= _QUICK | {'cells': own}
  entries = runs_lib.play(ws, r)
  values = values_of(r, entries)
  in_order = {row['key']: values[row['key']] for row in r['claim']}
  return study.Report(
    registration.claims(r, in_order),
    report.seeds(entries),
    [report.table(entries)],
    [study.Picture(_PANELS, report.by_round(entries), columns=3)],
    notes,
  )


def values_of(r: runs_lib.Registered, entries: Comparison) -> dict[str, Any]:
  """What the claims of either figure compare, by key; {} of cells not run."""
  privix, heaprix = ([r[k]] for k in ('privix', 'heaprix'))
  both, others = privix + heaprix, [*privix, SKETCHED]
  tables = [tuple(table) for table in r['tables']]
  small, large = tables[:1], tables[-1:]

  def lead(ours, theirs, taus=(1, 2, 5), sizes=tables, **of):
    return report.lead(entries, ours, theirs, taus, sizes, **of)

  of_privix = [*lead(heaprix, privix).values()]
  collapsed = runs_lib.cell(r['privix'], 5, tables[0])
  return {
    'beats SketchedSGD': lead(both, [SKETCHED]),
    'best': lead(heaprix, others),
    'no lead': np.mean(of_privix, axis=0) if of_privix else {},
    'enough': lead([FEDSGD], heaprix, sizes=large),
    'enough as billed': lead([FEDSGD], privix, sizes=large),
    'equal bytes': _equal_bytes(entries, both),
    'one step, accuracy': lead(heaprix, others, [1]),
    'one step, loss': lead(heaprix, others, [1], of=report.loss),
    'PRIVIX ahead': lead(privix, [SKETCHED], [1], large),
    'SketchedSGD ahead': lead([SKETCHED], privix, [1], small),
    'tables': _larger(entries, [*both, SKETCHED], tables[0], tables[-1]),
    'several steps': lead(heaprix, privix, [2, 5]),
    'diverges': _accuracies(entries, [collapsed]),
    'poor': lead([FEDSGD], privix, [2, 5], small),
    'acceptable': lead([FEDSGD], heaprix, [2, 5]),
    'more steps': _more_steps(r, entries, heaprix, [(1, 2), (2, 5)]),
    'fewer rounds': _fewer_rounds(r, entries, heaprix),
    'literal': lead([runs_lib.LITERAL], privix, [5]),
    'very poor': lead([FEDSGD], [SKETCHED], [1]),
    'one step, FedSGD': lead([FEDSGD], both, [1]),
    'hurt': {k: -x for k, x in _more_steps(r, entries, both, [(1, 5)]).items()},
    'hurt, equal gradients': {
      label: runs_lib.accuracy(few) - runs_lib.accuracy(many)
      for label, few, many in _over_steps(r, entries, both, [(1, 5)])
    },
    'five steps': lead([FEDSGD], heaprix, [5], large),
    'harder': lead([runs_lib.IID], [FEDSGD], sizes=large),
    'rougher': lead([FEDSGD], [runs_lib.IID], sizes=large, of=report.falls),
    'printed': _accuracies(
      entries, [runs_lib.cell(runs_lib.PRINTED, 5, t) for t in tables]
    ),
  }


def _accuracies(entries, cells) -> report.Values:
  return {str(c): runs_lib.accuracy(entries[c]) for c in cells if c in entries}


def _equal_bytes(entries, names) -> report.Values:
  found = {}
  for cell, entry in entries.items():
    if cell.name in names:
      dense = entries[runs_lib.Cell(FEDSGD, cell.steps)]
      found[str(cell)] = report.at_equal_bytes(dense, entry)
  return found


def _larger(entries, names, small, large) -> report.Values:
  """What the large table gains over the small one, by method and steps."""
  found = {}
  for cell, entry in entries.items():
    other = entries.get(cell._replace(table=small))
    if cell.name in names and cell.table == large and other is not entry:
      gain = runs_lib.accuracy(entry) - runs_lib.accuracy(other)
      found[f'{cell.name}, tau = {cell.steps}'] = gain
  return found


def _over_steps(r, entries, names, pairs):
  """(label, entry of fewer steps, entry of more steps), a table at a time."""
  tables = map(tuple, r['tables'])
  for name, table, (few, many) in itertools.product(names, tables, pairs):
    cells = [runs_lib.cell(name, steps, table) for steps in (few, many)]
    if all(cell in entries for cell in cells):
      label = f'{name}, tau = {few} and {many}, {table}'
      yield label, *(entries[cell] for cell in cells)


def _more_steps(r, entries, names, pairs) -> report.Values:
  """What more local steps gain after the fewest rounds of any panel."""
  last = min(r['rounds'].values())
  return {
    label: report.accuracy_at(many, last) - report.accuracy_at(few, last)
    for label, few, many in _over_steps(r, entries, names, pairs)
  }


def _fewer_rounds(r, entries, names) -> report.Values:
  """Rounds to 90 % of more local steps less those of fewer.

  A run of fewer steps that does not reach it counts with its last round; one
  of more steps breaks the claim.
  """
  found = {}
  for label, few, many in _over_steps(r, entries, names, [(1, 2), (2, 5)]):
    slow, fast = (
      np.array([report.rounds_to_90(run) for run in e.runs])
      for e in (few, many)
    )
    found[label] = fast - np.fmin(slow, few.rounds)
  return found
