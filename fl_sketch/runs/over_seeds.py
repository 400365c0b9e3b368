"""Plot the curves of a run, or of several: means over seeds, with bands."""

from collections.abc import Iterable, Mapping, Sequence
import json
import pathlib
from typing import Any, NamedTuple

from fl_sketch.runs import figures, intervals, metrics
from fl_sketch.runs.figures import Line, Panel
from fl_sketch.runs.metrics import PathLike, Row
from fl_sketch.utils import checks, files, seeding
import numpy as np

_megabytes = lambda name: lambda row: row[f'total_{name}_bytes'] / 1e6
X = {
  'rounds': ('rounds', lambda row: row['round'] + 1),
  'up': ('uplink of all clients (MB)', _megabytes('uplink')),
  'down': ('downlink of all clients (MB)', _megabytes('downlink')),
  'bytes': (figures.MEGABYTES, lambda row: metrics.total_bytes(row) / 1e6),
}


class Group(NamedTuple):
  """Runs whose configs differ in seeds alone."""

  label: str  # folder, algorithm or fields, in which they differ from others
  folders: list[str]
  rows: list[list[Row]]  # of the metrics of each run
  config: Mapping[str, Any]  # its fields; options are NAME.OPTION
  family: str = ''  # the algorithm, whose colour it has, if no other shares it


def plot(
  runs: Sequence[PathLike],
  path: PathLike,
  *,
  x: str = 'rounds',
  y: Sequence[str] = (),
  labels: Sequence[str] = (),
) -> tuple[list[Panel], str]:
  """Draw a panel for each metric, and a line for each config, into a PNG.

  A line is the mean over runs that differ in seeds alone, with its 95 %
  t-interval, at the rounds that all of them have logged. A JSON file of the
  same name has the numbers, a CSV file the last values, with the bytes of both
  directions. Return the panels and the table of last values in Markdown.

  Args:
    runs: workdirs; of a sweep, all of its points.
    path: of the PNG; its folder is created.
    x: 'rounds'; 'up', 'down' or 'bytes': megabytes of all clients, uplink,
      downlink or both.
    y: metrics; by default the test accuracy, or else the test loss.
    labels: of the lines; by default their folders, algorithms or fields.

  Raises ValueError if a run lacks such a metric, or two are alike.
  """
  checks.choice('x', x, tuple(X))
  grouped = groups(runs, labels)
  every = [rows for group in grouped for rows in group.rows]
  names = y or [metrics.shared_metric(every) or 'train_loss']
  title = title_of([group.config for group in grouped])
  lines = lambda y: [_line(group, x, y) for group in grouped]
  panels = [panel(x, y, lines(y), title) for y in names]
  path = pathlib.Path(path)
  drawn = figures.draw(panels)
  with files.save_errors(lambda why: f'{path} cannot be written: {why}.', path):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150, format='png')
  named = {group.label: group.folders for group in grouped}
  numbers = {'runs': named, 'panels': figures.as_json(panels)}
  files.replace(path.with_suffix('.json'), numbers)
  columns = [*names, *metrics.BYTES.values()]
  last = (_last_values(group, columns) for group in grouped)
  head = 'run', 'seeds', 'rounds', *names, *metrics.BYTES
  return panels, metrics.write_table(path.with_suffix('.csv'), head, last)


def _last_values(group: Group, names: Sequence[str]) -> list[Any]:
  """Return the last metrics of a group, means over seeds; bytes in MB."""
  ends = [[metrics.values(r, n)[-1] for n in names] for r in group.rows]
  means = np.array(ends, float).mean(0) / [*[1] * (len(names) - 2), 1e6, 1e6]
  rounds = max(rows[-1]['round'] + 1 for rows in group.rows)
  name = group.label or pathlib.Path(group.folders[0]).name
  return [name, len(group.rows), rounds, *means.tolist()]


def title_of(configs: Iterable[Mapping[str, Any]]) -> str:
  """Return algorithm, data and model, as far as configs share them."""
  names = 'algorithm', 'dataset', 'model'
  rows = [[config.get(name) or '' for name in names] for config in configs]
  columns = zip(*rows, strict=True)
  return ', '.join(x[0] for x in columns if x[0] and len({*x}) == 1)


def groups(runs: Iterable[PathLike], labels: Sequence[str] = ()) -> list[Group]:
  """Group runs (workdirs, or folders of sweeps) by config, ignoring seeds."""
  by_config: dict[str, dict[str, pathlib.Path]] = {}
  for folder in _folders(runs):
    fields = read_config(folder)
    seeds = str({name: fields.pop(name, None) for name in seeding.FIELDS})
    same = by_config.setdefault(json.dumps(fields), {})
    if seeds in same:
      raise ValueError(
        f'{folder} and {same[seeds]} have the same config and seeds; plot one '
        'of them.'
      )
    same[seeds] = folder
  if not by_config:
    raise ValueError('There is no run to plot; give at least one workdir.')
  configs = [json.loads(text) for text in by_config]
  folders = [[*same.values()] for same in by_config.values()]
  if labels and len(labels) != len(folders):
    raise ValueError(
      f'labels={",".join(labels)} has {len(labels)} names for {len(folders)} '
      'lines; name each line, in the order of the runs.'
    )
  algorithms = [config.get('algorithm') or '' for config in configs]
  labels = labels or _labels(configs, folders, algorithms)
  families = algorithms
  if len({*algorithms}) < len(algorithms):
    families = [''] * len(algorithms)
  return [
    Group(label, [*map(str, paths)], metrics.read_runs(paths), config, family)
    for label, paths, config, family in zip(
      labels, folders, configs, families, strict=True
    )
  ]


