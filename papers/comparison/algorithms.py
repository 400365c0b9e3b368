"""Compares algorithms: each is tuned on a small model and run on a large."""

from collections.abc import Callable, Mapping, Sequence
import itertools
import pathlib
from typing import Any, NamedTuple

from fl_sketch import algorithms, reporting
from fl_sketch.experiment.config import Config, checked
from fl_sketch.reporting import figures, intervals
from fl_sketch.sweeps import grid, report, sweep
from fl_sketch.utils import extras, files, markdown
import numpy as np

_FAMILIES = {
  'fedsgd': 'dense', 'fedavg': 'dense', 'scaffold': 'dense', 'safl': 'safl',
  'iterative_sketching': 'sketching', 'decentralised': 'sketching',
  'fedsketch_privix': 'fedsketch', 'fedsketch_heaprix': 'fedsketch',
  'fedsketchgate': 'fedsketch', 'diffsketch': 'fedsketch',
  'fetchsgd': 'heavy hitters', 'sketched_sgd': 'heavy hitters',
  'cd_adam': 'adaptive codecs', 'onebit_adam': 'adaptive codecs',
  'cocktail_sgd': 'adaptive codecs',
}  # fmt: skip


_ACCURACY = 'test accuracy, %'


class Outcome(NamedTuple):
  """The accuracy and communication cost of one algorithm on one partition.

  Attributes:
    values: of the tuned fields.
    mean: of the final test accuracy over seeds; NaN if every seed diverged.
    error: standard error of that mean.
    uplink: bytes that a client sent in a round, averaged over rounds; 0 if
      every seed diverged.
    total: bytes of all clients, up and down; 0 if every seed diverged.
    seeds: number of runs.
    diverged: how many of them diverged.
    family: of the algorithm, in figures.
  """

  values: dict[str, Any]
  mean: float
  error: float
  uplink: float
  total: int
  seeds: int
  diverged: int
  family: str


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
  """Tunes every method (an algorithm) and runs its best point over seeds.

  The folder gets comparison.json, table.md, comparison.png, and the folders of
  `sweep.run`, PARTITION/tune/NAME and PARTITION/final/NAME. Started again, it
  resumes with the points that are not finished.

  Args:
    config_of: (name, model, partition) -> config fields, `sweep` among them.
    names: of the methods.
    partitions: of the data over clients.
    folder: of the results.
    models: the model to tune, and the model to run with the best point.
    seeds: of the runs; tuning uses the config's.
    data_dir: folder of tensorflow-datasets.

  Returns:
    Partition -> method -> outcome.

  Raises:
    ConfigError: there are no names or no partitions, or a config is wrong.
    DataError: the dataset is missing.
  """
  root, (small, large) = pathlib.Path(folder), models
  if not names or not partitions:
    raise ValueError(f'{names=} or {partitions=} is empty; name at least one.')
  for parts in itertools.product(names, models, partitions):
    grid.points(config_of(*parts))  # raises before any time is spent
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
      algorithm = Config.from_mapping(config | {'sweep': None}).algorithm
      outcomes[partition][name] = _outcome(algorithm, values, rows, final)
      _write(outcomes, root)
  return outcomes


def _write(outcomes, root) -> None:
  numbers = {
    partition: {name: one._asdict() for name, one in by_name.items()}
    for partition, by_name in outcomes.items()
  }
  files.replace(root / 'comparison.json', files.finite(numbers))
  files.replace(root / 'table.md', table(outcomes))
  with extras.optional_figures():
    picture = figures.draw(panels(outcomes), columns=2)
    picture.savefig(root / 'comparison.png', dpi=120)


def _outcome(algorithm, values, rows, folder) -> Outcome:
  (setting,) = report.settings(rows)
  runs = [
    reporting.read_metrics(folder / 'points' / f'{row["point"]:03d}')
    for row in rows
    if not row['diverged']
  ]
  return Outcome(
    values,
    setting.mean,
    setting.error,
    float(np.mean([row['uplink_bytes'] for row in runs[0]])) if runs else 0.0,
    reporting.total_bytes(runs[0][-1]) if runs else 0,
    len(rows),
    setting.diverged,
    _FAMILIES.get(algorithm, 'codecs'),
  )


def table(results: Mapping[str, Mapping[str, Outcome]]) -> str:
  """Formats outcomes in Markdown, ranked by those of the first partition."""
  first = next(iter(results.values()))
  head = ['algorithm', 'bytes up', 'MB in all']
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


def panels(results: Mapping[str, Mapping[str, Outcome]]) -> list[figures.Panel]:
  """Plots accuracy by method and by bytes: a row for each partition."""
  every = []
  for partition, outcomes in results.items():
    title = partition.replace('_', ' ')
    order = sorted(outcomes, key=lambda n: np.nan_to_num(outcomes[n].mean))
    dots = {name: _dot(outcomes[name]) for name in order}
    ranked = figures.dot_plot(_ACCURACY, dots, title)
    by_bytes = [
      line._replace(x=[outcomes[name].total / 1e6 for name in line.y], y=line.x)
      for line in ranked.lines[1:]
    ]
    every += [
      ranked,
      figures.Panel(
        figures.MEGABYTES, _ACCURACY, by_bytes, title, x_scale='log'
      ),
    ]
  return every


def _dot(one: Outcome) -> figures.Dot:
  mean = 100 * one.mean
  half = intervals.half_width(100 * one.error, one.seeds - one.diverged)
  low, high = np.clip([mean - half, mean + half], 0, 100)
  return figures.Dot(mean, low, high, one.family)
