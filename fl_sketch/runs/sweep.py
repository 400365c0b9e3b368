"""Run a sweep of one config: every point of a grid, or of random draws.

Points that differ only in hyperparameters and seeds share one program, in which
they run one after another or, vmapped, at once. Other fields change shapes: a
loop compiles a program for each of their values.
"""

from collections.abc import Callable, Mapping
import contextlib
import itertools
import json
import math
import pathlib
import shutil
from typing import Any

from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import (
  caveats,
  noise_secret,
  program as runs,
  same_run,
  saved_params,
  sweep_report,
  workdir,
)
from fl_sketch.runs.build import Experiment, OwnProblem, build, reconfigured
from fl_sketch.runs.config import Config, ConfigError, checked
from fl_sketch.runs.metrics import PathLike, Row
from fl_sketch.runs.sweep_points import Group, Point, groups, points
from fl_sketch.runs.sweep_program import Result, SweepProgram
from fl_sketch.utils import extras, files, progress as bars
import jax

Build = Callable[[Config], Experiment]


class Files(workdir.Records):
  """The files of a sweep: records, a folder for each point, a report.

  Raises WorkdirError, which names the fields, if the config differs from that
  of the folder in others than the swept ones and those of a resumed run.
  """

  def __init__(self, folder: PathLike, config: Config):
    swept = {*(config.sweep or {})}

    def allowed(old):  # points of an earlier sweep stay apart as well
      swept.update(old.get('sweep') or {})
      return _resumable(config) | {'sweep', *swept}

    point = lambda row: row['point']
    super().__init__(folder, config, 'points.jsonl', point, may_change=allowed)
    self._swept = swept

  def numbered(self, points: list[Point]) -> dict[int, Point]:
    """Number points: those of the folder keep theirs, known by their config."""
    same = set.intersection(*(_resumable(p.config) for p in points))
    same -= self._swept

    def key(fields):
      telling = {k: v for k, v in fields.items() if k not in same}
      return json.dumps(telling, sort_keys=True)

    # Of equal points a finished one counts, and of those the first.
    begun = {
      int(path.parent.name): same_run.stored_config(path.parent)
      for path in (self.folder / 'points').glob('*/config.json')
      if path.parent.name.isdecimal()
    }
    order = sorted(begun, key=lambda n: (n in self.rows, -n))
    known = {key(begun[n]): n for n in order}
    taken = self.rows.keys() | begun.keys()
    new = (n for n in itertools.count() if n not in taken)
    todo: dict[int, Point] = {}
    for point in points:
      n = known.get(key(files.as_json(point.config)))
      todo[next(new) if n is None else n] = point
    return todo

  def point(self, number: int) -> pathlib.Path:
    """Return the folder of a point."""
    return self.folder / 'points' / f'{number:03d}'

  def finish(self, number: int, point: Point, problem, result: Result):
    """Write the folder of a finished point and its row of points.jsonl."""
    run = workdir.Workdir(self.point(number), point.config, problem)
    run.begin(0)
    last = {}
    for row in result.rows:
      last |= row
      logged = (row['round'] + 1) % point.config.log_every == 0
      if logged or 'test_loss' in row or row is result.rows[-1]:
        run.write(row)
    run.close()
    last |= sweep_report.best_tests(result.rows)
    run.summarize(last, diverged=result.diverged, **result.about)
    row = {'point': number, 'values': point.values} | last
    row |= {'diverged': result.diverged, 'seconds': round(result.seconds, 3)}
    best = sweep_report.best_point([*(self.rows | {number: row}).values()])
    params = self.point(number) / 'params'
    if best == number:  # first: a point that has a row does not run again
      saved_params.write(params, len(result.rows), result.params)
    self.add(number, row)
    if best == number:
      for other in {*(self.folder / 'points').glob('*/params')} - {params}:
        shutil.rmtree(other, ignore_errors=True)

  def report(self, rows: list[Row]):
    """Write table.md, table.csv, sweep.json and, if it is there, sweep.png."""
    summary = {
      'metric': sweep_report.metric_of(rows),
      'best': files.finite(sweep_report.settings(rows)[0]._asdict()),
      # Of all in the folder: the point that has parameters.
      'best_point': sweep_report.best_point([*self.rows.values()]),
      'points': len(rows),
      'diverged': sum(row['diverged'] for row in rows),
    }
    files.write(self.folder / 'sweep.json', summary | files.measured_with())
    text = sweep_report.table(rows, self.folder / 'table.csv')
    files.write(self.folder / 'table.md', text)
    with extras.optional_figures():
      if fig := sweep_report.draw(rows):
        fig.savefig(self.folder / 'sweep.png', dpi=150)


def _resumable(config: Config) -> set[str]:
  """Return the fields that may change between two starts of a sweep."""
  return same_run.resumable(config) - {'rounds'}


