"""Loss of a decoder over a slow link: compressed against dense, by seeds.

Each run is one of ``fl-sketch slow-link``, in a folder of its own: what is
there is not trained again, and a run that was stopped resumes.
"""

from collections.abc import Mapping, Sequence
import pathlib
import subprocess
import sys
from typing import Any

from fl_sketch.reporting import figures, intervals, metrics
from fl_sketch.utils import markdown
import numpy as np
import tqdm

DENSE = 'AdamW, dense'
# Rates are the best of three or two, for a seed that is not reported.
METHODS = {
  DENSE: (
    '--compressor=dense', '--noboth_ways', '--every=1', '--optimizer=adamw',
    '--learning_rate=0.006',
  ),
  'Muon, two bits both ways every 8 steps': (),
}  # fmt: skip
HEAD = (
  'method', 'bytes out of a worker per step', 'times fewer', 'loss',
  f'% above {DENSE}', f'steps to the last loss of {DENSE}',
)  # fmt: skip
Rows = list[dict[str, Any]]


def train(
  out: pathlib.Path, seeds: Sequence[int], flags: Sequence[str]
) -> dict[str, list[Rows]]:
  """Trains what is missing; returns the rows of metrics by method and seed.

  Args:
    out: folder of the runs.
    seeds: those of parameters, batches and compressor.
    flags: of ``fl-sketch slow-link``, for all runs.
  """
  found = {name: [] for name in METHODS}
  program = f'{__package__}'.removesuffix('benchmarks') + 'launch.slow_link'
  for seed in tqdm.tqdm(seeds, 'seeds'):
    for name, options in METHODS.items():
      folder = out / name.replace(',', '').replace(' ', '_') / str(seed)
      if not (rows := _finished(folder)):
        where = f'--workdir={folder}', f'--seed={seed}'
        command = [sys.executable, '-m', program, *where, *options, *flags]
        subprocess.run(command, check=True)
        rows = _finished(folder)
      found[name].append(rows)
  return found


def _finished(folder) -> Rows:
  if not (folder / 'metrics.jsonl').exists():
    return []
  rows = metrics.read_metrics(folder)
  return rows if 'validation_loss_of_all' in rows[-1] else []


def table(found: Mapping[str, list[Rows]]) -> str:
  """A Markdown table: means over seeds, with 95 % intervals of t.

  Differences to `DENSE` are paired by seed.
  """
  last = lambda runs: np.array([r[-1]['validation_loss_of_all'] for r in runs])
  sent = {
    k: runs[0][-1]['bytes'] / runs[0][-1]['step'] for k, runs in found.items()
  }
  dense, lines = last(found[DENSE]), []
  for name, runs in found.items():
    above = _interval(100 * (last(runs) / dense - 1), 1)
    line = [name, f'{sent[name]:,.0f}', f'{sent[DENSE] / sent[name]:.0f}']
    line += [_interval(last(runs), 3), '' if name == DENSE else above]
    # Of the loss on part of the text, as it is logged.
    goals = [rows[-1]['validation_loss'] for rows in found[DENSE]]
    first = [_first(rows, x) for rows, x in zip(runs, goals, strict=True)]
    lines.append([*line, ', '.join(first)])
  return markdown.table(HEAD, lines, left=1)


def _interval(values, digits) -> str:
  if len(values) == 1:
    return f'{values[0]:.{digits}f}'
  mean, low, _ = intervals.interval(values)
  return f'{mean:.{digits}f} ± {mean - low:.{digits}f}'


def _first(rows, loss) -> str:
  at = (f'{row["step"]}' for row in rows if row['validation_loss'] <= loss)
  return next(at, '-')


def panels(found: Mapping[str, list[Rows]]) -> list[figures.Panel]:
  """Mean validation losses against steps and against bytes."""
  axes = {'step': lambda row: row['step'], 'MB out of a worker': _megabytes}
  out = []
  for label, x in axes.items():
    lines = []
    for name, runs in found.items():
      losses = [metrics.values(rows, 'validation_loss') for rows in runs]
      mean = [float(x) for x in np.mean(losses, 0)]
      lines.append(figures.Line(name, [x(row) for row in runs[0]], mean))
    scale = 'linear' if label == 'step' else 'log'
    out.append(figures.Panel(label, 'validation loss', lines, x_scale=scale))
  return out


def _megabytes(row) -> float:
  return row['bytes'] / 1e6
