"""Draws learning curves from metrics files: one run, or several compared."""

import pathlib

from fl_sketch.reporting import client_metrics, figures, metrics, over_seeds
import numpy as np

_LOSS = 'train_loss'


def draw_run(workdir: metrics.PathLike) -> list[pathlib.Path]:
  """Draws the curves of one run into its workdir, with the test loss.

  If its clients are evaluated, clients.png has their metrics.
  """
  drawn = curves([workdir], workdir)
  if panels := client_metrics.panels(metrics.read_metrics(workdir)):
    drawn.append(pathlib.Path(workdir) / 'clients.png')
    figures.draw(panels).savefig(drawn[-1], dpi=130, format='png')
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
  panels = {'loss.png': _losses(read)}
  if metric := metrics.shared_metric(read.values()):
    for name, x in (('rounds', 'rounds'), ('bytes', 'up')):
      lines = [
        over_seeds.line(label, [rows], x, metric)
        for label, rows in read.items()
      ]
      panels[f'accuracy_vs_{name}.png'] = over_seeds.panel(x, metric, lines)
  title = next(iter(read)) if len(read) == 1 else ''
  drawn = [out_dir / name for name in panels if panels[name].lines]
  for path in drawn:
    panel = panels[path.name]._replace(title=title)
    figures.draw([panel]).savefig(path, dpi=150, format='png')
  return drawn


def _losses(read: dict[str, list[metrics.Row]]) -> figures.Panel:
  logged = {k: rows for k, rows in read.items() if metrics.values(rows, _LOSS)}
  if len(read) > 1:
    lines = [_train_loss(label, rows) for label, rows in logged.items()]
    return over_seeds.panel('rounds', _LOSS, lines)
  lines = [_train_loss('train', rows) for rows in logged.values()]
  (rows,) = read.values()
  if not metrics.values(rows, 'test_loss'):
    return over_seeds.panel('rounds', _LOSS, lines)
  lines.append(over_seeds.line('test', [rows], 'rounds', 'test_loss'))
  return over_seeds.panel('rounds', 'loss', lines)


def _train_loss(label: str, rows: list[metrics.Row]) -> figures.Line:
  """Plots a train loss; of many rounds its running mean, least and greatest."""
  line = over_seeds.line(label, [rows], 'rounds', _LOSS)
  width = len(line.y) // 50
  if width < 2:
    return line
  window = np.lib.stride_tricks.sliding_window_view(np.array(line.y), width)
  return line._replace(
    label=f'{label} (mean of {width})',
    x=line.x[width - 1 :],  # a mean stands at the last of its rounds
    y=window.mean(1),
    low=window.min(1),
    high=window.max(1),
  )
