"""Run a sweep of one config: every point of a grid, or of random draws.

Points that differ only in hyperparameters and seeds share one program, in which
they run one after another or, vmapped, at once. Other fields change shapes: a
loop compiles a program for each of their values.
"""

from collections.abc import Callable, Mapping
import contextlib
import json
import math
from typing import Any

from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import caveats, noise_secret, program as runs, same_run
from fl_sketch.runs.build import Experiment, OwnProblem, build, reconfigured
from fl_sketch.runs.config import Config, ConfigError, checked
from fl_sketch.runs.metrics import Row
from fl_sketch.runs.sweep_files import Files
from fl_sketch.runs.sweep_points import Point, groups, points
from fl_sketch.runs.sweep_program import SweepProgram
from fl_sketch.utils import progress as bars
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

  def build_point(config: Config, **options: Any) -> Experiment:
    return build(config, data_dir, problem, **options)

  with contextlib.closing(Files(folder, config)) as files:
    todo, left = files.numbered(listed), []
    for group in groups(todo, problem):
      if finished := [i for i in group if i in files.rows]:
        exp = build_point(todo[finished[0]].config, draw=False)
        point = files.point(finished[0])
        same_run.check_run(point, exp.config, same_run.problem_of(exp))
      if len(finished) < len(group):
        left.append({i: todo[i] for i in group})
    if len(left) > 1:  # else the first program is built at once
      for group in left:
        _check(next(iter(group.values())), build_point)
    total = sum(point.config.rounds for point in todo.values())
    done = sum(p.config.rounds for i, p in todo.items() if i in files.rows)
    bar = bars.Progress(total, done, progress)
    with contextlib.closing(bar):
      for group in left:
        _run_group(group, files, build_point, points_per_program, bar)
    # A folder's points may be older than some of the swept fields.
    rows = [files.rows[i] | {'values': p.values} for i, p in todo.items()]
    files.report(rows)
    if sentence := noise_secret.sentence(folder):
      bars.note(sentence)
    return rows


def _check(point: Point, build_point: Callable[..., Experiment]):
  """Trace a round of a point; name its values if that fails."""
  try:
    with checked():
      exp = build_point(point.config)
      run = runs.program(exp, mesh_lib.cohort_mesh())
      jax.eval_shape(run.fn, *run.args)
  except ConfigError as e:
    raise ConfigError(f'Point {point.values}: {e}') from e


def _run_group(
  group: dict[int, Point],
  files: Files,
  build_point: Callable[..., Experiment],
  points_per_program: int | None,
  bar: bars.Progress,
):
  """Run the unfinished chunks of points that share a program."""
  configs = [point.config for point in group.values()]
  first = build_point(configs[0])
  about = first.config, first.test_of_clients
  if all(caveats.is_left_out(*about, x) for x in ('train_loss', 'test_loss')):
    raise first.config.refusal(
      '{public_metrics} leaves out every metric that ranks points: training '
      "clients hold the test set; set public_metrics='private'."
    )
  models, problems = {_model_of(first.config): first}, {}

  def prepared(config):
    """Return the experiment of a point and the record of its problem."""
    if (model := _model_of(config)) not in models:
      own = build_point(config)
      models[model] = own._replace(data=first.data, test=first.test)
    exp = reconfigured(models[model], config)
    key = model, exp.guarantee and exp.guarantee.noise_multiplier
    if key not in problems:
      problems[key] = same_run.problem_of(exp)
    return exp, problems[key]

  def secret_of(exp, problem):
    resumed = bool(files.rows)
    return noise_secret.of_run(
      exp.config, problem, files.folder, resumed=resumed
    )

  program = SweepProgram(first, mesh_lib.cohort_mesh(), configs)
  most = points_per_program or program.most_points(first)
  size = math.ceil(len(group) / math.ceil(len(group) / most))
  for start in range(0, len(group), size):
    chunk = [*group][start : start + size]
    if files.rows.keys() >= set(chunk):
      continue
    # Padding the last chunk avoids compiling a program for its size.
    filled = chunk + chunk[-1:] * (size - len(chunk))
    pairs = [prepared(group[i].config) for i in filled]
    secrets = first.guarantee and [secret_of(*pair) for pair in pairs]
    exps = [exp for exp, _ in pairs]
    results = program.run(exps, len(chunk), bar, secrets)
    for i, (_, problem), result in zip(chunk, pairs, results, strict=False):
      if i not in files.rows:
        files.finish(i, group[i], problem, result)


def _model_of(config: Config) -> tuple[int, str]:
  """Return what draws the first parameters, and what the model is made with."""
  return config.seed, json.dumps(config.model_options)
