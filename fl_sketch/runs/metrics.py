"""Read metrics files; summarise runs and clients, also in tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import csv
import io
import json
import math
import os
import pathlib
import re
from typing import Any

from fl_sketch.runs import figures
from fl_sketch.utils import files, markdown
import numpy as np

PathLike = str | os.PathLike
Row = dict[str, Any]
BYTES = {'MB up': 'total_uplink_bytes', 'MB down': 'total_downlink_bytes'}
_MODELS = {'client': "the server's model", 'personal': "clients' own models"}


class MetricsError(ValueError):
  """A metrics file is damaged; the message names file and line."""


def read_metrics(path: PathLike) -> list[Row]:
  """Read the rows of a metrics.jsonl file, but for a last line that is cut.

  path: its path or its workdir. Any other damaged line raises `MetricsError`.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    path = path / 'metrics.jsonl'
  text = path.read_text(encoding='utf-8', errors='replace')
  lines = text.splitlines(keepends=True)
  rows = []
  for number, line in enumerate(lines, start=1):
    with contextlib.suppress(json.JSONDecodeError):
      row = json.loads(line if line.strip() else '{}')
      if isinstance(row, dict):
        rows += [row] if row else []
        continue
    if number == len(lines) and not line.endswith('\n'):
      break
    raise MetricsError(
      f'{path}:{number} is no row of metrics: {line[:20]!r}; remove this line, '
      'or restore the file from a copy.'
    )
  return rows


def as_array(rows: Sequence[Row]) -> np.ndarray:
  """Convert rows of metrics to a structured array, a field for every metric.

  A field is int64 if every row has an integer that fits, else float64 with NaN.
  """
  names = dict.fromkeys(['round', *(name for row in rows for name in row)])
  columns = {name: _column([row.get(name) for row in rows]) for name in names}
  kinds = [(name, column.dtype) for name, column in columns.items()]
  array = np.empty(len(rows), kinds)
  for name, column in columns.items():
    array[name] = column
  return array


def _column(cells: list) -> np.ndarray:
  if all(type(v) is int and abs(v) < 2**63 for v in cells):
    return np.array(cells, np.int64)
  return np.array([float('nan' if v is None else v) for v in cells])


def mean(metric: str, total: Any, count: Any) -> Any:
  """Return the mean of sums of a metric; for 'perplexity' exp of the mean loss.

  >>> mean('loss', 6.0, 4), float(mean('perplexity', 0.0, 4))
  (1.5, 1.0)
  """
  value = total / count
  if metric != 'perplexity':
    return value
  with np.errstate(over='ignore'):  # infinite, of a model that diverged
    return np.exp(value)


_SMALL = {*'loss error perplexity bits mse rmse mae nll'.split()}


def ranked_by(metric: str) -> tuple[str, Callable[..., Any]]:
  """Return the name of a metric, as in `keep_best`, and `min` or `max`.

  'min ' or 'max ' before the name says which. By the name alone it is `min` for
  a loss or an error, such as 'test_mse', and `max` for any other metric.

  >>> name, best = ranked_by('min test_regret')
  >>> name, best(2.0, 1.0)
  ('test_regret', 1.0)
  """
  best, _, name = metric.rpartition(' ')
  if best in ('min', 'max'):
    return name, min if best == 'min' else max
  return metric, min if _SMALL & {*metric.split('_')} else max


def best_of(metric: str) -> Callable[..., Any]:
  """Return `min` or `max` of a metric, whichever is better; see `ranked_by`."""
  return ranked_by(metric)[1]


def total_bytes(row: Row) -> int:
  """Return the bytes of all clients, both directions, up to a metrics row."""
  return row['total_uplink_bytes'] + row['total_downlink_bytes']


def summary_line(row: Row, finished: bool) -> str:
  """Summarise the end of a run in one line, from its last row."""
  if not row:
    return 'Stopped before the first round; run the same command to start.'
  score = ('test_accuracy', 'test_loss', 'train_loss')
  name = next((name for name in score if name in row), None)
  last = '' if name is None else f'{name} {row[name]:.4f}, '
  how = 'Done after {} rounds:'
  if not finished:
    how = 'Stopped after {} rounds; run the same command to resume.'
  return (
    f'{how.format(row["round"] + 1)} {last}'
    f'{row["total_uplink_bytes"] / 1e6:.2f} MB up and '
    f'{row["total_downlink_bytes"] / 1e6:.2f} MB down in all. '
    'Its files are in'
  )