@checked()
def run(
  config: Mapping[str, Any] | Config,
  folder: str,
  *,
  data_dir: str | None = None,
  problem: OwnProblem | None = None,
  points_per_program: int | None = None,
  progress: bool = True,
) -> list[Row]:
  """Run every point of a sweep, or resume with those not finished.

  The folder gets config.json, points.jsonl, points/NUMBER/ with the files of a
  run, sweep.json, table.md and sweep.png. The best point, `best_point` in
  sweep.json, keeps its parameters, for `fl_sketch.load`. A point that diverges
  keeps its last finite numbers. A sweep of other values or further fields runs
  the points that the folder lacks.

  `data_dir` and `problem` are as of `build`. Of `points_per_program`
  points at once the default is one on a CPU, where vmapped points are slower,
  and elsewhere what fits the device's memory.

  Returns the rows of points.jsonl: of each point its `values`, last metrics,
  best test metric, exact total bytes, `diverged`, and `seconds`, its share of
  the time of its chunk. Raises ConfigError if the config is wrong or the data
  too large for a device, and WorkdirError if the folder holds another sweep or
  points of another problem, or is in use.
  """
  if (processes := jax.process_count()) > 1:
    raise ValueError(f'{processes=} must be 1 for a sweep.')
  if not isinstance(config, Config):
    config = Config.from_mapping(config)
  listed = points(config)
  for _, each in listed:
    if each.keep_best is not None:
      raise each.refusal('{keep_best} has no effect in a sweep; remove it.')
  build_point = lambda config: build(config, data_dir, problem)
  with contextlib.closing(Files(folder, config)) as records:
    todo = records.numbered(listed)
    left = [
      group
      for group in groups(todo, problem)
      if _is_left(group, records, build_point)
    ]
    if len(left) > 1:  # else the first program is built at once
      for group in left:
        _check(next(iter(group.values())), build_point)
    total = sum(point.config.rounds for point in todo.values())
    done = sum(p.config.rounds for i, p in todo.items() if i in records.rows)
    bar = bars.Progress(total, done, progress)
    with contextlib.closing(bar):
      for group in left:
        _run_group(group, records, build_point, points_per_program, bar)
    # A folder's points may be older than some of the swept fields.
    rows = [records.rows[i] | {'values': p.values} for i, p in todo.items()]
    records.report(rows)
    if sentence := noise_secret.sentence(folder):
      bars.note(sentence)
    return rows


def _is_left(group: Group, records: Files, build_point: Build) -> bool:
  """Return whether some points are not finished; compare one that is."""
  finished = [i for i in group if i in records.rows]
  if finished:
    exp = build_point(group[finished[0]].config)
    point = records.point(finished[0])
    same_run.check_run(point, exp.config, same_run.problem_of(exp))
  return len(finished) < len(group)


def _check(point: Point, build_point: Build):
  """Trace a round of a point; name its values if that fails."""
  try:
    with checked():
      exp = build_point(point.config)
      run = runs.program(exp, mesh_lib.cohort_mesh())
      jax.eval_shape(run.fn, *run.args)
  except ConfigError as e:
    raise ConfigError(f'Point {point.values}: {e}') from e


def _run_group(group: Group, records: Files, build_point, at_once, bar):
  configs = [point.config for point in group.values()]
  first = build_point(configs[0])
  about = first.config, first.test_of_clients
  if all(caveats.is_left_out(*about, x) for x in ('train_loss', 'test_loss')):
    raise first.config.refusal(
      "{public_metrics} hides all metrics that rank points; set 'private'."
    )
  prepared = _preparer(first, build_point)
  program = SweepProgram(first, mesh_lib.cohort_mesh(), configs)
  most = at_once or program.most_points(first)
  size = math.ceil(len(group) / math.ceil(len(group) / most))
  for start in range(0, len(group), size):
    chunk = [*group][start : start + size]
    if records.rows.keys() >= set(chunk):
      continue
    # Padding the last chunk avoids compiling a program for its size.
    filled = chunk + chunk[-1:] * (size - len(chunk))
    pairs = [prepared(group[i].config) for i in filled]
    exps = [exp for exp, _ in pairs]
    secrets = None
    if first.guarantee is not None:
      folder = records.folder
      resumed = any((folder / 'points').glob('*/metrics.jsonl'))
      secrets = [
        noise_secret.of_run(exp.config, problem, folder, resumed=resumed)
        for exp, problem in pairs
      ]
    results = program.run(exps, len(chunk), bar, secrets)
    for i, (_, problem), result in zip(chunk, pairs, results, strict=False):
      if i not in records.rows:
        records.finish(i, group[i], problem, result)


def _preparer(first: Experiment, build_point: Build):
  """Return config -> experiment of a point, and the record of its problem."""
  # What draws the first parameters, and what the model is made with.
  model_of = lambda config: (config.seed, json.dumps(config.model_options))
  models: dict[Any, Experiment] = {model_of(first.config): first}
  problems: dict[Any, same_run.Record] = {}

  def prepared(config):
    if (model := model_of(config)) not in models:
      shared = {'data': first.data, 'test': first.test}
      models[model] = build_point(config)._replace(**shared)
    exp = reconfigured(models[model], config)
    key = model, exp.guarantee and exp.guarantee.noise_multiplier
    if key not in problems:
      problems[key] = same_run.problem_of(exp)
    return exp, problems[key]

  return prepared
