"""Compares algorithms: each is tuned on a small model and run on a large."""

from collections.abc import Callable, Mapping, Sequence
import itertools
import pathlib
from typing import Any, NamedTuple

from fl_sketch import algorithms, reporting
from fl_sketch.experiment.config import checked
from fl_sketch.sweeps import report, sweep
from fl_sketch.utils import extras, markdown
import numpy as np

_STYLES = ('-', '--', ':')
_MARKERS = 'os^vD'


class Outcome(NamedTuple):
  """The accuracy and communication cost of one algorithm on one partition.

  Attributes:
    values: of the tuned fields.
    mean: of the final test accuracy over seeds; NaN if every seed diverged.
    error: standard error of that mean.
    uplink: bytes that a client sent in a round, averaged over rounds; 0 if
      every seed diverged.
    total: bytes that all clients sent; 0 if every seed diverged.
    curve: f64[points, 2], megabytes sent by all and accuracy, means over the
      seeds that did not diverge.
    diverged: number of seeds that diverged.
  """

  values: dict[str, Any]
  mean: float
  error: float
  uplink: float
  total: int
  curve: np.ndarray
  diverged: int


@checked()
def run(
  config_of: Callable[[str, str, str], Mapping[str, Any]],
  names: Sequence[str],
  partitions: Sequence[str],
  folder: str,
  *,
  models: tuple[str, str],
  seeds: Sequence[int] = (0, 1, 2),
  data_dir: str | None = None,
) -> dict[str, dict[str, Outcome]]:
  """Tunes every contestant (an algorithm) and runs its best point over seeds.

  The folder gets table.md, comparison.png, PARTITION/tune/NAME and
  PARTITION/final/NAME, the folders of `sweep.run`. Started again, it resumes
  with the points that are not finished.

  Args:
    config_of: (name, model, partition) -> config fields, `sweep` among them.
    names: of the contestants.
    partitions: of the data over clients.
    folder: of the results.
    models: the model to tune, and the model to run with the best point.
    seeds: of the runs; tuning uses the config's.
    data_dir: folder of tensorflow-datasets.

  Returns:
    Partition -> contestant -> outcome.

  Raises:
    ConfigError: there are no names or no partitions, or a config is wrong.
    DataError: the dataset is missing.
  """
  root, (small, large) = pathlib.Path(folder), models
  if not names or not partitions:
    raise ValueError(f'Expected {names=} and {partitions=} not to be empty.')
  for parts in itertools.product(names, models, partitions):
    sweep.points(config_of(*parts))  # raises before any time is spent
  outcomes: dict[str, dict[str, Outcome]] = {}
  for partition in partitions:
    outcomes[partition] = {}
    for name in names:
      parent = root / partition
      print(f'{partition}, {name}', flush=True)
      tuned = sweep.run(
        config_of(name, small, partition),
        str(parent / 'tune' / name),
        data_dir=data_dir,
      )
      values = report.settings(tuned)[0].values
      config = {**config_of(name, large, partition), **values}
      final = parent / 'final' / name
      rows = sweep.run(
        config | {'sweep': {'seed': tuple(seeds)}},
        str(final),
        data_dir=data_dir,
      )
      outcomes[partition][name] = _outcome(values, rows, final)
      (root / 'table.md').write_text(table(outcomes))
      with extras.optional_figures():
        draw(outcomes, root / 'comparison.png')
  return outcomes


def _outcome(values, rows, folder) -> Outcome:
  (setting,) = report.settings(rows)
  runs = [
    reporting.read_metrics(folder / 'points' / f'{row["point"]:03d}')
    for row in rows
    if not row['diverged']
  ]
  curves = [
    [
      (row['total_uplink_bytes'] / 1e6, row['test_accuracy'])
      for row in run
      if 'test_accuracy' in row
    ]
    for run in runs
  ]
  return Outcome(
    values,
    setting.mean,
    setting.error,
    float(np.mean([row['uplink_bytes'] for row in runs[0]])) if runs else 0.0,
    runs[0][-1]['total_uplink_bytes'] if runs else 0,
    np.mean(curves, axis=0) if runs else np.empty((0, 2)),
    setting.diverged,
  )


def table(results: Mapping[str, Mapping[str, Outcome]]) -> str:
  """Formats outcomes in Markdown, ranked by those of the first partition."""
  first = next(iter(results.values()))
  head = ['algorithm', 'bytes up', 'all, MB']
  for partition in results:
    head += [f'{partition}, %', 'at']
  lines = []
  order = sorted(first, key=lambda name: -np.nan_to_num(first[name].mean))
  for name in order:
    one = first[name]
    mark = algorithms.mark(name)
    line = [f'`{name}`{mark}', f'{one.uplink:,.0f}', f'{one.total / 1e6:,.1f}']
    for outcomes in results.values():
      line += _cells(outcomes.get(name))
    lines.append(line)
  note = f'\n{algorithms.NOTE}\n' if any(map(algorithms.mark, order)) else ''
  return markdown.table(head, lines, left=1) + note


def _cells(one: Outcome | None) -> list[str]:
  if one is None:
    return ['', '']
  rates = ', '.join(f'{v:g}' for v in one.values.values())
  if np.isnan(one.mean):
    return ['diverged', rates]
  score = f'{100 * one.mean:.1f}'
  score += '' if np.isnan(one.error) else f' ± {100 * one.error:.1f}'
  score += f' ({one.diverged} diverged)' if one.diverged else ''
  return [score, rates]


def draw(
  results: Mapping[str, Mapping[str, Outcome]], path: pathlib.Path
) -> None:
  """Draws accuracy against communication cost, one panel per partition."""
  fig = reporting.new_figure(8 * len(results), 7)
  axes = fig.subplots(1, len(results), squeeze=False)[0]
  for ax, (partition, outcomes) in zip(axes, results.items(), strict=True):
    order = sorted(outcomes, key=lambda n: -np.nan_to_num(outcomes[n].mean))
    for i, name in enumerate(sorted(outcomes)):
      megabytes, accuracy = outcomes[name].curve.T
      ax.plot(
        megabytes,
        accuracy,
        _STYLES[i // 10 % 3] + _MARKERS[i % 5],
        color=f'C{i % 10}',
        markersize=3,
        linewidth=1,
        label=name,
      )
    x, title = 'total uplink of all clients (MB)', partition.replace('_', ' ')
    ax.set(xscale='log', xlabel=x, ylabel='test accuracy', title=title)
    ax.grid(alpha=0.3)
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ax.legend(
      [handles[name] for name in order],
      order,
      fontsize=7,
      loc='center left',
      bbox_to_anchor=(1, 0.5),
    )
  path.parent.mkdir(parents=True, exist_ok=True)
  fig.savefig(path, dpi=120)
