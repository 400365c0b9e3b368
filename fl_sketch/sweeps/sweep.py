"""Runs a sweep of one config: every point of a grid, or of random draws.

Points that differ only in hyperparameters and seeds share one program, in which
they run one after another or, vmapped, at once. Other fields change shapes: a
loop compiles a program for each of their values.
"""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import itertools
import json
import math
import typing
from typing import Any, NamedTuple

from fl_sketch import algorithms, experiment
from fl_sketch.data import registry as datasets
from fl_sketch.experiment import config as config_lib
from fl_sketch.experiment.config import MAPPINGS, Config, checked
from fl_sketch.experiment.config_checks import SEEDS
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.sweeps import program as program_lib, report
from fl_sketch.training import (
  identity,
  noise_secret,
  program as run_program,
  workdir_checks,
)
from fl_sketch.utils import (
  files as files_lib,
  progress as progress_lib,
  seeding,
)
import jax
import numpy as np


class Point(NamedTuple):
  """One run of a sweep.

  Attributes:
    values: of the swept fields; an option of a sketch is 'sketch.OPTION'.
    config: of the run, as `launch.train` would take it.
  """

  values: dict[str, Any]
  config: Config


@checked()
def points(config: Mapping[str, Any] | Config) -> list[Point]:
  r"""Lists the points of a config's `sweep`; seeds vary fastest.

  A field has a tuple of values, or a range {'low': l, 'high': h} from which
  ``sweep['draws']`` settings are drawn, jointly for all ranges:
  :math:`\exp U(\log l, \log h)`, to four digits.

  >>> sweep = {'client_lr': (0.1, 0.3), 'sketch': {'size': (30, 60)}}
  >>> c = {'sketch': {'kind': 'srht'}, 'sweep': sweep}
  >>> [point.values for point in points(c)][1]
  {'client_lr': 0.1, 'sketch.size': 60}

  Args:
    config: a `Config`, or its fields.

  Raises:
    ConfigError: no field is swept, a field is unknown or out of range, or there
      are draws without ranges or ranges without draws; names the field.
  """
  c = config if isinstance(config, Config) else Config.from_mapping(config)
  swept = dict(c.sweep or {})
  draws = swept.pop('draws', None)
  axes = {}
  for name, values in swept.items():
    nested = name in MAPPINGS and isinstance(values, Mapping)
    options = values if nested else {'': values}
    axes |= {f'{name}.{k}'.rstrip('.'): v for k, v in options.items()}
  axes = dict(sorted(axes.items(), key=lambda item: item[0] in SEEDS))
  if not axes:
    raise ValueError(
      'Expected values of a field to sweep, such as '
      "--config.sweep.client_lr='(0.1, 0.3)'."
    )
  ranges = {k: v for k, v in axes.items() if isinstance(v, Mapping)}
  if ranges and draws is None:
    raise ValueError(f'Expected sweep.draws beside ranges of {list(ranges)}.')
  drawn = [{}] if draws is None else _draw(ranges, draws)
  listed = [
    [(name, value) for value in _checked(name, values)]
    for name, values in axes.items()
    if name not in ranges
  ]
  grid = []
  for some, rest in itertools.product(drawn, itertools.product(*listed)):
    values = some | dict(rest)
    values = {name: values[name] for name in axes}
    grid.append(Point(values, _replace(c, values)))
  return grid


def _checked(name, values):
  """Returns the values of one field; refuses an empty or repeated list."""
  if not isinstance(values, tuple | list):
    raise ValueError(f'Expected sweep.{name}={values!r} to be a tuple.')
  if not values or len({str(v) for v in values}) < len(values):
    raise ValueError(
      f'Expected sweep.{name}={values!r} to hold values, each of them once.'
    )
  return values


