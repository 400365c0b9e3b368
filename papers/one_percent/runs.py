"""Tunes and runs the methods at equal rounds, equal bytes or more rounds."""

from typing import NamedTuple

from fl_sketch import reporting
import numpy as np

from ..common.summaries import Runs
from ..common.workspace import Workspace
from . import methods
from .tasks import Fields, Task

_TUNED_ON = 100  # a seed that is not reported
_SEEDS = 5
_MORE_SEEDS = 20  # of differences that noise of five seeds would hide
LONGER = 0.05  # of the bytes of dense FedAdam, for more rounds


class Race(NamedTuple):
  """Runs of a method over seeds.

  Attributes:
    runs: one a seed.
    rate: at which they ran.
    rounds: of each.
  """

  runs: Runs
  rate: float
  rounds: int


Races = dict[tuple[str, float], Race]  # (method, share) -> runs


def equal_rounds(ws: Workspace, task: Task) -> Races:
  """Every method over the rounds of the task; a few methods at quick scale."""
  names = ws.pick(methods.REHEARSED, tuple(methods.METHODS))
  return {
    (name, share): _race(ws, task, name, share, task.fields['rounds'])
    for name in names
    for share in methods.METHODS[name].shares
    if share in (1.0, *task.shares)
  }


def equal_bytes(ws: Workspace, task: Task, races: Races) -> Races:
  """Every method over the rounds that the bytes of SAFL at d / 100 pay for.

  Bytes are those of all clients, up and down. A method is tuned for its rounds
  if they are fewer than those of the task; those for which they pay less than
  one are left out, and so are methods at a thousandth.
  """
  budget = spent(races[methods.SAFL, 0.01])
  out: Races = {}
  for (name, share), race in races.items():
    rounds = int(budget / spent(race) * race.rounds)
    if share < 0.01 or not rounds:
      continue
    same = abs(rounds - race.rounds) <= 0.02 * race.rounds
    rate = race.rate if rounds > race.rounds else None
    if not same:
      race = _race(ws, task, name, share, rounds, rate)
    out[name, share] = race
  return out


def longer(ws: Workspace, task: Task, races: Races, name: str) -> Race:
  """A method at d / 100 with 5 % of dense FedAdam's bytes, by a cosine."""
  race = races[name, 0.01]
  budget = LONGER * spent(races[methods.DENSE, 1.0])
  rounds = int(budget / spent(race) * race.rounds)
  falling = task._replace(cosine=True)
  return _race(ws, falling, name, 0.01, rounds, race.rate)


def spent(race: Race) -> float:
  """The bytes that all clients send and receive in a run, mean over seeds."""
  return float(np.mean([reporting.total_bytes(run.row) for run in race.runs]))


def accuracy(race: Race) -> np.ndarray:
  """Test accuracy in per cent by seed; NaN where a run diverged."""
  return np.array([100 * run.final(last=2) for run in race.runs])


def _race(ws, task, name, share, rounds, rate=None) -> Race:
  folder = folder_of(task.name, name, share, rounds)
  seeds = ws.pick(2, _seeds(task, name, share, rounds))
  method = methods.METHODS[name]
  return race(ws, task, method, folder, share, rounds, seeds, rate)


def race(
  ws: Workspace,
  task: Task,
  method: methods.Method,
  folder: str,
  share: float,
  rounds: int,
  seeds: int,
  rate: float | None = None,
) -> Race:
  """Tunes a method for so many rounds, unless told the rate, and runs it."""
  if rate is None:
    trial = min(rounds, task.tuned_over)
    rate = _tuned(ws, task, method, share, trial, folder)
  fields = config(task, method, share, rounds, rate)
  sweep = {'seed': tuple(range(seeds))}
  runs = ws.sweep(f'{folder}/race', fields | {'sweep': sweep})
  return Race(runs, rate, rounds)


def _seeds(task, name, share, rounds) -> int:
  """Returns the number of seeds: more for what is compared with dense."""
  claimed = {(methods.DENSE, 1.0), *methods.BARS.get(task.name, {})}
  noisy = task.name in ('resnet', 'text') and rounds == task.fields['rounds']
  return _MORE_SEEDS if noisy and (name, share) in claimed else _SEEDS


def _tuned(ws, task, method, share, rounds, folder) -> float:
  """Returns the rate whose score is largest, on an unreported seed."""
  fields = config(task, method, share, rounds, task.grid(method.kind)[-1])
  rates = ws.pick(task.grid(method.kind)[:2], task.grid(method.kind))
  trials = {'seed': _TUNED_ON, 'eval_every': rounds} | (task.trials or {})
  options = fields | trials, {method.rate: rates}, task.score
  return ws.tune(f'{folder}/tune', *options)[method.rate]


def config(
  task: Task, method: methods.Method, share: float, rounds: int, rate: float
) -> Fields:
  """The config of one run; rates are constant or fall over its rounds."""
  every = max(1, rounds // 10)
  dispatch = max(n for n in range(1, 16) if rounds % n == 0)
  length = {
    'rounds': rounds, 'eval_every': every, 'checkpoint_every': rounds,
    'rounds_per_dispatch': dispatch,
  }  # fmt: skip
  fields = task.fields | method.fields(task, share) | length
  fields[method.rate] = rate
  if task.cosine and method.schedule:
    fields['final_server_lr'] = 1e-5
  return fields


def folder_of(task: str, name: str, share: float, rounds: int) -> str:
  """The folder of a method's trials and runs at so many rounds.

  >>> folder_of('mnist', 'SAFL, one bit', 0.01, 300)
  'one_percent/mnist/safl__one_bit-0.01/300'
  """
  slug = ''.join(c if c.isalnum() else '_' for c in name.lower())
  return f'one_percent/{task}/{slug}-{share:g}/{rounds}'
