"""Read metrics files; average over seeds, samples and clients; rank."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import csv
import io
import json
import math
import os
import pathlib
from typing import Any

from fl_sketch.utils import UserError, files, markdown
import numpy as np
from scipy import special

PathLike = str | os.PathLike
Row = dict[str, Any]
BYTES = {'MB up': 'total_uplink_bytes', 'MB down': 'total_downlink_bytes'}
LEVEL = 0.05  # of two-sided intervals


class MetricsError(UserError, ValueError):
  """A metrics file is damaged; the message names file and line."""


def read_metrics(path: PathLike) -> list[Row]:
  """Read the rows of metrics.jsonl, but for a last line that is cut.

  path: of the file, or of its folder; in a folder without it there is no row.
  Any other damaged line raises `MetricsError`.
  """
  path = pathlib.Path(path)
  if path.suffix != '.jsonl':
    path /= 'metrics.jsonl'
  if path.parent.is_dir() and not path.exists():
    return []
  text = path.read_text(encoding='utf-8', errors='replace')
  rows, lines = [], text.splitlines(keepends=True)
  for number, line in enumerate(lines, start=1):
    try:
      row = json.loads(line)
    except json.JSONDecodeError:
      row = None
    if isinstance(row, dict):
      rows.append(row)
    elif number < len(lines) or line.endswith('\n'):
      raise MetricsError(
        f'{path}:{number} is no row of metrics: {line[:20]!r}; remove it.'
      )
  return rows


def as_array(rows: Sequence[Row]) -> np.ndarray:
  """Convert rows of metrics to a structured array, a field for every metric.

  A field is int64 if every row has an integer that fits, else float64 with NaN.
  """
  names = dict.fromkeys(['round', *(name for row in rows for name in row)])
  columns = {name: _column([row.get(name) for row in rows]) for name in names}
  kinds = [(name, column.dtype) for name, column in columns.items()]
  return np.array([*zip(*columns.values(), strict=True)], kinds)


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


def half_width(error: float, count: int, tail: float = LEVEL / 2) -> float:
  """Return half the width of a t-interval, from the standard error of a mean.

  >>> round(half_width(error=1.0, count=3), 3)
  4.303
  """
  if count < 2:
    return math.nan
  return float(special.stdtrit(count - 1, 1 - tail)) * error


def interval(values: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Return the mean over seeds, f64[...], and the ends of its 95 % t-interval.

  values: f64[seeds, ...]. The ends are NaN for one seed.

  >>> [end.round(2).tolist() for end in interval([[0.9], [1.0], [1.1]])]
  [[1.0], [0.75], [1.25]]
  """
  x = np.asarray(values, float)
  mean, count = x.mean(0), len(x)
  half = x.std(0, ddof=int(count > 1)) / count**0.5 * half_width(1.0, count)
  return mean, mean - half, mean + half


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


def total_bytes(row: Row) -> int:
  """Return the bytes of all clients, both directions, up to a metrics row."""
  return row['total_uplink_bytes'] + row['total_downlink_bytes']


def summary_line(row: Row, finished: bool) -> str:
  """Summarise the end of a run in one line, from its last row."""
  if not row:
    return 'Stopped before the first round; run the same command to start.'
  done = f'after {row["round"] + 1} rounds'
  how = f'Done {done}:'
  if not finished:
    how = f'Stopped {done}; run the same command to resume.'
  names = 'test_accuracy', 'test_loss', 'train_loss'
  scores = [f'{name} {row[name]:.4f}, ' for name in names if name in row]
  up, down = (row[name] / 1e6 for name in BYTES.values())
  sent = f'{up:.2f} MB up and {down:.2f} MB down in all'
  return f'{how} {"".join(scores[:1])}{sent}. Its files are in'


def values(rows: Iterable[Row], name: str) -> list:
  """Return the values of a metric in the rows that have it."""
  return [row[name] for row in rows if row.get(name) is not None]


def shared_metric(runs: Iterable[list[Row]]) -> str | None:
  """Return the test metric that all runs have, if any."""
  runs = list(runs)
  in_all = lambda metric: all(values(rows, metric) for rows in runs)
  return next(filter(in_all, ('test_accuracy', 'test_loss')), None)


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
    worst = values[:tenth] if ranked_by(name)[1] is max else values[-tenth:]
    pooled = mean(name, sums[name].sum(), sums['count'].sum())
    statistics[f'{prefix}_{name}_mean'] = float(values.mean())
    statistics[f'{prefix}_{name}_pooled'] = float(pooled)
    statistics[f'{prefix}_{name}_worst_decile'] = float(worst.mean())
    for q in (10, 50, 90):
      statistics[f'{prefix}_{name}_q{q}'] = float(np.quantile(values, q / 100))
  return statistics


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
  files.write(path, out.getvalue())
  return table(head, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Return a table in Markdown, its numbers shortened."""
  return markdown.table(head, (map(shown, row) for row in rows), left=1)
