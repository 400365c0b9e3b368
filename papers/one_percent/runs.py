"""Tunes and runs the methods at equal rounds, equal bytes or more rounds."""

from ..common import comparison
from ..common.comparison import Entry
from ..common.workspace import Workspace
from . import methods
from .tasks import Fields, TunedTask

_TUNED_ON = 100  # a seed that is not reported
_SEEDS = 5
_MORE_SEEDS = 20  # of differences that noise of five seeds would hide
LONGER = 0.05  # of the bytes of dense FedAdam, for more rounds
Entries = dict[tuple[str, float], Entry]  # (method, share) -> runs


def equal_rounds(ws: Workspace, task: TunedTask) -> Entries:
  """Every method over the rounds of the task; a few methods at quick scale."""
  names = ws.pick(methods.REHEARSED, tuple(methods.METHODS))
  return {
    (name, share): _entry(ws, task, name, share, task.fields['rounds'])
    for name in names
    for share in methods.METHODS[name].shares
    if share in (1.0, *task.shares)
  }


def equal_bytes(ws: Workspace, task: TunedTask, entries: Entries) -> Entries:
  """Every method over the rounds that the bytes of SAFL at d / 100 pay for.

  Bytes are those of all clients, up and down. A method is tuned for its rounds
  if they are fewer than those of the task; those for which they pay less than
  one are left out, and so are methods at a thousandth.
  """
  budget = entries[methods.SAFL, 0.01].total()
  out: Entries = {}
  for (name, share), one in entries.items():
    rounds = int(budget / one.total() * one.rounds)
    if share < 0.01 or not rounds:
      continue
    same = abs(rounds - one.rounds) <= 0.02 * one.rounds
    rate = one.rate if rounds > one.rounds else None
    if not same:
      one = _entry(ws, task, name, share, rounds, rate)
    out[name, share] = one
  return out


def longer(
  ws: Workspace, task: TunedTask, entries: Entries, name: str
) -> Entry:
  """A method at d / 100 with 5 % of dense FedAdam's bytes, by a cosine."""
  one = entries[name, 0.01]
  budget = LONGER * entries[methods.DENSE, 1.0].total()
  rounds = int(budget / one.total() * one.rounds)
  falling = task._replace(cosine=True)
  return _entry(ws, falling, name, 0.01, rounds, one.rate)


def _entry(ws, task, name, share, rounds, rate=None) -> Entry:
  folder = folder_of(task.name, name, share, rounds)
  seeds = ws.pick(2, _seeds(task, name, share, rounds))
  method = methods.METHODS[name]
  return entry(ws, task, method, folder, share, rounds, seeds, rate)


def entry(
  ws: Workspace,
  task: TunedTask,
  method: methods.Method,
  folder: str,
  share: float,
  rounds: int,
  seeds: int,
  rate: float | None = None,
) -> Entry:
  """Tunes a method for so many rounds, unless told the rate, and runs it."""
  grid, trial = task.grid(method.kind), min(rounds, task.tuned_over)
  trials = {'seed': _TUNED_ON, 'eval_every': trial} | (task.trials or {})
  return comparison.run(
    ws,
    f'{folder}/{{}}',
    config(task, method, share, rounds, grid[-1]),
    {method.rate: ws.pick(grid[:2], grid)},
    range(seeds),
    trials=config(task, method, share, trial, grid[-1]) | trials,
    score=task.score,
    rates=None if rate is None else {method.rate: rate},
  )


def _seeds(task, name, share, rounds) -> int:
  """Returns the number of seeds: more for what is compared with dense."""
  claimed = {(methods.DENSE, 1.0), *methods.BARS.get(task.name, {})}
  noisy = task.name in ('resnet', 'text') and rounds == task.fields['rounds']
  return _MORE_SEEDS if noisy and (name, share) in claimed else _SEEDS


def config(
  task: TunedTask,
  method: methods.Method,
  share: float,
  rounds: int,
  rate: float,
) -> Fields:
  """The config of one run; rates are constant or fall over its rounds."""
  length = comparison.length(rounds)
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
  slug = comparison.slug(name)
  return f'one_percent/{task}/{slug}-{share:g}/{rounds}'
