"""Draws the learning curves of a run from its metrics file."""

import pathlib

from fl_sketch.reporting import client_metrics, figures, metrics, over_seeds
import numpy as np

_LOSS = 'train_loss'


def draw_run(workdir: metrics.PathLike) -> list[pathlib.Path]:
  """Draws the curves of a run into its workdir; returns the files.

  accuracy_vs_rounds.png and accuracy_vs_bytes.png show the test loss of a run
  without test accuracy, loss.png both losses, and clients.png the metrics of
  evaluated clients. A figure without numbers is left out.

  Raises:
    ValueError: there is no row of metrics.
  """
  workdir = pathlib.Path(workdir).absolute()
  (rows,) = metrics.read_runs([workdir])
  configured = (workdir / 'config.json').exists()
  config = over_seeds.read_config(workdir) if configured else {}
  title = over_seeds.title_of([config]) or workdir.name
  figure = lambda x: [x._replace(title=title)] if x.lines else []
  loss, losses = _LOSS, []
  if metrics.values(rows, _LOSS):
    losses.append(_train_loss(rows))
  if metrics.values(rows, 'test_loss'):
    loss = 'loss'
    losses.append(over_seeds.line('test', [rows], 'rounds', 'test_loss'))
  named = {'loss.png': figure(over_seeds.panel('rounds', loss, losses))}
  if metric := metrics.shared_metric([rows]):
    for name in ('rounds', 'bytes'):
      line = over_seeds.line('', [rows], name, metric)
      line = line._replace(family=config.get('algorithm', ''))
      panel = over_seeds.panel(name, metric, [line])
      named[f'accuracy_vs_{name}.png'] = figure(panel)
  named['clients.png'] = client_metrics.panels(rows)
  drawn = {workdir / name: panels for name, panels in named.items() if panels}
  for path, panels in drawn.items():
    figures.draw(panels).savefig(path, dpi=150, format='png')
  return list(drawn)


def _train_loss(rows: list[metrics.Row]) -> figures.Line:
  """Plots a train loss; of many rounds its running mean, least and greatest."""
  line = over_seeds.line('train', [rows], 'rounds', _LOSS)
  width = len(line.y) // 50
  if width < 2:
    return line
  window = np.lib.stride_tricks.sliding_window_view(np.array(line.y), width)
  x = line.x[width - 1 :]  # a mean stands at the last of its rounds
  ys = {'y': window.mean(1), 'low': window.min(1), 'high': window.max(1)}
  return line._replace(label=f'train (mean of {width})', x=x, **ys)
