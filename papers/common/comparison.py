"""Compares methods: each is tuned on one seed and runs over several.

A comparison maps the key of a method, such as its name, to its `Entry`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fl_sketch import models, runs
from fl_sketch.algorithms import preconditioned_sketching
from fl_sketch.runs import figures
import jax
import numpy as np

from . import study, summaries, verdicts, workspace
from .workspace import Fields, Workspace


class Entry(NamedTuple):
  """A method of a comparison."""

  runs: Sequence[workspace.PointRun]  # one a seed
  rates: dict[str, float]  # at which they ran, by field
  rounds: int = 0  # of each run

  def final(
    self, metric: str = 'test_accuracy', last: int = 1, scale: float = 1.0
  ) -> np.ndarray:
    """The mean of the last values of a metric, by seed; NaN if it diverged."""
    return np.array([scale * run.final(metric, last) for run in self.runs])

  @property
  def rate(self) -> float:
    """The rate, where one is tuned."""
    (rate,) = self.rates.values()
    return rate

  @property
  def accuracy(self) -> np.ndarray:
    """Test accuracy in per cent by seed, mean of the last two evaluations."""
    return self.final(last=2, scale=100)

  @property
  def loss(self) -> np.ndarray:
    """Mean of the last 20 training losses by seed."""
    return self.final('train_loss', last=20)

  def total(self, *ways: str) -> float:
    """Bytes of all clients in a run, 'up', 'down' or both, mean over seeds."""
    names = [f'total_{way}link_bytes' for way in ways or ('up', 'down')]
    return float(np.mean([sum(r.row[n] for n in names) for r in self.runs]))


Comparison = Mapping[Any, Any]  # to an `Entry`, or what columns take


def slug(name: str) -> str:
  """A method's name as that of a folder.

  >>> slug('SAFL, one bit')
  'safl__one_bit'
  """
  return ''.join(c if c.isalnum() else '_' for c in name.lower())


def length(rounds: int) -> Fields:
  """The fields of a run of so many rounds with ten evaluations."""
  return {
    'rounds': rounds, 'eval_every': max(1, rounds // 10),
    'checkpoint_every': rounds,
    'rounds_per_dispatch': max(n for n in range(1, 16) if rounds % n == 0),
  }  # fmt: skip


def sizes(ws: Workspace, fields: Fields) -> tuple[int, int]:
  """Counts a problem's parameters, and what is sent of the second moment.

  The latter are the numbers of an exchange of `preconditioned_sketching`.
  """
  params = runs.build(fields, ws.data_dir).params
  means = preconditioned_sketching.row_and_column_means
  factors = jax.tree.leaves(jax.eval_shape(means, params))
  return models.num_params(params), sum(x.size for x in factors)


def run(
  ws: Workspace,
  folder: str,
  fields: Fields,
  grid: Mapping[str, Sequence[float]],
  seeds: Sequence[int],
  *,
  trials: Fields | None = None,
  score: Callable[[workspace.PointRun], float] = workspace.training_score,
  rates: Mapping[str, float] | None = None,
) -> Entry:
  """Tunes a method's rate on one seed, unless told it, and runs it over seeds.

  In `folder`, '{}' becomes 'tune' or 'race'. `grid` has the name of the rate
  and its values, `trials` fields of the trials alone, whose largest `score` is
  the best; with `rates`, nothing is tuned.
  """
  if rates is None:
    trial = fields | (trials or {})
    rates = ws.tune(folder.format('tune'), trial, grid, score)
  swept = {'sweep': {'seed': tuple(seeds)}}
  config: Fields = fields | dict(rates) | swept
  runs = ws.sweep(folder.format('race'), config)
  return Entry(runs, dict(rates), config.get('rounds', 0))


def above(
  text: str,
  some: Entry,
  other: Entry,
  relation: str = '>=',
  points: float = 0.0,
) -> verdicts.Claim:
  """A claim on the accuracy of some above that of another, paired by seed."""
  apart = some.accuracy - other.accuracy
  return verdicts.of_seeds(text, apart, relation, points)


def table(
  caption: str,
  entries: Comparison,
  columns: Mapping[str, Callable[[Any, Entry], Any]],
) -> study.Table:
  """A row for each method; columns are head -> cell of (key, entry)."""
  rows = [
    [str(cell(*item)) for cell in columns.values()] for item in entries.items()
  ]
  return study.Table(caption, [*columns], rows)


def shown(digits: int, values: Callable[[Any], Any]) -> Callable:
  """A column of means over seeds ± standard errors."""
  return lambda key, entry: workspace.shown(values(entry), digits=digits)


def interval(digits: int, values: Callable[[Any], Any]) -> Callable:
  """A column of intervals of 95 %; empty where there is one seed."""

  def cell(_, entry):
    _, low, high = summaries.interval(values(entry))
    return '' if np.isnan(low) else f'{low:.{digits}f} to {high:.{digits}f}'

  return cell


def rates(_: Any, entry: Entry) -> str:
  """A column of the rates."""
  return ', '.join(f'{value:g}' for value in entry.rates.values())


def by_bytes(
  entries: Comparison,
  look: Callable[[Any], Mapping[str, Any]],
  values: Callable[[Entry], Any] = lambda entry: entry.accuracy,
  label: str = 'test accuracy, %',
  title: str = '',
  **options: Any,
) -> figures.Panel:
  """Plots a metric, and `values` at the end, against the bytes of all clients.

  A line looks as `look` says of its key: its label, family and variant.
  """
  lines = []
  for key, entry in entries.items():
    shown = {'runs': entry.runs, 'finals': values(entry), **look(key)}
    lines += summaries.against_bytes(**shown, **options)
  return figures.Panel(figures.MEGABYTES, label, lines, title, x_scale='log')


def dots(
  entries: Comparison,
  names: Mapping[Any, tuple[str, str]],
  values: Callable[[Entry], Any] = lambda entry: entry.accuracy,
  label: str = 'test accuracy, %',
) -> figures.Panel:
  """Plots a dot for each key of `names`, which has its name and method."""
  lines = []
  for key, (name, method) in names.items():
    mean, low, high = map(float, summaries.interval(values(entries[key])))
    dot = figures.Line('', [mean], [name], [low], [high], method, points=True)
    lines.append(dot)
  return figures.Panel(label, '', lines)
