"""Makes the reports on models of language: claims, tables and figures."""

from typing import Any

import numpy as np

from ..common import comparison, study, verdicts
from ..common.comparison import Entry
from ..common.workspace import Workspace
from . import methods, problems, tuning
from .tuning import Task

Entries = dict[str, Entry]  # method -> runs
_SEEDS, _MORE_SEEDS = 5, 10
# Of the main claim, about a per cent, which the noise of five seeds hides.
_CLOSE = methods.DILOCO, methods.TABLES
_SHARE = 0.01  # of the bytes of a model, up
_FEWER = 100  # times fewer bytes up than dense
_NEAR, _WITHIN = 1.0, 5.0  # per cent of a loss
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
  entries = _compared(ws, task, methods.METHODS, _CLOSE)
  claims = [
    _near(entries, methods.TABLES, methods.DILOCO),
    _fewer(entries, methods.TABLES, methods.DILOCO),
    _near(entries, methods.ONE_BIT, methods.DILOCO),
    _near(entries, methods.ONE_BIT, methods.DENSE),
  ]
  return _report(task, entries, claims)


def adapting(ws: Workspace) -> study.Report:
  """LoRA of a decoder: dense factors, exact products, sketches of factors."""
  task = problems.adapting(ws)
  entries = _compared(ws, task, methods.METHODS | methods.OF_FACTORS, _CLOSE)
  claims = [
    _near(entries, methods.TABLES, methods.DILOCO),
    _fewer(entries, methods.TABLES, methods.DILOCO),
    _near(entries, methods.ONE_BIT, methods.DENSE),
  ]
  note = f'{_COMPARED} Before it is adapted the decoder has a test loss of '
  note += f'{problems.before_adapting(ws):.3f} bits a character.'
  return _report(task, entries, claims, note)


def recurrent(ws: Workspace) -> study.Report:
  """A GRU by speakers, and centrally, at equal windows of characters."""
  task, alone = problems.recurrent(ws)
  entries = _compared(ws, task, methods.RECURRENT)
  entries |= _compared(ws, alone, methods.CENTRALLY)
  # The clients of FedAvg make steps of SGD: the center does, too.
  pairs = [(methods.FEDAVG, methods.CENTRAL_SGD)]
  pairs += [(name, methods.CENTRAL) for name in methods.RECURRENT]
  claims = [_near(entries, *pair, _WITHIN) for pair in pairs]
  return _report(task, entries, claims, _CENTRAL)


def _compared(ws, task, known, close=()) -> Entries:
  names = ws.pick(methods.REHEARSED, known)
  seeds = lambda name: _MORE_SEEDS if name in close else _SEEDS
  return {
    name: tuning.entry(ws, task, method, name, ws.pick(2, seeds(name)))
    for name, method in known.items()
    if name in names
  }


def _near(entries: Entries, name: str, other: str, bar: float = _NEAR):
  """The claim that a loss is at most so many per cent above another."""
  ours, theirs = _bits(entries[name]), _bits(entries[other])
  both = min(len(ours), len(theirs))  # seeds
  above = 100 * (ours[:both] / theirs[:both] - 1)
  text = f'{name}: test loss, % above that of {other}'
  return verdicts.of_seeds(text, above, '<=', bar)


def _fewer(entries: Entries, name: str, other: str) -> verdicts.Claim:
  ratio = entries[other].total('up') / entries[name].total('up')
  text = f'{name}: bytes up, times fewer than those of {other}'
  return verdicts.exact(text, ratio, '>=', _FEWER)


def _bits(entry: Entry) -> np.ndarray:
  """Bits a character of the test, by seed; NaN where a run diverged."""
  return entry.final('test_bits')


def _report(task, entries, claims, note=_COMPARED) -> study.Report:
  mean = lambda name: np.nan_to_num(_bits(entries[name]).mean(), nan=np.inf)
  ordered = {name: entries[name] for name in sorted(entries, key=mean)}
  panel = comparison.by_bytes(
    {name: e for name, e in ordered.items() if name not in methods.CENTRALLY},
    lambda name: {'label': name, 'family': name},
    _bits, _METRIC, digits=3, metric='test_bits', scale=1,
  )  # fmt: skip
  names = {name: (name, name) for name in ordered}
  pictures = [
    study.Picture(_CURVES, [panel]),
    study.Picture(_DOTS, [comparison.dots(ordered, names, _bits, _METRIC)]),
  ]
  seeds = {name: _numbers(entry) for name, entry in entries.items()}
  notes = [f'{_CLIENTS} {_TUNED} {_SCHEDULE}', note]
  return study.Report(claims, seeds, [_table(task, ordered)], pictures, notes)


def _numbers(entry: Entry) -> dict[str, Any]:
  return {
    'bits': _bits(entry).tolist(),
    'training loss': entry.loss.tolist(),
    'rate': entry.rate,
    **{f'bytes {way}': entry.total(way) for way in ('up', 'down')},
  }


def _table(task: Task, entries: Entries) -> study.Table:
  """Lists bytes, rate and losses, one row for each method."""
  turns = task.fields['rounds'] * task.fields['cohort']  # of clients

  def sent(text, per, *ways):
    number = lambda entry: format(entry.total(*ways) / per, text)
    return lambda name, e: '' if name in methods.CENTRALLY else number(e)

  columns = {
    'method': lambda name, _: name,
    'bytes up': sent(',.0f', turns, 'up'),
    'bytes down': sent(',.0f', turns, 'down'),
    'MB in all': sent(',.3g', 1e6),
    'rate': comparison.rates,
    'training loss': comparison.shown(3, lambda entry: entry.loss),
    _METRIC: comparison.shown(3, _bits),
    '95 % interval': comparison.interval(3, _bits),
  }
  windows = turns * task.fields['local_steps'] * task.fields['batch_size']
  caption = (
    f'd = {task.dimension:,} that are trained, {task.fields["rounds"]} rounds, '
    f'{windows:,} windows of at most 80 characters seen; bytes of one client '
    'in a round, MB of all clients; means over seeds ± standard errors.'
  )
  return comparison.table(caption, entries, columns)


_METRIC = 'test loss, bits a character'
_CURVES = (
  'Test loss in bits a character against the bytes of all clients, up and '
  'down; means over seeds with intervals of 95 %.'
)
_DOTS = 'Test loss at the end, mean over seeds with intervals of 95 %.'
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