def _labels(
  configs: list[dict[str, Any]],
  folders: list[list[pathlib.Path]],
  algorithms: list[str],
) -> list[str]:
  """Return short names of configs: folders, algorithms, or fields."""
  if len(configs) == 1:
    return ['']
  single = all(len(f) == 1 and f[0].parent.name != 'points' for f in folders)
  names = dict.fromkeys(n for c in configs for n in c if n != 'plugins')
  differ = [n for n in names if len({str(c.get(n)) for c in configs}) > 1]
  fields = []
  for config in configs:
    values = {name: config[name] for name in differ if name in config}
    is_path = lambda value: {*'/\\'} & {*str(value)}
    texts = [f'{k}={v}' for k, v in values.items() if not is_path(v)]
    fields.append(', '.join(texts))
  ways = [[f[0].name for f in folders]] * single + [algorithms, fields]
  numbered = [f'{i}: {text}' for i, text in enumerate(fields, start=1)]
  return next(w for w in (*ways, numbered) if len({*w}) == len(w))


def _folders(runs: Iterable[PathLike]) -> Iterable[pathlib.Path]:
  for folder in map(pathlib.Path, runs):
    if (folder / 'points.jsonl').exists():
      yield from sorted((folder / 'points').iterdir())
    else:
      yield folder


def read_config(folder: pathlib.Path) -> dict[str, Any]:
  """Read the fields of a run's config; options are NAME.OPTION."""
  path = folder / 'config.json'
  try:
    config = json.loads(path.read_text(encoding='utf-8'))
  except (OSError, json.JSONDecodeError) as e:
    raise ValueError(f'{folder} is no run, or {path} is damaged: {e}.') from e
  flat = {}
  for name, value in config.items():
    inner = value if isinstance(value, dict) else {'': value}
    flat |= {f'{name}.{k}'.rstrip('.'): v for k, v in inner.items()}
  return {name: value for name, value in flat.items() if value is not None}


def _line(group: Group, x: str, y: str) -> Line:
  for run, rows in zip(group.folders, group.rows, strict=True):
    if not metrics.values(rows, y):
      names = ', '.join(metrics.as_array(rows).dtype.names or ())
      raise ValueError(f'{run} has no metric {y!r}; set y to one of {names}.')
  return line(group.label, group.rows, x, y)._replace(family=group.family)


def line(label: str, runs: Iterable[Iterable[Row]], x: str, y: str) -> Line:
  """Average metric y over rows of runs, at the rounds that all have logged."""
  logged = lambda rows: {r['round']: r for r in rows if r.get(y) is not None}
  by_round = [*map(logged, runs)]
  common = sorted(set.intersection(*map(set, by_round)))
  if not common:
    raise ValueError(
      f'No round has {y!r} in all {len(by_round)} runs {label!r}; plot fewer '
      'of them.'
    )
  points = [[(X[x][1](run[r]), run[r][y]) for r in common] for run in by_round]
  xs, ys = np.moveaxis(np.array(points, float), -1, 0)
  return mean_line(label, xs, ys)


def mean_line(label: str, xs: Any, ys: Any, **look: Any) -> Line:
  """Average curves f64[runs, points]; the band of a single run is NaN."""
  return Line(label, np.mean(xs, axis=0), *intervals.interval(ys), **look)


def panel(x: str, y: str, lines: Sequence[Line], title: str = '') -> Panel:
  """Return the panel of a metric; losses over a decade get a log axis."""
  values = np.concatenate([np.empty(0), *(line.y for line in lines)])
  values = values[np.isfinite(values)]
  wide = values.size and 0 < 10 * values.min() < values.max()
  x_scale = 'linear' if x == 'rounds' else 'log'
  y_scale = 'log' if wide and metrics.best_of(y) is min else 'linear'
  return Panel(X[x][0], y.replace('_', ' '), lines, title, x_scale, y_scale)


def draw_run(workdir: PathLike) -> list[pathlib.Path]:
  """Draw the curves of a run into its workdir; return the files.

  accuracy_vs_rounds.png and accuracy_vs_bytes.png show the test loss of a run
  without test accuracy, loss.png both losses, clients.png metrics of clients.
  """
  workdir = pathlib.Path(workdir).absolute()
  (rows,) = metrics.read_runs([workdir])
  configured = (workdir / 'config.json').exists()
  config = read_config(workdir) if configured else {}
  title = title_of([config]) or workdir.name
  figure = lambda x: [x._replace(title=title)] if x.lines else []
  named_losses = {'train': 'train_loss', 'test': 'test_loss'}.items()
  losses = [
    line(name, [rows], 'rounds', loss)
    for name, loss in named_losses
    if metrics.values(rows, loss)
  ]
  named = {'loss.png': figure(panel('rounds', 'loss', losses))}
  if metric := metrics.shared_metric([rows]):
    for name in ('rounds', 'bytes'):
      curve = line('', [rows], name, metric)
      curve = curve._replace(family=config.get('algorithm', ''))
      named[f'accuracy_vs_{name}.png'] = figure(panel(name, metric, [curve]))
  named['clients.png'] = metrics.client_panels(rows)
  drawn = {workdir / name: panels for name, panels in named.items() if panels}
  for path, panels in drawn.items():
    figures.draw(panels).savefig(path, dpi=150, format='png')
  return list(drawn)
