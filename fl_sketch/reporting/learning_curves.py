"""From metrics.jsonl to pictures and tables: one run, or several compared.

Runs are given as {label: path} or as a list of paths; a path is a workdir or a
metrics file, and without a label a run is called after its directory.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib
from typing import Any

from fl_sketch import markdown
from matplotlib import axes
from matplotlib import figure
from matplotlib import ticker
import numpy as np

PathLike = str | os.PathLike
Runs = Mapping[str, PathLike] | Sequence[PathLike]
Row = dict[str, Any]

# Okabe and Ito (2008): told apart also by the colour-blind, and in print.
_COLOURS = (
  '#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000',
)  # fmt: skip
_STYLES = ('-', '--', ':')
_LABELS = {'round': 'round', 'uplink': 'total uplink of all clients (MB)'}


def read_metrics(path: PathLike) -> list[Row]:
  """Reads the rows of a metrics file.

  A last line that is cut short, as by a run that is being written or was
  killed, is left out.

  Args:
    path: a metrics.jsonl or the workdir that holds it.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    path = path / 'metrics.jsonl'
  lines = path.read_text(encoding='utf-8').splitlines(keepends=True)
  rows = []
  for number, line in enumerate(lines, start=1):
    try:
      if line.strip():
        rows.append(json.loads(line))
    except json.JSONDecodeError as e:
      if number == len(lines) and not line.endswith('\n'):
        break
      raise ValueError(f'Expected JSON in line {number} of {path}.') from e
  return rows


def draw_run(workdir: PathLike) -> list[pathlib.Path]:
  """Draws one run into its workdir; see `curves`, with the test loss added."""
  return curves([workdir], workdir)


def curves(runs: Runs, out_dir: PathLike) -> list[pathlib.Path]:
  """Draws accuracy_vs_rounds.png, accuracy_vs_bytes.png and loss.png.

  The first two show the test loss where a run has no test accuracy, and are
  left out where one has neither. A single run's loss.png has its test loss
  beside the train loss.

  Args:
    runs: see the module.
    out_dir: directory of the pictures, made if it is not there.

  Returns:
    The files written.
  """
  read = _read_runs(runs)
  out_dir = pathlib.Path(out_dir)
  out_dir.mkdir(parents=True, exist_ok=True)
  metric = _test_metric(read)
  pictures = {'loss.png': _draw_losses(read)}
  if metric:
    for name, x in (('rounds', 'round'), ('bytes', 'uplink')):
      pictures[f'accuracy_vs_{name}.png'] = _draw_test(read, x, metric)
  for name, ax in pictures.items():
    _save(ax, out_dir / name, list(read))
  return [out_dir / name for name in pictures]


def table(runs: Runs) -> str:
  """Returns a Markdown table with one line a run, from its last rows.

  Bytes per client are means over the logged rounds; MB are 10^6 bytes.

  Args:
    runs: see the module.
  """
  read = _read_runs(runs)
  # A column stands where some run has a value for it.
  columns = {
    name: values
    for name, column in _COLUMNS.items()
    if any(values := [column(rows) for rows in read.values()])
  }
  lines = []
  for i, label in enumerate(read):
    cells = [values[i] for values in columns.values()]
    lines.append([label.replace('|', r'\|'), *cells])
  return markdown.table(['run', *columns], lines, left=1)


def sentence(row: Row, finished: bool) -> str:
  """How a run ended, from its last row, in one line."""
  if not row:
    return 'Stopped before the first round; the same command starts it again.'
  score = ('test_accuracy', 'test_loss', 'train_loss')
  name = next(name for name in score if name in row)
  end = 'Done' if finished else 'Stopped; the same command goes on'
  return (
    f'{end} after {row["round"] + 1} rounds: {name} {row[name]:.4f}, '
    f'{row["total_uplink_bytes"] / 1e6:.2f} MB up and '
    f'{row["total_downlink_bytes"] / 1e6:.2f} MB down in all. '
    'Metrics and curves are in'
  )


def _values(rows: Iterable[Row], name: str) -> list:
  return [row[name] for row in rows if row.get(name) is not None]


def _last(name: str, form: str, unit: float = 1) -> Callable[..., str]:
  def column(rows):
    values = _values(rows, name)
    return format(values[-1] / unit, form) if values else ''

  return column


def _best_accuracy(rows: list[Row]) -> str:
  values = _values(rows, 'test_accuracy')
  return format(max(values), '.2%') if values else ''


def _mean_bytes(name: str) -> Callable[..., str]:
  def column(rows):
    values = _values(rows, name)
    return format(round(sum(values) / len(values)), ',') if values else ''

  return column


_COLUMNS = {
  'round': _last('round', '.0f'),
  'test accuracy': _last('test_accuracy', '.2%'),
  'best accuracy': _best_accuracy,
  'test loss': _last('test_loss', '.4g'),
  'train loss': _last('train_loss', '.4g'),
  'uplink B/client/round': _mean_bytes('uplink_bytes'),
  'downlink B/client/round': _mean_bytes('downlink_bytes'),
  'total uplink MB': _last('total_uplink_bytes', ',.2f', 1e6),
  'total downlink MB': _last('total_downlink_bytes', ',.2f', 1e6),
  'epsilon': _last('epsilon', '.3g'),
}


