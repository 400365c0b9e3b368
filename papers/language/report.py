"""Makes the reports on models of language: claims, tables and figures."""

import collections
import math
from typing import Any

from fl_sketch.reporting import figures
import numpy as np

from ..common import results, study, summaries, verdicts, workspace
from ..common.workspace import Workspace
from ..one_percent import runs as runs_lib
from ..one_percent.methods import Method
from ..one_percent.runs import Race
from ..one_percent.tasks import Task
from . import methods, problems

Races = dict[str, Race]  # method -> runs
_SEEDS, _MORE_SEEDS = 5, 10
# Of the main claim, about a per cent, which the noise of five seeds hides.
_CLOSE = methods.DILOCO, methods.TABLES
_SHARE = 0.01  # of the bytes of a model, up
_FEWER = 100  # times fewer bytes up than dense
_NEAR, _WITHIN = 1.0, 5.0  # per cent of a loss
_BEST = 3  # methods that train the larger decoder
_METHODS = (
  'Compressors send a hundredth of the bytes of the model up. DiLoCo has AdamW '
  'on clients and Nesterov on the server, at 0.7 with the momentum 0.9; SAFL, '
  'Ferret and FedAdam have SGD at 0.1 on clients and Adam on the server; '
  'SparseLoCo has AdamW on clients, and DeMo sends one gradient of all '
  'samples. FedKSeed has a pool of 4,096 seeds.'
)
_COMPARED = (
  f'{_METHODS} DiLoCo and SAFL with its optimizers have ten reported seeds, '
  'all others five.'
)


def scratch(ws: Workspace) -> study.Report:
  """A decoder from scratch: every method at equal rounds and windows."""
  task = problems.scratch(ws)
  races = _races(ws, task, methods.METHODS, _CLOSE)
  claims = [
    _near(races, methods.TABLES, methods.DILOCO),
    _fewer(races, methods.TABLES, methods.DILOCO),
    _near(races, methods.ONE_BIT, methods.DILOCO),
    _near(races, methods.ONE_BIT, methods.DENSE),
  ]
  return _report(task, races, claims)


def adapting(ws: Workspace) -> study.Report:
  """LoRA of a decoder: dense factors, exact products, sketches of factors."""
  task = problems.adapting(ws)
  races = _races(ws, task, methods.METHODS | methods.OF_FACTORS, _CLOSE)
  claims = [
    _near(races, methods.TABLES, methods.DILOCO),
    _fewer(races, methods.TABLES, methods.DILOCO),
    _near(races, methods.ONE_BIT, methods.DENSE),
  ]
  note = f'{_COMPARED} Before it is adapted the decoder has a test loss of '
  note += f'{problems.before_adapting(ws):.3f} bits a character.'
  return _report(task, races, claims, note)


def large(ws: Workspace) -> study.Report:
  """A decoder of 10 million parameters by the best three methods, one seed.

  Best by their training loss on the smaller decoder, whose rates they have. Its
  result is read from the folder of the workspace, or made where there is none.
  """
  kept = results.read(ws.folder, 'Language-Scratch')
  small = kept['seeds'] if kept else scratch(ws).seeds
  mean = lambda x: np.mean(np.asarray(x['training loss'], float))
  losses = {
    name: float(np.nan_to_num(mean(x), nan=np.inf)) for name, x in small.items()
  }
  task = problems.large(ws)
  found = {
    name: _race(ws, task, name, methods.METHODS[name], 1, small[name]['rate'])
    for name in sorted(losses, key=losses.__getitem__)[:_BEST]
  }
  return _report(task, found, [], _METHODS, tuned=False)


def recurrent(ws: Workspace) -> study.Report:
  """A GRU by speakers, and centrally, at equal windows of characters."""
  task, alone = problems.recurrent(ws)
  races = _races(ws, task, methods.RECURRENT)
  races |= _races(ws, alone, methods.CENTRALLY)
  # The clients of FedAvg make steps of SGD: the center does, too.
  pairs = [(methods.FEDAVG, methods.CENTRAL_SGD)]
  pairs += [(name, methods.CENTRAL) for name in methods.RECURRENT]
  claims = [_near(races, *pair, _WITHIN) for pair in pairs]
  return _report(task, races, claims, _CENTRAL)


def _races(ws, task, entries, close=()) -> Races:
  names = ws.pick(methods.REHEARSED, entries)
  seeds = lambda name: _MORE_SEEDS if name in close else _SEEDS
  return {
    name: _race(ws, task, name, method, ws.pick(2, seeds(name)))
    for name, method in entries.items()
    if name in names
  }


def _race(ws, task, name, method: Method, seeds, rate=None) -> Race:
  share, rounds = method.shares[0], task.fields['rounds']
  folder = runs_lib.folder_of(task.name, name, share, rounds)
  folder = folder.replace('one_percent', 'language')
  return runs_lib.race(ws, task, method, folder, share, rounds, seeds, rate)


def _near(
  races: Races, name: str, other: str, bar: float = _NEAR
) -> verdicts.Claim:
  ours, theirs = _bits(races[name]), _bits(races[other])
  both = min(len(ours), len(theirs))  # seeds
  above = 100 * (ours[:both] / theirs[:both] - 1)
  text = f'{name}: test loss, % above that of {other}'
  return verdicts.of_seeds(text, above, '<=', bar)


