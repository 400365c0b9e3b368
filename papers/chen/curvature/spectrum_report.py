"""Reports spectra over training: rows, a table and a figure.

A row is JSON: 'round', 'dimension', 'lambda_max', 'lambda_min', 'trace' and
'trace_error', 'intrinsic_dimension', 'near_zero' (share of eigenvalues below a
hundredth of the largest in magnitude), 'eigenvalues' (the largest, descending),
'eigenvalue_error' (the worst), 'exponent' and 'r_squared' of their power law or
None, and 'nodes' and 'weights' of the density.
"""

from collections.abc import Sequence
import pathlib
from typing import Any

from fl_sketch.runs import figures
from fl_sketch.utils import extras, markdown
import numpy as np

from . import spectrum

Row = dict[str, Any]
_POINTS = 400


def row(done: int, estimate: spectrum.Spectrum, top: int) -> Row:
  """Returns the stored summary of a spectrum after so many rounds.

  The power law is fitted to the positive ones of the `top` largest eigenvalues.
  """
  largest, errors = estimate.top(top)
  positive = largest[largest > 0]
  law = spectrum.power_law(positive) if len(positive) > 2 else None
  trace = estimate.trace_of(lambda x: x)
  near = lambda x: np.abs(x) < 0.01 * np.abs(estimate.nodes).max()
  return {
    'round': done, 'dimension': estimate.dimension,
    'lambda_max': estimate.largest, 'lambda_min': estimate.smallest,
    'trace': trace.value, 'trace_error': trace.error,
    'intrinsic_dimension': estimate.intrinsic_dimension,
    'near_zero': estimate.trace_of(near).value / estimate.dimension,
    'exponent': law and law.exponent, 'r_squared': law and law.r_squared,
    'eigenvalues': largest.tolist(), 'eigenvalue_error': errors.max(),
    'nodes': estimate.nodes.tolist(), 'weights': estimate.weights.tolist(),
  }  # fmt: skip


def table(rows: Sequence[Row]) -> str:
  """Returns a Markdown table: a row for each spectrum."""
  head = [
    'round', 'λ max', 'λ min', 'trace', 'intrinsic dimension', 'near zero',
    'power law', 'R²',
  ]  # fmt: skip
  cells = (
    '{round}', '{lambda_max:.4g}', '{lambda_min:.3g}',
    '{trace:.4g} ± {trace_error:.2g}', '{intrinsic_dimension:.3g}',
    '{near_zero:.1%}',
  )  # fmt: skip
  law = 'rank^-{exponent:.2f}', '{r_squared:.3f}'
  lines = []
  for r in rows:
    ends = ('', '') if r['exponent'] is None else law
    line = (cell.format(**r) for cell in (*cells, *ends))
    lines.append([cell.replace('%', ' %') for cell in line])
  return markdown.table(head, lines, left=0)


def panels(rows: Sequence[Row]) -> list[figures.Panel]:
  """Plots densities over training, and the largest eigenvalues by rank.

  Densities are over their largest value, smoothed by a 150th of the range of
  all. The lines beside the eigenvalues are their power laws.
  """
  low = min(r['lambda_min'] for r in rows)
  high = max(r['lambda_max'] for r in rows)
  margin = 0.03 * (high - low)
  grid = np.linspace(low - margin, high + margin, _POINTS)
  # A lone eigenvalue is to be seen, though a probe may hardly point at it.
  least = 1 / (100 * rows[0]['dimension'])
  densities, laws = [], []
  for r in rows:
    nodes, weights = np.array(r['nodes']), np.array(r['weights'])
    measured = spectrum.Spectrum(nodes, weights, nodes, r['dimension'])
    density = measured.density(grid, (high - low) / 150)
    relative = np.maximum(density / density.max(), least)
    name = f'round {r["round"]}'
    densities.append(figures.Line(name, grid, relative))
    laws += _laws(r, name)
  return [
    figures.Panel(
      'eigenvalue', 'density over its largest', densities, y_scale='log'
    ),
    figures.Panel('rank', 'eigenvalue', laws, x_scale='log', y_scale='log'),
  ]


def _laws(r: Row, name: str) -> list[figures.Line]:
  if r['exponent'] is None:
    return []
  values = np.array(r['eigenvalues'])
  values = values[values > 0]
  ranks = np.arange(1, len(values) + 1)
  centre = np.exp(np.mean(np.log(values) + r['exponent'] * np.log(ranks)))
  law = centre * ranks ** -r['exponent']
  return [
    figures.Line('', ranks, values, family=name, points=True),
    figures.Line('', ranks[[0, -1]], law[[0, -1]], family=name),
  ]


def write(rows: Sequence[Row], folder: pathlib.Path) -> None:
  """Writes spectrum.md and spectrum.png."""
  (folder / 'spectrum.md').write_text(table(rows))
  with extras.optional_figures():
    figures.draw(panels(rows)).savefig(folder / 'spectrum.png', dpi=110)
