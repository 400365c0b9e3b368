"""Tunes a method's rate on one seed, and runs it over the reported ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import experiment, models
from fl_sketch.algorithms import preconditioned_sketching
import jax
import numpy as np

from ..common import comparison, workspace
from ..common.comparison import Entry
from ..common.workspace import Workspace

Fields = dict[str, Any]
_TUNED_ON = 100  # a seed that is not reported


class Task(NamedTuple):
  """A learning problem, and the four rates of each kind of method."""

  name: str  # of its folder
  fields: Fields  # of the config, those of methods apart
  dimension: int  # number of parameters
  # Numbers that `preconditioned_sketching` sends of the second moment.
  factors: int
  # Kind of optimizer -> its least rate of four, half a decade apart.
  rates: dict[str, float]

  def grid(self, kind: str) -> tuple[float, ...]:
    """The four rates that methods of this kind are tuned over."""
    start = workspace.HALF_DECADES.index(self.rates[kind])
    return workspace.HALF_DECADES[start : start + 4]


class Method(NamedTuple):
  """A method that sends a share of the bytes of the model up."""

  kind: str  # of the rates that it is tuned over
  fields: Callable[[Task], Fields]  # of its config
  share: float = 0.01
  rate: str = 'server_lr'  # the field that is tuned
  schedule: bool = True  # whether its rate can fall over a run


def task(
  ws: Workspace, name: str, fields: Fields, rates: dict[str, float]
) -> Task:
  """Makes a task from config fields and the least rate of each method kind."""
  params = experiment.build(fields, ws.data_dir).params
  means = preconditioned_sketching.row_and_column_means
  factors = jax.tree.leaves(jax.eval_shape(means, params))
  size = sum(x.size for x in factors)
  return Task(name, fields, models.num_params(params), size, rates)


def validation_score(run: workspace.PointRun) -> float:
  """Minus the loss of what clients hold out; -inf where a run diverged."""
  return -np.nan_to_num(run.final('client_loss_pooled'), nan=np.inf)


def entry(
  ws: Workspace,
  task: Task,
  method: Method,
  name: str,
  seeds: int,
  rate: float | None = None,
) -> Entry:
  """Tunes a method over half of the rounds, unless told the rate; runs it.

  Trials hold out a tenth of what clients train on, to choose by.
  """
  grid, rounds = task.grid(method.kind), task.fields['rounds']
  trial = {
    'seed': _TUNED_ON, 'eval_every': rounds // 2, 'client_holdout': 0.1,
  }  # fmt: skip
  return comparison.run(
    ws,
    f'{folder_of(task.name, name, method.share, rounds)}/{{}}',
    config(task, method, rounds, grid[-1]),
    {method.rate: ws.pick(grid[:2], grid)},
    range(seeds),
    trials=config(task, method, rounds // 2, grid[-1]) | trial,
    score=validation_score,
    rates=None if rate is None else {method.rate: rate},
  )


def config(task: Task, method: Method, rounds: int, rate: float) -> Fields:
  """The config of one run, whose rate falls along half a cosine."""
  length = {
    'rounds': rounds, 'eval_every': max(1, rounds // 10),
    'checkpoint_every': rounds,
    'rounds_per_dispatch': max(n for n in range(1, 16) if rounds % n == 0),
  }  # fmt: skip
  fields = task.fields | method.fields(task) | length
  fields[method.rate] = rate
  if method.schedule:
    fields['final_server_lr'] = 1e-5
  return fields


def folder_of(task: str, name: str, share: float, rounds: int) -> str:
  """The folder of a method's trials and runs at so many rounds.

  >>> folder_of('scratch', 'SAFL, one bit', 0.01, 400)
  'language/scratch/safl__one_bit-0.01/400'
  """
  slug = ''.join(c if c.isalnum() else '_' for c in name.lower())
  return f'language/{task}/{slug}-{share:g}/{rounds}'
