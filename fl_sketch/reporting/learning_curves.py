"""Draws learning curves from metrics files: one run, or several compared."""

import pathlib

from fl_sketch.reporting import client_metrics, figures, metrics, style
from matplotlib import axes, ticker
import numpy as np

_LABELS = {'round': 'round', 'uplink': 'total uplink of all clients (MB)'}


def draw_run(workdir: metrics.PathLike) -> list[pathlib.Path]:
  """Draws the curves of one run into its workdir, with the test loss.

  If its clients are evaluated, clients.png has their metrics.
  """
  drawn = curves([workdir], workdir)
  if panels := client_metrics.panels(metrics.read_metrics(workdir)):
    path = pathlib.Path(workdir) / 'clients.png'
    figures.draw(panels).savefig(path, dpi=130, format='png')
    drawn.append(path)
  return drawn


def curves(runs: metrics.Runs, out_dir: metrics.PathLike) -> list[pathlib.Path]:
  """Draws accuracy_vs_rounds.png, accuracy_vs_bytes.png and loss.png.

  The first two show the test loss where a run has no test accuracy, and are
  left out where one has neither. A single run's loss.png has its test loss
  beside the train loss, or alone where it logs no train loss; without any loss
  there is none.

  Args:
    runs: see `metrics`.
    out_dir: directory of the figures, created if missing.

  Returns:
    The files written.
  """
  read = metrics.read_runs(runs)
  out_dir = pathlib.Path(out_dir)
  out_dir.mkdir(parents=True, exist_ok=True)
  metric = metrics.shared_metric(read.values())
  pictures = {}
  if (losses := _draw_losses(read)).lines:
    pictures['loss.png'] = losses
  if metric:
    for name, x in (('rounds', 'round'), ('bytes', 'uplink')):
      pictures[f'accuracy_vs_{name}.png'] = _draw_test(read, x, metric)
  for name, ax in pictures.items():
    _save(ax, out_dir / name, list(read))
  return [out_dir / name for name in pictures]


def _points(
  rows: list[metrics.Row], x: str, y: str
) -> tuple[np.ndarray, np.ndarray]:
  """X and y values of the rows that have a `y`."""
  rows = [row for row in rows if row.get(y) is not None]
  if x == 'uplink':
    # The totals may be too large for any integer of NumPy.
    xs = [row['total_uplink_bytes'] / 1e6 for row in rows]
  else:
    xs = [row[x] for row in rows]
  return np.array(xs, float), np.array([row[y] for row in rows], float)


def _draw_test(read: dict[str, list[metrics.Row]], x: str, y: str) -> axes.Axes:
  ax = style.new_axes(_LABELS[x], y.replace('_', ' '))
  for i, (label, rows) in enumerate(read.items()):
    xs, ys = _points(rows, x, y)
    if x == 'uplink':
      xs, ys = xs[xs > 0], ys[xs > 0]
    # A curve of few evaluations shows where they are.
    marker = 'o' if len(xs) <= 25 else None
    ax.plot(xs, ys, **style.look(i), marker=marker, markersize=3.5, label=label)
  if x == 'uplink':
    ax.set_xscale('log')
    style.plain_ticks(ax.xaxis)
  if y == 'test_accuracy':
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
  else:
    _log_if_wide(ax)
  return ax


def _draw_losses(read: dict[str, list[metrics.Row]]) -> axes.Axes:
  ax = style.new_axes('round', 'train loss')
  for i, (label, rows) in enumerate(read.items()):
    if metrics.values(rows, 'train_loss'):
      _plot_smoothed(ax, i, 'train' if len(read) == 1 else label, rows)
  if len(read) == 1:
    xs, ys = _points(rows, 'round', 'test_loss')
    if len(xs):
      ax.plot(xs, ys, **style.look(1), label='test')
      ax.set_ylabel('loss')
  if ax.lines:
    _log_if_wide(ax)
  return ax


def _plot_smoothed(
  ax: axes.Axes, i: int, label: str, rows: list[metrics.Row]
) -> None:
  """Plots a train loss, and for many rounds its running mean on top."""
  xs, ys = _points(rows, 'round', 'train_loss')
  width = len(ys) // 50
  if width > 1:
    ax.plot(xs, ys, color=style.look(i)['color'], linewidth=0.5, alpha=0.3)
    ys = np.convolve(ys, np.full(width, 1 / width), 'valid')
    # A mean stands at the last of its rows: it knows no later one.
    xs = xs[width - 1 :]
    label = f'{label} (mean of {width})'
  ax.plot(xs, ys, **style.look(i), label=label)


def _log_if_wide(ax: axes.Axes) -> None:
  """Uses a logarithmic y axis if the curves span more than a decade."""
  values = np.concatenate([line.get_ydata() for line in ax.lines])
  values = values[np.isfinite(values)]
  if values.size and 0 < 10 * values.min() < values.max():
    ax.set_yscale('log')
    style.plain_ticks(ax.yaxis)


def _save(ax: axes.Axes, path: pathlib.Path, labels: list[str]) -> None:
  """Adds the legend and writes the figure."""
  if len(labels) == 1:
    ax.set_title(labels[0], loc='left', fontsize='medium')
  if len(ax.get_legend_handles_labels()[1]) > 1:
    outside = len(labels) > 5
    place = {'loc': 'center left', 'bbox_to_anchor': (1, 0.5)}
    ax.legend(frameon=False, fontsize='small', **(place if outside else {}))
  fig = ax.get_figure(root=True)
  if fig is not None:
    fig.savefig(path, dpi=150)
