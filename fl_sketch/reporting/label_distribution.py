"""Tables and figures of how samples, and their labels, spread over clients."""

from collections.abc import Mapping
import os

from fl_sketch import reporting
from fl_sketch.data.ragged import Partition
from fl_sketch.reporting import style
from fl_sketch.utils import markdown
import numpy as np

# Beyond either, bars or their colours run together: a heat map takes over.
_MOST_BARS = 60
_MOST_COLORS = len(style.COLOURS)
_MOST_COLUMNS = 500  # about the pixels across the heat map
_CLIENTS_AT_ONCE = 2**16
_QUANTILES = {'least': 0, 'median': 0.5, '9 of 10': 0.9, 'most': 1}


def draw(
  labels,
  partition: Partition,
  path: str | os.PathLike,
  num_classes: int,
  title: str = 'Samples per client, by label',
) -> None:
  """Draws the label distribution of the clients into a PNG file.

  Up to 60 clients with up to 16 labels are stacked horizontal bars. Others are
  columns, sorted by the client's commonest label and its share: sizes above,
  each label's share of the client below. Labels are int[samples] < num_classes.
  """
  counts = _counts(np.asarray(labels), partition, num_classes)
  few = partition.population <= _MOST_BARS and num_classes <= _MOST_COLORS
  height = 1.6 + 0.17 * max(partition.population, 8) if few else 4.8
  figure = reporting.new_figure(7.5, height)
  (_bars if few else _heat_map)(figure, counts)
  figure.suptitle(title)
  figure.savefig(path, dpi=130, format='png')


def _counts(labels, partition, num_classes) -> np.ndarray:
  """Samples of each label at each client, int64[population, num_classes]."""
  counts = np.empty((partition.population, num_classes), np.int64)
  for first in range(0, partition.population, _CLIENTS_AT_ONCE):
    block = counts[first : first + _CLIENTS_AT_ONCE]
    sizes = partition.sizes[first : first + _CLIENTS_AT_ONCE]
    start = partition.offsets[first]
    y = labels[partition.take(np.arange(start, start + sizes.sum()))]
    if y.size and not 0 <= y.min() <= y.max() < num_classes:
      raise ValueError(
        f'Labels are {y.min()} to {y.max()}, not 0 to {num_classes=} - 1.'
      )
    client = np.repeat(np.arange(len(block)), sizes)
    flat = np.bincount(client * num_classes + y, minlength=block.size)
    block[:] = flat.reshape(block.shape)
  return counts


def _bars(figure, counts: np.ndarray) -> None:
  population, _ = counts.shape
  axes = figure.subplots()
  left = np.zeros(population)
  for label, sizes in enumerate(counts.T):
    look = {'color': style.COLOURS[label], 'label': str(label), 'height': 0.85}
    axes.barh(np.arange(population), sizes, left=left, **look)
    left += sizes
  axes.set(xlabel='samples', ylabel='client', ylim=(population - 0.4, -0.6))
  axes.yaxis.get_major_locator().set_params(integer=True)
  axes.spines[['top', 'right']].set_visible(False)
  look = {'loc': 'outside right upper', 'frameon': False}
  figure.legend(*axes.get_legend_handles_labels(), title='label', **look)


def _heat_map(figure, counts: np.ndarray) -> None:
  population, num_classes = counts.shape
  size = counts.sum(1)
  share = counts / size[:, None]
  order = np.lexsort((-share.max(1), share.argmax(1)))
  edges = np.linspace(0, population, min(population, _MOST_COLUMNS) + 1)
  edges = edges.astype(int)
  width = np.diff(edges)
  share = np.add.reduceat(share[order], edges[:-1]) / width[:, None]
  size = np.add.reduceat(size[order], edges[:-1]) / width
  above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
  above.stairs(size, edges, fill=True, color='0.45')
  above.set(ylabel='samples', ylim=(0, None))
  above.spines[['top', 'right']].set_visible(False)
  rows = np.arange(num_classes + 1) - 0.5
  # A floor under the scale, or iid noise would look like structure.
  top = min(1, max(share.max(), 3 / num_classes))
  mesh = below.pcolormesh(edges, rows, share.T, cmap='YlGnBu', vmin=0, vmax=top)
  below.set(xlabel='clients, sorted by commonest label', ylabel='label')
  below.set_ylim(num_classes - 0.5, -0.5)
  below.xaxis.get_major_locator().set_params(integer=True)
  if num_classes <= 20:
    below.set_yticks(range(num_classes))
  figure.colorbar(mesh, ax=below, label='share of the client')


def sizes_table(sizes: Mapping[str, np.ndarray]) -> str:
  """Formats int[clients] of each part of the data as a Markdown table.

  >>> print(sizes_table({'training': np.array([1, 3])}), end='')
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


def draw_sizes(
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