def _read_runs(runs: Runs) -> dict[str, list[Row]]:
  if not isinstance(runs, Mapping):
    paths = [pathlib.Path(path).absolute() for path in runs]
    paths = [p.parent if p.name == 'metrics.jsonl' else p for p in paths]
    names = [path.name for path in paths]
    runs = {
      str(path) if names.count(path.name) > 1 else path.name: path
      for path in paths
    }
  if not runs:
    raise ValueError('Expected at least one run.')
  read = {label: read_metrics(path) for label, path in runs.items()}
  for label, rows in read.items():
    if not rows:
      raise ValueError(f'Expected at least one row of metrics of {label!r}.')
  return read


def _test_metric(read: dict[str, list[Row]]) -> str | None:
  for metric in ('test_accuracy', 'test_loss'):
    if all(_values(rows, metric) for rows in read.values()):
      return metric
  return None


def _points(rows: list[Row], x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
  """Returns the abscissae and ordinates of the rows that have a `y`."""
  rows = [row for row in rows if row.get(y) is not None]
  if x == 'uplink':
    # The totals may be too large for any integer of NumPy.
    xs = [row['total_uplink_bytes'] / 1e6 for row in rows]
  else:
    xs = [row[x] for row in rows]
  return np.array(xs, float), np.array([row[y] for row in rows], float)


def new_axes(x_label: str, y_label: str) -> axes.Axes:
  """Axes of a new picture, for curves."""
  fig = figure.Figure(figsize=(6, 3.8), layout='constrained')
  ax = fig.add_subplot()
  ax.set(xlabel=x_label, ylabel=y_label)
  ax.spines[['top', 'right']].set_visible(False)
  ax.grid(color='0.9')
  ax.set_axisbelow(True)
  return ax


def look(i: int) -> Row:
  """Returns the colour and line style of curve `i`."""
  turn, colour = divmod(i, len(_COLOURS))
  return {
    'color': _COLOURS[colour],
    'linestyle': _STYLES[turn % len(_STYLES)],
    'linewidth': 1.6,
  }


def _draw_test(read: dict[str, list[Row]], x: str, y: str) -> axes.Axes:
  ax = new_axes(_LABELS[x], y.replace('_', ' '))
  for i, (label, rows) in enumerate(read.items()):
    xs, ys = _points(rows, x, y)
    if x == 'uplink':
      xs, ys = xs[xs > 0], ys[xs > 0]
    # A curve of few evaluations shows where they are.
    marker = 'o' if len(xs) <= 25 else None
    ax.plot(xs, ys, **look(i), marker=marker, markersize=3.5, label=label)
  if x == 'uplink':
    ax.set_xscale('log')
    plain_ticks(ax.xaxis)
  if y == 'test_accuracy':
    ax.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
  else:
    _log_if_wide(ax)
  return ax


def _draw_losses(read: dict[str, list[Row]]) -> axes.Axes:
  ax = new_axes('round', 'train loss')
  for i, (label, rows) in enumerate(read.items()):
    _plot_smoothed(ax, i, 'train' if len(read) == 1 else label, rows)
  if len(read) == 1:
    xs, ys = _points(rows, 'round', 'test_loss')
    if len(xs):
      ax.plot(xs, ys, **look(1), label='test')
      ax.set_ylabel('loss')
  _log_if_wide(ax)
  return ax


def _plot_smoothed(ax: axes.Axes, i: int, label: str, rows: list[Row]) -> None:
  """Plots a train loss; one of many rounds under its running mean."""
  xs, ys = _points(rows, 'round', 'train_loss')
  width = len(ys) // 50
  if width > 1:
    ax.plot(xs, ys, color=look(i)['color'], linewidth=0.5, alpha=0.3)
    ys = np.convolve(ys, np.full(width, 1 / width), 'valid')
    # A mean stands at the last of its rows: it knows no later one.
    xs = xs[width - 1 :]
    label = f'{label} (mean of {width})'
  ax.plot(xs, ys, **look(i), label=label)


def _log_if_wide(ax: axes.Axes) -> None:
  """Makes the y axis logarithmic if its curves span more than a decade."""
  values = np.concatenate([line.get_ydata() for line in ax.lines])
  values = values[np.isfinite(values)]
  if values.size and 0 < 10 * values.min() < values.max():
    ax.set_yscale('log')
    plain_ticks(ax.yaxis)


def plain_ticks(axis: Any) -> None:
  """Labels a logarithmic axis 0.5, 20, 1,000 in place of powers of ten."""
  low, high = axis.get_view_interval()
  subs = (1, 2, 5) if high < 300 * low else (1,)
  axis.set_major_locator(ticker.LogLocator(subs=subs, numticks=8))
  axis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f'{v:,g}'))
  axis.set_minor_formatter(ticker.NullFormatter())


def _save(ax: axes.Axes, path: pathlib.Path, labels: list[str]) -> None:
  """Adds what names the curves, and writes the picture."""
  if len(labels) == 1:
    ax.set_title(labels[0], loc='left', fontsize='medium')
  if len(ax.get_legend_handles_labels()[1]) > 1:
    outside = len(labels) > 5
    place = {'loc': 'center left', 'bbox_to_anchor': (1, 0.5)}
    ax.legend(frameon=False, fontsize='small', **(place if outside else {}))
  fig = ax.get_figure(root=True)
  if fig is not None:
    fig.savefig(path, dpi=150)
