"""Plot the curves of a run, or of several: means over seeds, with bands."""

from collections.abc import Iterable, Mapping, Sequence
import json
import pathlib
from typing import Any, NamedTuple

from fl_sketch.runs import figures, metrics, same_run
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
_LOSSES = {'train': 'train_loss', 'test': 'test_loss'}


def draw_run(workdir: PathLike) -> list[pathlib.Path]:
  """Draw the curves of a run into its workdir; return the files.

  accuracy_vs_rounds.png and accuracy_vs_bytes.png show the test loss of a run
  without test accuracy, loss.png both losses.
  """
  workdir = pathlib.Path(workdir).absolute()
  rows, config = _read_rows(workdir), _read_config(workdir)
  title = _title([config]) or workdir.name
  losses = [
    line(label, [rows], 'rounds', name)
    for label, name in _LOSSES.items()
    if metrics.values(rows, name)
  ]
  pictures = {}
  if losses:
    pictures['loss.png'] = [panel_of('rounds', 'loss', losses, title)]
  if metric := metrics.shared_metric([rows]):
    family = config.get('algorithm', '')
    for x in ('rounds', 'bytes'):
      curve = line('', [rows], x, metric)._replace(family=family)
      panel = panel_of(x, metric, [curve], title)
      pictures[f'accuracy_vs_{x}.png'] = [panel]
  drawn = {workdir / name: panels for name, panels in pictures.items()}
  for path, panels in drawn.items():
    figures.draw(panels).savefig(path, dpi=150, format='png')
  return list(drawn)


def _read_rows(folder: pathlib.Path) -> list[Row]:
  if rows := metrics.read_metrics(folder):
    return rows
  raise ValueError(f'Run {folder.name!r} has no row of metrics yet; train it.')


def _read_config(folder: pathlib.Path) -> dict[str, Any]:
  """Read the fields of a run that are set; options are NAME.OPTION."""
  flat = {}
  for name, value in same_run.stored_config(folder).items():
    inner = value if isinstance(value, dict) else {'': value}
    flat |= {f'{name}.{k}'.rstrip('.'): v for k, v in inner.items()}
  return {name: value for name, value in flat.items() if value is not None}


def _title(configs: Iterable[Mapping[str, Any]]) -> str:
  """Return algorithm, data and model, as far as configs share them."""
  names = 'algorithm', 'dataset', 'model'
  values = [{config.get(name) or '' for config in configs} for name in names]
  shared = [one.pop() for one in values if len(one) == 1]
  return ', '.join(filter(None, shared))


def line(label: str, runs: Sequence[Sequence[Row]], x: str, y: str) -> Line:
  """Average metric y over rows of runs, at the rounds that all have logged."""
  logged = lambda rows: {r['round']: r for r in rows if r.get(y) is not None}
  by_round = [*map(logged, runs)]
  common = sorted(set.intersection(*map(set, by_round)))
  if not common:
    names = ', '.join(dict.fromkeys(k for row in runs[0] for k in row))
    raise ValueError(
      f'No round has {y!r} in all runs of a line; set y to one of {names}.'
    )
  points = [[(X[x][1](run[r]), run[r][y]) for r in common] for run in by_round]
  xs, ys = np.moveaxis(np.array(points, float), -1, 0)
  return mean_line(label, xs, ys)


def mean_line(label: str, xs: Any, ys: Any, **look: Any) -> Line:
  """Average curves f64[runs, points]; the band of a single run is NaN."""
  return Line(label, np.mean(xs, axis=0), *metrics.interval(ys), **look)


def panel_of(x: str, y: str, lines: Sequence[Line], title: str) -> Panel:
  """Return the panel of a metric; losses over a decade get a log axis."""
  values = np.concatenate([line.y for line in lines])
  values = values[np.isfinite(values)]
  wide = values.size and 0 < 10 * values.min() < values.max()
  x_scale = 'linear' if x == 'rounds' else 'log'
  y_scale = 'log' if wide and metrics.ranked_by(y)[1] is min else 'linear'
  return Panel(X[x][0], y.replace('_', ' '), lines, title, x_scale, y_scale)