def _draw(ranges, draws):
  """Draws values of the ranged fields; more draws extend the same sequence."""
  if not isinstance(draws, int) or draws < 1:
    raise ValueError(f'Expected sweep.draws={draws!r} >= 1.')
  if not ranges:
    raise ValueError(
      f"Expected a range {{'low': ..., 'high': ...}} beside {draws=}."
    )
  columns = {}
  for name, limits in ranges.items():
    hint = typing.get_type_hints(Config).get(name, str)
    if float not in (hint, *typing.get_args(hint)):
      raise ValueError(f'Expected values of sweep.{name}, which is no float.')
    if set(limits) != {'low', 'high'} or not (
      0 < limits['low'] < limits['high'] < math.inf
    ):
      raise ValueError(
        f'Expected sweep.{name}={dict(limits)} to be 0 < low < high.'
      )
    low, high = limits['low'], limits['high']
    rng = seeding.generator(0, f'sweep {name}')
    logs = rng.uniform(math.log(low), math.log(high), draws)
    columns[name] = [
      min(max(float(f'{v:.4g}'), low), high) for v in np.exp(logs)
    ]
  rows = zip(*columns.values(), strict=True)
  return [dict(zip(columns, row, strict=True)) for row in rows]


def _replace(c: Config, values: dict[str, Any]) -> Config:
  fields = dataclasses.asdict(c) | {'sweep': None}
  for name, value in values.items():
    field, _, option = name.partition('.')
    fields[field] = (
      {**(fields[field] or {}), option: value} if option else value
    )
  return Config.from_mapping(fields)


@checked()
def run(
  config: Mapping[str, Any] | Config,
  folder: str,
  *,
  data_dir: str | None = None,
  problem: experiment.OwnProblem | None = None,
  points_per_program: int | None = None,
  progress: bool = True,
) -> list[dict[str, Any]]:
  """Runs every point of a sweep, or resumes with those not finished.

  The folder gets config.json, points.jsonl, points/NUMBER/, sweep.json,
  table.md and, if a field other than seeds is swept, sweep.png. Each point gets
  config, problem, metrics and summary as `training.train` writes them, but
  without `seconds` and `parameters`; the summary adds its best test metrics
  and whether it `diverged`. The best point keeps its parameters, for
  `fl_sketch.load`. Stopping a sweep loses the points that are running. A point
  that diverges keeps its last finite numbers and stops no other. A sweep with
  other values of its fields, or with further fields, runs the points that the
  folder does not have.

  Args:
    config: a `Config`, or its fields, with a `sweep`.
    folder: of the results.
    data_dir: folder of tensorflow-datasets.
    problem: as of `experiment.build`.
    points_per_program: points that run at once; None is one on a CPU, where
      vmapped points are slower, and elsewhere what fits the device's memory.
    progress: whether to show a bar on stderr.

  Returns:
    The rows of points.jsonl: of each point its `values`, last metrics, best
    test metric, exact total bytes, `diverged`, and `seconds`, its share of the
    time of its chunk.

  Raises:
    ConfigError: the config is wrong, the data is too large for a device, or
      there are several processes. No point has run then.
    DataError: the dataset is missing, or cannot be read.
    WorkdirError: the folder holds another sweep, or points of another problem,
      or another process uses it.
  """
  if jax.process_count() > 1:
    raise ValueError(
      f'Expected processes={jax.process_count()} == 1 for a sweep.'
    )
  c = config if isinstance(config, Config) else Config.from_mapping(config)
  if points_per_program is not None and points_per_program < 1:
    raise ValueError(f'Expected {points_per_program=} >= 1.')
  if c.feed == 'host':
    raise ValueError("Expected feed='auto' or 'device': points share the data.")
  with contextlib.closing(report.Files(folder, c)) as files:
    todo = files.numbered(points(c))
    build = lambda c, **how: experiment.build(c, data_dir, problem, **how)
    left = []
    for group in groups(todo):
      _check_finished(todo, group, files, build)
      left += [group] * (not files.rows.keys() >= set(group))
    if len(left) > 1:  # else the first program is built at once
      _check(todo, left, build)
    total = sum(point.config.rounds for point in todo.values())
    done = sum(todo[i].config.rounds for i in files.rows.keys() & todo.keys())
    bar = progress_lib.Progress(total, done, c.cohort, progress)
    try:
      for group in left:
        _run_group(todo, group, files, build, points_per_program, bar)
    finally:
      bar.close()
    # A folder's points may be older than some of the swept fields.
    rows = [files.rows[i] | {'values': p.values} for i, p in todo.items()]
    files.report(rows)
    return rows


