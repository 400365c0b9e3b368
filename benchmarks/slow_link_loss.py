"""Loss of a decoder over a slow link: compressed against dense, by seeds.

Each run is one of ``fl-sketch slow-link``, in a folder of its own: what is
there is not trained again, and a run that was stopped resumes.
"""

from collections.abc import Sequence
import pathlib
import subprocess
import sys
from typing import Any

from fl_sketch.reporting import figures, metrics
import numpy as np
from scipy import stats
import tqdm

_DENSE = '--compressor=dense', '--noboth_ways', '--every=1'
DENSE = 'AdamW, dense'
# Rates are the best of three, for a seed that is not reported.
METHODS = {
  DENSE: (*_DENSE, '--optimizer=adamw', '--learning_rate=0.003'),
  'Muon, dense': _DENSE,
  'Muon, one bit both ways every 8 steps': (),
}
HEAD = (
  'method', 'bytes out of a worker, a step', 'times fewer', 'loss',
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


def table(found: dict[str, list[Rows]]) -> list[list[str]]:
  """Returns the rows of `HEAD`: means over seeds, with 95 % intervals of t.

  Differences are paired by seed.
  """
  last = lambda runs: np.array([r[-1]['validation_loss_of_all'] for r in runs])
  dense, rows = last(found[DENSE]), []
  for name, runs in found.items():
    sent = [runs[0][-1]['bytes'] for runs in (found[name], found[DENSE])]
    sent = [total / runs[0][-1]['step'] for total in sent]
    above = _interval(100 * (last(runs) / dense - 1), 1)
    reached = [_first(rows, x) for rows, x in zip(runs, dense, strict=True)]
    line = [name, f'{sent[0]:,.0f}', f'{sent[1] / sent[0]:.0f}']
    line += [_interval(last(runs), 3), '' if name == DENSE else above]
    rows.append([*line, ', '.join(map(str, reached))])
  return rows


def _interval(values, digits) -> str:
  half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
  return f'{values.mean():.{digits}f} ± {half:.{digits}f}'


def _first(rows, loss) -> int | str:
  """Returns the first step whose loss, on part of the text, is this or less."""
  at = (r['step'] for r in rows if r['validation_loss'] <= loss)
  return next(at, '-')


def picture(found: dict[str, list[Rows]], seconds: dict[str, float]) -> Any:
  """Draws mean losses against steps, bytes, and seconds of measured steps.

  Args:
    found: of `train`.
    seconds: a step of each method over the link, as ``fl-sketch bench
      slow_link`` measures it.
  """
  axes = {
    'steps': lambda name, row: row['step'],
    'MB out of a worker': lambda _, row: row['bytes'] / 1e6,
    'seconds over 10 Mbit/s': lambda name, row: row['step'] * seconds[name],
  }
  panels = []
  for label, x in axes.items():
    lines = []
    for name, runs in found.items():
      losses = [metrics.values(rows, 'validation_loss') for rows in runs]
      xs = [x(name, row) for row in runs[0]]
      lines.append(figures.Line(name, xs, list(np.mean(losses, 0))))
    scale = 'linear' if label == 'steps' else 'log'
    panels.append(figures.Panel(label, 'validation loss', lines, x_scale=scale))
  return figures.draw(panels, 3)
