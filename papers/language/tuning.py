"""Tunes a method's rate on one seed, and runs it over the reported ones."""

from collections.abc import Callable
from typing import NamedTuple

from ..common import comparison, workspace
from ..common.comparison import Entry
from ..common.workspace import Fields, Workspace

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
  return Task(name, fields, *comparison.sizes(ws, fields), rates)


def entry(
  ws: Workspace, task: Task, method: Method, name: str, seeds: int
) -> Entry:
  """Tunes a method over half of the rounds, and runs it over seeds.

  Trials hold out a tenth of what clients train on, to choose by.
  """
  grid = workspace.half_decades(task.rates[method.kind])
  rounds = task.fields['rounds']
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
    score=workspace.validation_score,
  )


def config(task: Task, method: Method, rounds: int, rate: float) -> Fields:
  """The config of one run, whose rate falls along half a cosine."""
  fields = task.fields | method.fields(task) | comparison.length(rounds)
  fields[method.rate] = rate
  if method.schedule:
    fields['final_server_lr'] = 1e-5
  return fields


def folder_of(task: str, name: str, share: float, rounds: int) -> str:
  """The folder of a method's trials and runs at so many rounds.

  >>> folder_of('scratch', 'SAFL, one bit', 0.01, 400)
  'language/scratch/safl__one_bit-0.01/400'
  """
  return f'language/{task}/{comparison.slug(name)}-{share:g}/{rounds}'