def _fewer(races: Races, name: str, other: str) -> verdicts.Claim:
  ratio = _sent(races[other], 'up') / _sent(races[name], 'up')
  text = f'{name}: bytes up, times fewer than those of {other}'
  return verdicts.exact(text, ratio, '>=', _FEWER)


def _bits(race: Race) -> np.ndarray:
  """Bits a character of the test, by seed; NaN where a run diverged."""
  return np.array([run.final('test_bits') for run in race.runs])


def _training(race: Race) -> np.ndarray:
  return np.array([run.final('train_loss', last=20) for run in race.runs])


def _sent(race: Race, way: str) -> float:
  """Bytes of all clients of a run in a direction, mean over seeds."""
  name = f'total_{way}link_bytes'
  return float(np.mean([run.row[name] for run in race.runs]))


def _report(
  task: Task,
  races: Races,
  claims: list,
  note: str = _COMPARED,
  tuned: bool = True,
) -> study.Report:
  entries = methods.METHODS | methods.OF_FACTORS
  entries |= methods.RECURRENT | methods.CENTRALLY
  lines, dots, variants = [], {}, collections.Counter()
  for name in sorted(races, key=lambda name: _mean(races[name])):
    race, family = races[name], entries[name].family
    if name not in methods.CENTRALLY:  # which sends nothing
      look = {'family': family, 'variant': variants[family]}
      variants[family] += 1
      lines += summaries.against_bytes(
        name, race.runs, _bits(race), 3, 'test_bits', 1, **look
      )
    mean, low, high = map(float, summaries.interval(_bits(race)))
    dots[name] = figures.Dot(mean, low, high, family)
  labels = figures.MEGABYTES, _METRIC
  panel = figures.Panel(*labels, lines, x_scale='log')
  pictures = [
    study.Picture(_CURVES, [panel]),
    study.Picture(_DOTS, [figures.dot_plot(_METRIC, dots)]),
  ]
  seeds = {name: _numbers(race) for name, race in races.items()}
  rates = _TUNED if tuned else _NOT_TUNED
  notes = [f'{_CLIENTS} {rates} {_SCHEDULE}', note]
  return study.Report(claims, seeds, [_table(task, races)], pictures, notes)


def _mean(race: Race) -> float:
  return float(np.nan_to_num(_bits(race).mean(), nan=np.inf))


def _numbers(race: Race) -> dict[str, Any]:
  return {
    'bits': _bits(race).tolist(),
    'training loss': _training(race).tolist(),
    'rate': race.rate,
    **{f'bytes {way}': _sent(race, way) for way in ('up', 'down')},
  }


def _table(task: Task, races: Races) -> study.Table:
  """Lists bytes, rate and losses, one row for each method."""
  rows = []
  turns = task.fields['rounds'] * task.fields['cohort']  # of clients
  for name in sorted(races, key=lambda name: _mean(races[name])):
    race = races[name]
    up, down = (_sent(race, way) for way in ('up', 'down'))
    sent = [
      f'{up / turns:,.0f}', f'{down / turns:,.0f}', f'{(up + down) / 1e6:,.3g}',
    ]  # fmt: skip
    if name in methods.CENTRALLY:
      sent = [''] * len(sent)
    _, low, high = summaries.interval(_bits(race))
    rows.append([
      name, *sent, f'{race.rate:g}',
      workspace.shown(_training(race), digits=3),
      workspace.shown(_bits(race), digits=3),
      '' if math.isnan(low) else f'{low:.3f} to {high:.3f}',
    ])  # fmt: skip
  windows = turns * task.fields['local_steps'] * task.fields['batch_size']
  caption = (
    f'd = {task.dimension:,} that are trained, {task.fields["rounds"]} rounds, '
    f'{windows:,} windows of at most 80 characters seen; bytes of one client '
    'in a round, MB of all clients; means over seeds ± standard errors.'
  )
  return study.Table(caption, _HEAD, rows)


_METRIC = 'test loss, bits a character'
_HEAD = (
  'method', 'bytes up', 'bytes down', 'MB in all', 'rate', 'training loss',
  _METRIC, '95 % interval',
)  # fmt: skip
_CURVES = (
  'Test loss in bits a character against the bytes of all clients, up and '
  'down; means over seeds with intervals of 95 %.'
)
_DOTS = (
  'Test loss at the end, mean over seeds with intervals of 95 %; methods of '
  'one colour are of one family.'
)
_CLIENTS = (
  'Clients are the speakers of tiny Shakespeare with a thousand letters or '
  'more, a stand-in for the Shakespeare of LEAF; the test is the last tenth '
  'of what each says. Eight of them train in a round, and all methods see the '
  'same number of windows of characters.'
)
_TUNED = (
  'Each has four rates, half a decade apart, on seed 100 and over half of the '
  'rounds, and up to three more where the best is the first or the last of '
  'them; that with the least loss on a tenth of what clients train on, which '
  'these trials hold out, runs on the reported seeds.'
)
_NOT_TUNED = (
  'These are the three methods with the least training loss of '
  'Language-Scratch, at the rates that were chosen there. Each has one seed: '
  'there are no intervals and no verdicts.'
)
_SCHEDULE = (
  'The rate of the server falls along half a cosine; with '
  "DiLoCo's optimizers, and in products of factors, that of the clients. Where "
  'AdamW is that of clients it begins anew in every round: a client takes part '
  'in few of them.'
)
_CENTRAL = (
  'Central AdamW and SGD are one client with the samples of all, whose steps '
  'have as many of them as those of eight clients; that of AdamW keeps its '
  'optimizer.'
)
