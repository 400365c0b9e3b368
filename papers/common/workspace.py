"""Runs sweeps for studies: their scale, their folder, shared runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import json
import pathlib
import time
from typing import Any

from fl_sketch import runs
from fl_sketch.runs import same_run, sweep
from fl_sketch.utils import files, progress
import numpy as np

SCALES = ('quick', 'cpu', 'gpu')
Fields = dict[str, Any]  # of a config, by name
_AS_CPU: Any = object()  # None is a value that a study may pick
HALF_DECADES = tuple(float(f'{m}e{k}') for k in range(-9, 6) for m in (1, 3))


@dataclasses.dataclass(frozen=True)
class Workspace:
  """A folder in which studies run experiments, at a scale."""

  # Of this scale; runs/NAME has what was run, shared by the studies.
  folder: pathlib.Path
  scale: str = 'cpu'  # quick (on small data), cpu (on 2 cores) or gpu
  data_dir: str | None = None  # where tensorflow-datasets keeps its files
  progress: bool = True  # whether to show bars on stderr
  # The configs of what was run or found, by name.
  configs: dict[str, Any] = dataclasses.field(default_factory=dict)
  # Seconds that these took, on the machine that ran them.
  seconds: dict[str, float] = dataclasses.field(default_factory=dict)

  def pick(self, quick: Any, cpu: Any, gpu: Any = _AS_CPU) -> Any:
    """Returns the value for this scale; by default gpu takes that of cpu."""
    gpu = cpu if gpu is _AS_CPU else gpu
    return {'quick': quick, 'cpu': cpu, 'gpu': gpu}[self.scale]

  def seeds(self, quick: int = 1, cpu: int = 3) -> tuple[int, ...]:
    """Returns the first `cpu` seeds from 0; `quick` of them at quick scale."""
    return tuple(range(self.pick(quick, cpu)))

  def sweep(self, name: str, config: Mapping[str, Any]) -> list['PointRun']:
    """Plays a sweep in runs/NAME, or finds it there; without one, one run."""
    config = dict(config)
    if not config.get('sweep'):
      config['sweep'] = {'seed': (config.get('seed', 0),)}
    folder = self.folder / 'runs' / name
    rows = sweep.run(
      config, str(folder), data_dir=self.data_dir, progress=self.progress
    )
    self.configs[name] = config
    self.seconds[name] = round(sum(row['seconds'] for row in rows), 1)
    return [
      PointRun(row, folder / 'points' / f'{row["point"]:03d}') for row in rows
    ]

  def tune(
    self,
    name: str,
    config: Mapping[str, Any],
    grid: Mapping[str, Sequence[float]],
    score: Callable[['PointRun'], float],
  ) -> dict[str, float]:
    """Tunes one rate over a grid.

    The best run has the largest score, and of equal ones the lowest rate: where
    all diverge, lower ones are tried. Where its rate is an end of the grid, the
    grid grows by half a decade (by its own ratio if the rate is no half
    decade), at most three times, and never at quick scale. Returns {name of the
    rate: best value}.
    """
    (rate,) = grid
    runs = self.sweep(name, {**config, 'sweep': dict(grid)})
    rank = lambda run: (score(run), -run.values[rate])
    for _ in range(self.pick(0, 3)):
      best = max(runs, key=rank).values[rate]
      tried = [run.values[rate] for run in runs]
      if min(tried) < best < max(tried):
        break
      value = _beyond(best, sorted(tried))
      more = {**config, 'sweep': {rate: (value,)}}
      runs += self.sweep(f'{name}-{value:g}', more)
    return {rate: max(runs, key=rank).values[rate]}

  def train(self, name: str, config: Mapping[str, Any]) -> runs.Result:
    """Trains one run in runs/NAME to its end, or finds it there.

    KeyboardInterrupt where a signal stopped it; the next start resumes it.
    """
    folder = self.folder / 'runs' / name
    self.configs[name] = dict(config)
    exp = runs.build(config, self.data_dir)
    result = runs.train(exp, str(folder), progress=self.progress)
    if not result.finished:
      raise KeyboardInterrupt(f'{folder} was stopped before its last round.')
    self.seconds[name] = round(result.row['seconds'], 1)
    return result

  def cached(
    self, name: str, fields: Mapping[str, Any], compute: Callable[[], Any]
  ) -> Any:
    """Computes a result once; later calls with the same fields read its file.

    The file is runs/NAME.json; WorkdirError if it is of other fields. `fields`
    are all that the result, JSON, depends on.
    """
    path = self.folder / 'runs' / f'{name}.json'
    fields = json.loads(json.dumps(dict(fields)))
    self.configs[name] = fields
    if path.exists():
      record = json.loads(path.read_text())
      same_run.check(path, 'fields', record['fields'], fields)
    else:
      if self.progress:
        progress.note(f'Computing {path}')
      begun = time.monotonic()
      record = {'fields': fields, 'result': json.loads(json.dumps(compute()))}
      record['seconds'] = round(time.monotonic() - begun, 1)
      path.parent.mkdir(parents=True, exist_ok=True)
      files.write(path, record)
    self.seconds[name] = record['seconds']
    return record['result']


@dataclasses.dataclass(frozen=True)
class PointRun:
  """One point of a sweep."""

  row: dict[str, Any]  # of points.jsonl: values, last metrics, totals, diverged
  folder: pathlib.Path  # of its metrics

  @property
  def values(self) -> dict[str, Any]:
    """Values of the swept fields."""
    return self.row['values']

  @property
  def diverged(self) -> bool:
    """Whether a loss was not finite."""
    return self.row['diverged']

  def final(self, metric: str = 'test_accuracy', last: int = 1) -> float:
    """Mean over the last so many values of a metric; NaN if it diverged."""
    values = [] if self.diverged else self.curve(metric)[1]
    return float(np.mean(values[-last:])) if len(values) else float('nan')

  def curve(
    self, metric: str = 'test_accuracy', x: str = 'round'
  ) -> tuple[np.ndarray, np.ndarray]:
    """A metric over the rounds, or over another metric, where both are known.

    Rounds are those that were configs: the first is 1. 'total_bytes' are those
    of all clients, up and down. Both are f64[points].
    """
    rows = runs.read_metrics(self.folder / 'metrics.jsonl')
    for row in rows:
      row['total_bytes'] = runs.total_bytes(row)
    points = [(r[x], r[metric]) for r in rows if metric in r and x in r]
    xs, ys = np.array(points, float).reshape(-1, 2).T
    return xs + (x == 'round'), ys

  def reaches(
    self,
    target: float,
    metric: str = 'test_accuracy',
    x: str = 'total_uplink_bytes',
  ) -> float:
    """Returns the first x with an accuracy >= `target`; inf if never."""
    xs, ys = self.curve(metric, x)
    return first(xs, ys >= target)


def _beyond(best: float, tried: Sequence[float]) -> float:
  """The next value of a grid whose best value is its first or last."""
  up = best == tried[-1]
  if best in HALF_DECADES:
    return HALF_DECADES[HALF_DECADES.index(best) + (1 if up else -1)]
  inner = tried[-2 if up else 1] if len(tried) > 1 else best / 10**0.5
  return float(f'{best * best / inner:.3g}')


def training_score(run: PointRun) -> float:
  """Scores a run by its last 20 training losses: minus their mean.

  It is -inf if the run diverged. Tuning by it reads no test data. ValueError if
  the rows have no training loss.
  """
  if not run.diverged and not len(run.curve('train_loss')[1]):
    raise ValueError(
      f'{run.folder} has no train_loss to tune by; set public_metrics.'
    )
  return -np.nan_to_num(run.final('train_loss', last=20), nan=np.inf)


def validation_score(run: PointRun) -> float:
  """Minus the loss of what clients hold out; -inf where a run diverged."""
  return -float(np.nan_to_num(run.final('client_loss_pooled'), nan=np.inf))


def half_decades(start: float, count: int = 4) -> tuple[float, ...]:
  """So many rates from a half decade on.

  >>> half_decades(0.003)
  (0.003, 0.01, 0.03, 0.1)
  """
  first = HALF_DECADES.index(start)
  return HALF_DECADES[first : first + count]


def first(xs: np.ndarray, reached: np.ndarray) -> float:
  """Returns the first x at which something is reached; inf if never.

  >>> first(np.array([1.0, 2.0]), np.array([False, True]))
  2.0
  """
  return float(xs[reached.argmax()]) if reached.any() else float('inf')


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
  r"""Mean over seeds and its standard error :math:`s / \sqrt n`, NaN of one.

  >>> mean_and_error([1.0, 3.0])
  (2.0, 1.0)
  """
  x = np.asarray(list(values), float)
  error = x.std(ddof=1) / len(x) ** 0.5 if len(x) > 1 else float('nan')
  return float(x.mean()), float(error)


def shown(values: Iterable[float], scale: float = 1.0, digits: int = 1) -> str:
  """Mean and standard error of seeds, as tables have them.

  >>> shown([0.97, 0.99], scale=100)
  '98.0 ± 1.0'
  """
  mean, error = mean_and_error(np.asarray(list(values), float) * scale)
  if np.isnan(mean):
    return 'diverged'
  text = f'{mean:.{digits}f}'
  return text if np.isnan(error) else f'{text} ± {error:.{digits}f}'
