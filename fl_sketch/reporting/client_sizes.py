"""Table and figure of how many samples clients have."""

from collections.abc import Mapping
import os

from fl_sketch import reporting
from fl_sketch.utils import markdown
import numpy as np

_QUANTILES = {'least': 0, 'median': 0.5, '9 of 10': 0.9, 'most': 1}


def table(sizes: Mapping[str, np.ndarray]) -> str:
  """Formats int[clients] of each part of the data as a Markdown table.

  >>> print(table({'training': np.array([1, 3])}), end='')
  | samples | clients | in all | mean | least | median | 9 of 10 | most |
  | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
  | training | 2 | 4 | 2.0 | 1 | 2 | 3 | 3 |
  """
  head = ['samples', 'clients', 'in all', 'mean', *_QUANTILES]
  rows = []
  for name, of in sizes.items():
    ends = np.quantile(of, list(_QUANTILES.values()))
    counts = f'{len(of):,}', f'{of.sum():,}', f'{of.mean():,.1f}'
    rows.append([name, *counts, *(f'{end:,.0f}' for end in ends)])
  return markdown.table(head, rows, left=1)


def draw(
  sizes: Mapping[str, np.ndarray], path: str | os.PathLike, title: str = ''
) -> None:
  """Draws histograms of sizes, on logarithmic axes, into a PNG file."""
  figure = reporting.new_figure(6, 3.6)
  ax = figure.subplots()
  most = max(int(of.max()) for of in sizes.values())
  edges = np.unique(np.geomspace(1, most + 1, 40).astype(int))
  edges = np.append(edges, edges[-1] + 1) - 0.5
  for name, of in sizes.items():
    ax.hist(of[of > 0], edges.tolist(), alpha=0.6, label=name)
  ax.set(xscale='log', yscale='log', xlabel='samples', ylabel='clients')
  ax.set_title(title)
  ax.legend(frameon=False, fontsize='small')
  figure.savefig(path, dpi=130, format='png')
