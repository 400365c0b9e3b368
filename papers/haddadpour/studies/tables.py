"""Tables 1 and 2 of Haddadpour et al. for the numbers of its experiments."""

from fl_sketch.utils import markdown
import numpy as np

from ...common import study, verdicts
from ...common.workspace import Workspace
from ..statements import tables as theory

LENET5 = 61_706
_COLS = (40, 100)
_NOTE = (
  'The paper prints orders of magnitude; these are the same expressions with '
  'every constant that it does not name, L and sigma^2 among them, equal to 1: '
  'ratios of rows mean more than rows. Ivkin et al. have two rows: the rate '
  'that the table prints, and that of their theorem, from memory. Corrected: '
  'hashes that clients share, as the average of tables needs them, and one '
  'row. HEAPRIX has the omega of Corollary 1, d / m - 1, where PRIVIX has e d '
  '/ m. Scaffold has the rates of Corollaries 2 and 3.'
)


def table_1(ws: Workspace) -> study.Report:
  """Reproduces Table 1: communication with homogeneous clients."""
  rivals = [
    ('Ivkin et al. 2019', 'pl'), ('Ivkin et al. 2019, printed', 'pl'),
    ('Scaffold', 'nonconvex'), ('Scaffold', 'pl'),
  ]  # fmt: skip
  return _report(ws, 'Table 1', theory.homogeneous_table, 'Theorem 2', rivals)


def table_2(ws: Workspace) -> study.Report:
  """Reproduces Table 2: communication with heterogeneous clients."""
  rivals = [
    ('Li et al. 2019', 'convex'),
    ('Rothchild et al. 2020, 1', 'nonconvex'),
  ]
  return _report(ws, 'Table 2', theory.heterogeneous_table, 'Theorem 3', rivals)


def _report(ws, name, make, own, rivals) -> study.Report:
  tables, floats, printed, saved = [], {}, [], []
  for cols in _COLS:
    table = _regenerated(ws, name, make, cols)
    sent = {(row[0], row[1]): float(row[4]) for row in table.rows}
    printed.append([sent[own, rival[1]] / sent[rival] for rival in rivals])
    dense = sent['no sketch', 'nonconvex']
    saved.append(sent[f'{own}, corrected', 'nonconvex'] / dense)
    floats[f'cols {cols}'] = {' '.join(k): v for k, v in sent.items()}
    tables.append(table)
  text = 'floats that a client sends for the accuracy, the worse of both tables'
  claims = [
    verdicts.exact(
      f'{own} as printed over {rival}, {objective}: {text}', worst, '<=', 1.0
    )
    for (rival, objective), worst in zip(
      rivals, np.max(printed, 0), strict=True
    )
  ]
  claims.append(
    verdicts.exact(
      f'{own} corrected over no sketch, nonconvex: {text}',
      max(saved), '<=', 0.5,
    )
  )  # fmt: skip
  return study.Report(claims, floats, tables, notes=[_NOTE])


def _regenerated(ws, name, make, cols) -> study.Table:
  """The table for LeNet-5, 25 clients and rows of so many columns."""
  fields = {
    'dimension': LENET5, 'cols': cols, 'clients': 25, 'accuracy': 0.1,
    'population': 50, 'kappa': 10.0, 'failure': 0.01,
  }  # fmt: skip
  file = f'haddadpour/{name.replace(" ", "-").lower()}-{cols}'
  text = ws.cached(file, fields, lambda: make(theory.ProblemSizes(**fields)))
  head, *rows = markdown.cells(text)
  about = ', '.join(f'{k} {v:g}' for k, v in fields.items())
  return study.Table(f'{name}: {about}', head, rows)