def values(rows: Iterable[Row], name: str) -> list:
  """Return the values of a metric in the rows that have it."""
  return [row[name] for row in rows if row.get(name) is not None]


def shared_metric(runs: Iterable[list[Row]]) -> str | None:
  """Return the test metric that all runs have, if any."""
  runs = list(runs)
  in_all = lambda metric: all(values(rows, metric) for rows in runs)
  return next(filter(in_all, ('test_accuracy', 'test_loss')), None)


def read_runs(paths: Iterable[PathLike]) -> list[list[Row]]:
  """Read the rows of all runs; a run without a row raises ValueError."""
  runs = []
  for path in paths:
    runs.append(read_metrics(path))
    if not runs[-1]:
      name = pathlib.Path(path).name
      raise ValueError(f'Run {name!r} has no row of metrics yet; train it.')
  return runs


def over_clients(
  sums: Mapping[str, np.ndarray], prefix: str = 'client'
) -> dict[str, float]:
  """Return statistics over clients, each of which counts once.

  For each metric: the mean, the mean over the worst tenth of the clients
  (rounded up), the quantiles 0.1, 0.5 and 0.9, and 'pooled', the mean over all
  samples, or tokens. `sums` has f[clients] of each metric over a client's
  samples, and their 'count'; clients without samples are left out.

  >>> sums = {'accuracy': np.array([4, 0, 1]), 'count': np.array([4, 0, 2])}
  >>> over = over_clients(sums)
  >>> over['client_accuracy_mean'], over['client_accuracy_worst_decile']
  (0.75, 0.5)
  """
  some = sums['count'] > 0
  statistics = {}
  for name in sorted(sums.keys() - {'count'}):
    values = np.sort(mean(name, sums[name][some], sums['count'][some]))
    tenth = -(-len(values) // 10)
    worst = values[:tenth] if best_of(name) is max else values[-tenth:]
    pooled = mean(name, sums[name].sum(), sums['count'].sum())
    statistics[f'{prefix}_{name}_mean'] = float(values.mean())
    statistics[f'{prefix}_{name}_pooled'] = float(pooled)
    statistics[f'{prefix}_{name}_worst_decile'] = float(worst.mean())
    for q in (10, 50, 90):
      statistics[f'{prefix}_{name}_q{q}'] = float(np.quantile(values, q / 100))
  return statistics


def client_panels(rows: Sequence[Row]) -> list[figures.Panel]:
  """Plot the metrics of clients by the round, a panel for each metric.

  Lines are means over clients, with bands between their quantiles 0.1 and 0.9;
  dashed ones are means over the worst tenth.
  """
  columns = sorted({name for row in rows for name in row})
  matches = [re.fullmatch('client_(.*)_mean', name) for name in columns]
  panels = []
  for name in [match[1] for match in matches if match]:
    label = f'{name.replace("_", " ")} of clients'
    panels.append(figures.Panel('round', label, [*_client_lines(rows, name)]))
  return panels


def _client_lines(rows: Sequence[Row], name: str) -> Iterable[figures.Line]:
  for prefix, label in _MODELS.items():
    of = lambda x, start=f'{prefix}_{name}_': values(rows, start + x)
    logged = [row for row in rows if f'{prefix}_{name}_mean' in row]
    if not (rounds := values(logged, 'round')):
      continue
    yield figures.Line(label, rounds, of('mean'), of('q10'), of('q90'))
    tenth = rounds, of('worst_decile')
    yield figures.Line(f'{label}, worst tenth', *tenth, family=label, variant=1)


def shown(value: Any) -> str:
  """Format a value for tables and labels; NaN as ''.

  >>> shown(0.123456), shown(12345.6), shown(float('nan')), shown('adam')
  ('0.1235', '12,346', '', 'adam')
  """
  if not isinstance(value, float):
    return str(value)
  large = 1e4 <= abs(value) < 1e9
  return '' if math.isnan(value) else f'{value:{",.0f" if large else ".4g"}}'


def write_table(
  path: pathlib.Path, head: Sequence[str], rows: Iterable[Sequence[Any]]
) -> str:
  """Write a CSV file; return the table in Markdown, numbers shortened."""
  rows, out = list(rows), io.StringIO()
  csv.writer(out, lineterminator='\n').writerows([head, *rows])
  files.replace(path, out.getvalue())
  return markdown.table(head, (map(shown, row) for row in rows), left=1)