class Group(NamedTuple):
  """Runs whose configs differ in seeds alone."""

  label: str  # folder, algorithm or fields, in which they differ from others
  folders: list[pathlib.Path]
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
  title = _title([group.config for group in grouped])
  if seeds := sorted({len(group.rows) for group in grouped} - {1}):
    counts = ' or '.join(map(str, seeds))
    title += f'\nmeans of {counts} seeds; bands: 95 % intervals'
  panels = []
  for name in names:
    lines = []
    for group in grouped:
      curve = line(group.label, group.rows, x, name)
      lines.append(curve._replace(family=group.family))
    panels.append(panel_of(x, name, lines, title))
  path = pathlib.Path(path)
  drawn = figures.draw(panels)
  with files.save_errors(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=150, format='png')
  named = {group.label: [*map(str, group.folders)] for group in grouped}
  numbers = {'runs': named, 'panels': figures.as_json(panels)}
  files.write(path.with_suffix('.json'), numbers)
  head = 'run', 'seeds', 'rounds', *names, *metrics.BYTES
  last = [_last_values(group, names) for group in grouped]
  return panels, metrics.write_table(path.with_suffix('.csv'), head, last)


def _last_values(group: Group, names: Sequence[str]) -> list[Any]:
  last = lambda name: [metrics.values(rows, name)[-1] for rows in group.rows]
  means = [float(np.mean(last(name))) for name in names]
  sent = [np.mean(last(name)) / 1e6 for name in metrics.BYTES.values()]
  rounds = max(rows[-1]['round'] + 1 for rows in group.rows)
  name = group.label or group.folders[0].name
  return [name, len(group.rows), rounds, *means, *map(float, sent)]


def groups(runs: Iterable[PathLike], labels: Sequence[str] = ()) -> list[Group]:
  """Group runs (workdirs, or folders of sweeps) by config, ignoring seeds."""
  by_config: dict[str, dict[str, pathlib.Path]] = {}
  for folder in _folders(runs):
    if not (fields := _read_config(folder)):
      raise ValueError(f'{folder} is no run: it has no config.json.')
    seeds = str({name: fields.pop(name, None) for name in seeding.FIELDS})
    same = by_config.setdefault(json.dumps(fields), {})
    if seeds in same:
      raise ValueError(
        f'{folder} and {same[seeds]} have the same config and seeds.'
      )
    same[seeds] = folder
  if not by_config:
    raise ValueError('There is no run to plot; give at least one workdir.')
  configs = [json.loads(text) for text in by_config]
  folders = [[*same.values()] for same in by_config.values()]
  if labels and len(labels) != len(folders):
    raise ValueError(f'{labels=} must name each of {len(folders)} lines.')
  algorithms = [config.get('algorithm') or '' for config in configs]
  labels = labels or _labels(configs, folders, algorithms)
  distinct = len({*algorithms}) == len(algorithms)
  columns = labels, folders, configs, algorithms
  return [
    Group(label, same, [*map(_read_rows, same)], config, algorithm * distinct)
    for label, same, config, algorithm in zip(*columns, strict=True)
  ]


def _folders(runs: Iterable[PathLike]) -> Iterable[pathlib.Path]:
  for folder in map(pathlib.Path, runs):
    if (folder / 'points.jsonl').exists():
      points = (folder / 'points').iterdir()
      yield from sorted(points, key=lambda point: int(point.name))
    else:
      yield folder


def _labels(configs, folders, algorithms: list[str]) -> list[str]:
  if len(configs) == 1:
    return ['']
  single = all(len(f) == 1 and f[0].parent.name != 'points' for f in folders)
  ways = [[f[0].name for f in folders]] * single + [algorithms]
  names = dict.fromkeys(name for c in configs for name in c)
  differ = [n for n in names if len({str(c.get(n)) for c in configs}) > 1]
  unset = ', '.join(f'{name}=none' for name in differ)
  fields = [
    ', '.join(f'{name}={config[name]}' for name in differ if name in config)
    or unset
    for config in configs
  ]
  return next(way for way in (*ways, fields) if len({*way}) == len(way))
