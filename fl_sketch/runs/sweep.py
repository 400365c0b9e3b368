"""Run a sweep of one config: every point of a grid, or of random draws.

Points that differ only in hyperparameters and seeds share one program, in which
they run one after another or, vmapped, at once. Other fields change shapes: a
loop compiles a program for each of their values.
"""

from collections.abc import Iterator, Mapping
import contextlib
import json
import math
from typing import Any

from fl_sketch import algorithms, data as datasets
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import (
  caveats,
  noise_secret,
  program as runs,
  same_run,
  sweep_files,
  sweep_program as program_lib,
)
from fl_sketch.runs.build import OwnProblem, build, reconfigured
from fl_sketch.runs.config import Config, ConfigError, checked
from fl_sketch.runs.metrics import Row
from fl_sketch.runs.parts import declared
from fl_sketch.runs.sweep_points import Point, points
from fl_sketch.utils import files as files_lib, progress as bars, seeding
import jax


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
      raise each.refusal(
        '{keep_best} has no effect in a sweep: it keeps the last parameters of '
        'its best point.'
      )
  with contextlib.closing(sweep_files.Files(folder, config)) as files:
    todo = files.numbered(listed)

    def build_point(config, **options):
      return build(config, data_dir, problem, **options)

    left = []
    for group in groups(todo, problem):
      if finished := [i for i in group if i in files.rows]:
        exp = build_point(todo[finished[0]].config, draw=False)
        point = files.point(finished[0])
        same_run.check_run(point, exp.config, same_run.problem_of(exp))
      if not files.rows.keys() >= set(group):
        left.append(group)
    if len(left) > 1:  # else the first program is built at once
      _check(todo, left, build_point)
    total = sum(point.config.rounds for point in todo.values())
    done = sum(todo[i].config.rounds for i in files.rows.keys() & todo.keys())
    bar = bars.Progress(total, done, config.cohort, progress)
    with contextlib.closing(bar):
      for group in left:
        _run_group(todo, group, files, build_point, points_per_program, bar)
    # A folder's points may be older than some of the swept fields.
    rows = [files.rows[i] | {'values': p.values} for i, p in todo.items()]
    files.report(rows)
    if sentence := noise_secret.sentence(folder):
      bars.note(sentence)
    return rows


def groups(
  todo: Mapping[int, Point], problem: OwnProblem | None = None
) -> Iterator[list[int]]:
  """Yield, for each program, the numbers of the points that it can run."""
  by_program: dict[str, list[int]] = {}
  for i, point in todo.items():
    fields = files_lib.as_json(point.config)
    for name in _array_fields(point.config, problem):
      field, _, option = name.partition('.')
      holder = fields if not option else (fields[field] or {})
      holder[option or field] = holder.get(option or field) is None
    by_program.setdefault(json.dumps(fields, sort_keys=True), []).append(i)
  yield from by_program.values()


def _check(todo, groups, build):
  """Trace a round of every program; name the values of a point that fails."""
  mesh = mesh_lib.cohort_mesh()
  for group in groups:
    try:
      with checked():
        run = runs.program(build(todo[group[0]].config), mesh)
        jax.eval_shape(run.fn, *run.args)
    except ConfigError as e:
      raise ConfigError(f'Point {todo[group[0]].values}: {e}') from e


def _array_fields(config: Config, problem: OwnProblem | None) -> set[str]:
  """Return config fields that a program takes as arrays; options with a dot."""
  names = {*algorithms.Hyper._fields, *seeding.FIELDS} - {'extra', 'frozen'}
  names |= declared(config).keys()
  if config.final_server_lr is not None:
    names.remove('server_lr')  # the schedule decays relative to it
  # Full batches and Poisson batches are as wide as the largest client.
  by_size = config.batch_size == 0 or config.batch_order == 'poisson'
  draws_data = 'seed' in datasets.REGISTRY.arguments(config.dataset)
  draws_data |= config.client_holdout > 0 or config.personal_steps is not None
  if draws_data or (by_size and config.partition != 'iid'):
    names.remove('seed')  # it draws the data, or the sizes of clients
  if callable(problem):  # its data and its model may depend on these
    names -= {'seed', *(n for n in names if n.startswith('model_options.'))}
  return names


def _run_group(todo, group, files, build, points_per_program, bar):
  """Run the unfinished chunks of points that share a program."""
  first = build(todo[group[0]].config)
  about = first.config, first.test_of_clients
  if all(caveats.is_left_out(*about, x) for x in ('train_loss', 'test_loss')):
    raise first.config.refusal(
      '{public_metrics} leaves out every metric that ranks points: training '
      "clients hold the test set; set public_metrics='private'."
    )
  # What draws the first parameters, and what the model is made with.
  made_of = lambda config: (config.seed, json.dumps(config.model_options))
  exps = {made_of(first.config): first}

  def exp(i):
    """Return the experiment of a point, which may share all but numbers."""
    config = todo[i].config
    if (key := made_of(config)) not in exps:  # the data are shared
      exps[key] = build(config)._replace(data=first.data, test=first.test)
    return reconfigured(exps[key], config)

  problems: dict[Any, same_run.Record] = {}

  def problem(i):
    """Return the problem of a point, which depends on its model and noise."""
    one = exp(i)
    noise = one.guarantee and one.guarantee.noise_multiplier
    if (key := (made_of(one.config), noise)) not in problems:
      problems[key] = same_run.problem_of(one)
    return problems[key]

  def secret(i):
    config, resumed = todo[i].config, bool(files.rows)
    return noise_secret.of_run(
      config, problem(i), files.folder, resumed=resumed
    )

  configs = [todo[i].config for i in group]
  program = program_lib.SweepProgram(first, mesh_lib.cohort_mesh(), configs)
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
        files.finish(i, todo[i], problem(i), result)
