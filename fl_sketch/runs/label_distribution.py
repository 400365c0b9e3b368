"""How samples and their labels are spread over clients: a table, a figure."""

from collections.abc import Mapping
import os

from fl_sketch.data.partitions import Partition
from fl_sketch.runs import figures
from fl_sketch.utils import markdown
import numpy as np

_MOST_CLIENTS = 500  # about the pixels across the figure
_QUANTILES = {'least': 0, 'median': 0.5, '9 of 10': 0.9, 'most': 1}


def draw(
  labels: np.ndarray,
  partition: Partition,
  path: str | os.PathLike,
  num_classes: int,
) -> None:
  """Draw each label's share of the samples of up to 500 clients as a PNG."""
  count = min(partition.population, _MOST_CLIENTS)
  clients = np.linspace(0, partition.population - 1, count).astype(int)
  held = [labels[partition.client(i)] for i in clients]
  counts = np.stack([np.bincount(y, minlength=num_classes) for y in held])
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  order = np.lexsort((-shares.max(1), shares.argmax(1)))
  axes = figures.new_axes('clients, sorted by commonest label', 'label')
  image = axes.imshow(
    shares[order].T, aspect='auto', interpolation='nearest', cmap='YlGnBu'
  )
  axes.figure.colorbar(image, label='share of the client')
  axes.figure.savefig(path, dpi=130, format='png')


def sizes_table(sizes: Mapping[str, np.ndarray]) -> str:
  """Format int[clients] of each part of the data as a Markdown table.

  >>> print(sizes_table({'training': np.array([1, 3])}), end='')
  | samples | clients | in all | mean | least | median | 9 of 10 | most |
  | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
  | training | 2 | 4 | 2.0 | 1 | 2 | 3 | 3 |
  """
  rows = []
  for name, counts in sizes.items():
    ends = np.quantile(counts, list(_QUANTILES.values()))
    means = f'{len(counts):,}', f'{counts.sum():,}', f'{counts.mean():,.1f}'
    rows.append([name, *means, *(f'{end:,.0f}' for end in ends)])
  head = ['samples', 'clients', 'in all', 'mean', *_QUANTILES]
  return markdown.table(head, rows, left=1)
