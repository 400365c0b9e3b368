"""Tunes methods by random search, and runs them over the reported seeds."""

from typing import Any, NamedTuple

from fl_sketch import rounds, runs
from fl_sketch.rounds import comms
import jax
import numpy as np

from ..common import comparison, workspace
from ..common.workspace import Workspace
from . import methods
from .methods import METHODS
from .tasks import Fields, Task

TRIALS = 16  # random settings of each method
NEAR = 1.6, 2.5  # factors on and under a rate of the best: four more settings
PART = 5  # a trial has the share 1 / PART of the steps
FINALISTS = 4  # settings that run with all steps, on another seed
TUNED_ON = 100, 101  # seeds of trials and finalists, which are not reported
HELD_OUT = 0.1  # of the training data, in trials, to choose by


class Record(NamedTuple):
  """A method's tuned values and its runs over the reported seeds."""

  tuned: dict[str, float]
  trials: list[list[Any]]  # [values, loss on what was held out], best first
  final: list[float | None]  # the metric by seed; None of a run that diverged
  curves: list[list[float]]  # the metric by seed, at each evaluation
  at: list[int]  # rounds of the evaluations
  up: float  # bytes of a worker in a run, up
  down: float  # and down
  rounds: int

  @property
  def values(self) -> np.ndarray:
    """The metric by seed; NaN of a run that diverged."""
    return np.array(self.final, float)


def name_of(task: str, method: str, share: float) -> str:
  """The name of a record.

  >>> name_of('digits', 'SAFL', 0.01)
  'trained/digits/safl-0.01'
  """
  return f'trained/{task}/{comparison.slug(method)}-{share:.3g}'


def record(ws: Workspace, task: Task, name: str, share: float) -> Record:
  """Tunes a method on held-out data and runs it, or reads what was found."""
  method = METHODS[name]
  label, values = method.choice
  folder = name_of(task.name, name, share)
  searched = {
    'ranges': dict(method.ranges), label: values,
    'trials': ws.pick(4, TRIALS), 'near': NEAR, 'part': PART,
    'finalists': FINALISTS, 'tuned_on': TUNED_ON, 'held_out': HELD_OUT,
    'seeds': list(task.seeds),
  }  # fmt: skip
  first = _config(task, method, share, {label: values[0]})
  fields = {'search': searched, 'config': first}
  found = ws.cached(folder, fields, lambda: _found(ws, task, name, share))
  return Record(**found)


def cost(
  ws: Workspace, task: Task, name: str, share: float, tuned: dict[str, float]
) -> tuple[float, float]:
  """What one worker's step takes: seconds, and numbers kept between rounds.

  The seconds are of gradient, compression and update; the numbers are in units
  of those that are trained.
  Raises ValueError if the run diverged, and so ended early.
  """
  method, steps = METHODS[name], 10 * task.local_steps
  short = task._replace(steps=steps, workers=1)
  fields = _config(short, method, share, tuned)
  few = {'eval_every': fields['rounds'], 'test_slice': '0:32'}
  fields |= few  # whose evaluation takes no time
  folder = f'{name_of(task.name, name, share)}/cost'

  def measured():
    # The first point of a program waits for its compilation.
    twice = fields | {'sweep': {'seed': (0, 1)}}
    _, second = ws.sweep(f'{folder}/runs', twice)
    if second.diverged:
      raise ValueError(f'{folder}: the run diverged and ended early')
    exp = runs.build(fields, ws.data_dir)
    init = lambda params: rounds.init(exp.make(exp.hyper), params, 1)
    kept = comms.client_rows(jax.eval_shape(init, exp.params))
    numbers = sum(x.size for x in kept)
    return second.row['seconds'] / steps, numbers / task.dimension

  return tuple(ws.cached(folder, fields, measured))


def _found(ws, task, name, share) -> dict[str, Any]:
  method, folder = METHODS[name], name_of(task.name, name, share)
  trials = _trials(ws, task, method, share, folder)

  def loss_of_all_steps(values):
    fields = _held_out(_config(task, method, share, values), TUNED_ON[1])
    (run,) = ws.sweep(f'{folder}/finalist-{_slug(values)}', fields)
    return -workspace.validation_score(run)

  finalists = [values for values, _ in trials[:FINALISTS]]
  tuned = min(finalists, key=loss_of_all_steps)
  fields = _config(task, method, share, tuned)
  seeds = {'sweep': {'seed': tuple(task.seeds)}}
  runs = ws.sweep(f'{folder}/runs-{_slug(tuned)}', fields | seeds)
  return _record(task, tuned, trials, runs, fields)._asdict()


def _trials(ws, task, method, share, folder) -> list[list[Any]]:
  """[values, held-out loss] of all settings, the best first."""
  short = task._replace(steps=task.steps // PART)
  label, choices = method.choice
  found = []

  def run(name, values, swept):
    fields = _held_out(_config(short, method, share, values), TUNED_ON[0])
    for r in ws.sweep(f'{folder}/{name}', fields | {'sweep': swept}):
      own, loss = values | r.values, -workspace.validation_score(r)
      found.append([{k: own[k] for k in (*ranges, label)}, loss])

  ranges = {
    k: {'low': low, 'high': high} for k, (low, high) in method.ranges.items()
  }
  draws = ws.pick(4, TRIALS) // len(choices)
  for value in choices:
    run(f'trials-{value:g}', {label: value}, ranges | {'draws': draws})
  best, _ = min(found, key=lambda trial: trial[1])
  for rate in ranges:
    factors = NEAR[: len(NEAR) // len(ranges)]
    near = [best[rate] * x for f in factors for x in (1 / f, f)]
    run(f'near-{rate}', best, {rate: tuple(float(f'{x:.4g}') for x in near)})
  return sorted(found, key=lambda trial: trial[1])


def _slug(values: dict[str, float]) -> str:
  return '-'.join(f'{value:g}' for value in values.values())


def _held_out(fields: Fields, seed: int) -> Fields:
  """A run on a seed apart that holds data out, and is evaluated at its end."""
  apart = {'seed': seed, 'client_holdout': HELD_OUT}
  return fields | apart | {'eval_every': fields['rounds']}


def _config(task, method, share, values) -> Fields:
  label, _ = method.choice
  drawn = {k: v for k, v in values.items() if k != label}
  return methods.config(task, method, share, **{label: values[label]}) | drawn


def _record(task, tuned, trials, runs, fields) -> Record:
  scale = 1 if task.is_loss else 100
  curves = [run.curve(task.metric) for run in runs]
  final = [scale * run.final(task.metric) for run in runs]
  workers = fields['cohort']
  sent = lambda way: (
    float(np.mean([r.row[f'total_{way}link_bytes'] for r in runs])) / workers
  )
  return Record(
    tuned,
    trials,
    [x if np.isfinite(x) else None for x in final],
    [(scale * ys).round(5).tolist() for _, ys in curves],
    [int(x) for x in max((at for at, _ in curves), key=len)],
    sent('up'),
    sent('down'),
    fields['rounds'],
  )