def groups(todo: Mapping[int, Point]) -> Iterator[list[int]]:
  """Yields, for each program, the numbers of the points that it can run."""
  by_program: dict[str, list[int]] = {}
  for i, point in todo.items():
    fields = files_lib.as_json(point.config)
    for name in _array_fields(point.config):
      field, _, option = name.partition('.')
      holder = fields if not option else (fields[field] or {})
      holder[option or field] = holder.get(option or field) is None
    by_program.setdefault(json.dumps(fields, sort_keys=True), []).append(i)
  yield from by_program.values()


def _check(todo, groups, build):
  """Traces a round of every program, by shapes: the first point loses no time.

  Raises:
    ConfigError: a point cannot be played; names its values.
  """
  mesh = mesh_lib.cohort_mesh()
  for group in groups:
    try:
      with checked():
        run = run_program.program(build(todo[group[0]].config), mesh)
        jax.eval_shape(run.fn, *run.args)
    except config_lib.ConfigError as e:
      values = todo[group[0]].values
      raise config_lib.ConfigError(f'Point {values}: {e}') from e


def _array_fields(c: Config) -> set[str]:
  """The config fields that a program takes as arrays; options with a dot."""
  names = {*algorithms.Hyper._fields, *SEEDS} - {'extra'}
  names |= experiment.declared(c).keys()
  if c.final_server_lr is not None:
    names.remove('server_lr')  # the schedule decays relative to it
  # Full batches and Poisson batches are as wide as the largest client.
  by_size = c.batch_size == 0 or c.batch_order == 'poisson'
  draws_data = 'seed' in datasets.REGISTRY.arguments(c.dataset)
  draws_data |= c.client_holdout > 0
  if draws_data or (by_size and c.partition != 'iid'):
    names.remove('seed')  # it draws the data, or the sizes of clients
  return names


def _check_finished(todo, group, files, build):
  """Compares the problem of the first finished point of a program."""
  number = next((i for i in group if i in files.rows), None)
  if number is not None:
    exp = build(todo[number].config, draw=False)
    workdir_checks.check_run(files.point(number), exp.config, identity.of(exp))


def _run_group(todo, group, files, build, points_per_program, bar):
  """Runs the unfinished chunks of points that share a program."""
  first = build(todo[group[0]].config)
  exps = {first.config.seed: first}

  def exp(i):
    """The experiment of a point; those of equal seed share all but numbers."""
    c = todo[i].config
    if c.seed not in exps:  # every seed shares the data, which are large
      exps[c.seed] = build(c)._replace(data=first.data)
    return experiment.reconfigured(exps[c.seed], c)

  problems: dict[Any, identity.Record] = {}

  def problem(i):
    """The problem of a point, which depends on its seed and its noise."""
    one = exp(i)
    noise = one.guarantee and one.guarantee.noise_multiplier
    if (key := (one.config.seed, noise)) not in problems:
      problems[key] = identity.of(one)
    return problems[key]

  def secret(i):
    c, resumed = todo[i].config, bool(files.rows)
    return noise_secret.of_run(c, problem(i), files.folder, resumed=resumed)

  configs = [todo[i].config for i in group]
  program = program_lib.Program(first, mesh_lib.cohort_mesh(), configs)
  most = points_per_program or program.most_points(first)
  size = math.ceil(len(group) / math.ceil(len(group) / most))
  for start in range(0, len(group), size):
    chunk = group[start : start + size]
    if files.rows.keys() >= set(chunk):
      continue
    # Padding the last chunk avoids compiling a program for its size.
    filled = chunk + chunk[-1:] * (size - len(chunk))
    secrets = first.guarantee and [secret(i) for i in filled]
    results = program.run([exp(i) for i in filled], len(chunk), bar, secrets)
    for i, result in zip(chunk, results, strict=True):
      if i not in files.rows:
        files.finish(i, todo[i].values, todo[i].config, problem(i), result)
