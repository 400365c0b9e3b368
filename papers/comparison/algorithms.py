"""Compares algorithms: each is tuned on a small model and run on a large."""

from collections.abc import Callable, Mapping, Sequence
import itertools
from typing import Any, NamedTuple

from fl_sketch import reporting
from fl_sketch.reporting import figures, intervals
from fl_sketch.sweeps import grid, report as sweep_report
import numpy as np

from ..common import study
from ..common.comparison import Entry
from ..common.workspace import Workspace

NAME = 'MNIST-Comparison'
COMMAND = 'fl-sketch compare --data_dir=DIR --workdir=DIR'
_ACCURACY = 'test accuracy, %'


class Outcome(NamedTuple):
  """An algorithm on one partition, at the rates of its best point."""

  entry: Entry  # its runs over seeds
  # Final test accuracy over the seeds that did not diverge.
  accuracy: sweep_report.Setting

  @property
  def finished(self) -> list[Any]:
    """The runs that did not diverge."""
    return [run for run in self.entry.runs if not run.diverged]

  @property
  def uplink(self) -> float:
    """Bytes that a client sends in a round, mean over the rounds."""
    runs = self.finished
    return float(runs[0].curve('uplink_bytes')[1].mean()) if runs else 0.0

  @property
  def total(self) -> int:
    """Bytes of all clients, up and down."""
    return reporting.total_bytes(self.finished[0].row) if self.finished else 0


Outcomes = Mapping[str, Mapping[str, Outcome]]  # partition -> name -> outcome


def outcomes(
  ws: Workspace,
  config_of: Callable[[str, str, str], Mapping[str, Any]],
  names: Sequence[str],
  partitions: Sequence[str],
  models: tuple[str, str],
  seeds: Sequence[int] = (0, 1, 2),
) -> Outcomes:
  """Tunes every method and runs its best point over seeds, or finds its runs.

  Runs are in runs/PARTITION/tune/NAME, of the first model, and in
  runs/PARTITION/final/NAME, of the second. `config_of` makes the fields of a
  config, `sweep` among them, of (name, model, partition).

  Raises:
    ConfigError: a config is wrong.
    ValueError: there are no names or no partitions.
    DataError: the dataset is missing.
  """
  if not names or not partitions:
    raise ValueError(f'{names=} or {partitions=} is empty; name at least one.')
  for parts in itertools.product(names, models, partitions):
    grid.points(config_of(*parts))  # raises before any time is spent
  found: dict[str, dict[str, Outcome]] = {p: {} for p in partitions}
  small, large = models
  for partition, name in itertools.product(partitions, names):
    config = config_of(name, small, partition)
    tuned = ws.sweep(f'{partition}/tune/{name}', config)
    values = sweep_report.settings([run.row for run in tuned])[0].values
    config = {**config_of(name, large, partition), **values}
    config['sweep'] = {'seed': tuple(seeds)}
    runs = ws.sweep(f'{partition}/final/{name}', config)
    (accuracy,) = sweep_report.settings([run.row for run in runs])
    found[partition][name] = Outcome(Entry(runs, values), accuracy)
  return found


def report(found: Outcomes) -> study.Report:
  """Formats outcomes, ranked by those of the first partition."""
  first = next(iter(found.values()))
  head = ['algorithm', 'bytes up', 'MB in all']
  head += [text for p in found for text in (f'{p}, %', 'at')]
  rows = []
  order = sorted(first, key=lambda n: -np.nan_to_num(first[n].accuracy.mean))
  for name in order:
    one = first[name]
    row = [f'`{name}`', f'{one.uplink:,.0f}', f'{one.total / 1e6:,.1f}']
    for by_name in found.values():
      row += _cells(by_name[name])
    rows.append(row)
  caption = (
    'Bytes up of one client in a round; MB of all clients, up and down; means '
    'over seeds ± standard errors; "at" are the rates.'
  )
  seeds = {
    partition: {name: one.entry.final() for name, one in by_name.items()}
    for partition, by_name in found.items()
  }
  picture = study.Picture('Test accuracy, and the bytes.', panels(found), 2)
  table = study.Table(caption, head, rows)
  return study.Report([], seeds, [table], [picture], [])


def _cells(one: Outcome) -> list[str]:
  rates = ', '.join(f'{v:g}' for v in one.entry.rates.values())
  mean, error = one.accuracy.mean, one.accuracy.error
  if np.isnan(mean):
    return ['diverged', rates]
  score = f'{100 * mean:.1f}'
  score += '' if np.isnan(error) else f' ± {100 * error:.1f}'
  lost = one.accuracy.diverged
  return [score + (f' ({lost} diverged)' if lost else ''), rates]


def panels(found: Outcomes) -> list[figures.Panel]:
  """Plots accuracy by method and by bytes: a row for each partition.

  The names beside a row are its legend.
  """
  every = []
  for partition, by_name in found.items():
    title = partition.replace('_', ' ')
    rank = lambda name: np.nan_to_num(by_name[name].accuracy.mean)  # noqa: B023
    dots = {n: _dot(n, by_name[n]) for n in sorted(by_name, key=rank)}
    ranked = figures.dot_plot(_ACCURACY, dots, title)
    by_bytes = [
      line._replace(x=[by_name[line.family].total / 1e6], y=line.x)
      for line in ranked.lines
    ]
    labels = figures.MEGABYTES, _ACCURACY
    every.append(ranked)
    every.append(figures.Panel(*labels, by_bytes, title, x_scale='log'))
  return every


def _dot(name: str, one: Outcome) -> tuple[float, float, float, str]:
  _, mean, error, points, diverged, *_ = one.accuracy
  half = intervals.half_width(100 * error, points - diverged)
  low, high = np.clip([100 * mean - half, 100 * mean + half], 0, 100)
  return 100 * mean, float(low), float(high), name
