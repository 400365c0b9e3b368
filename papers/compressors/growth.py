"""How the gap to dense training grows, along one axis at a time."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fl_sketch.runs import figures, metrics
import numpy as np

from ..common import comparison, registration, study, workspace
from ..common.workspace import Fields, Workspace
from . import tasks, workers


class Setting(NamedTuple):
  """A point at which a method sees as many samples as at all others."""

  width: int = 64  # of the decoder
  workers: int = 4
  local_steps: int = 20
  bits: int = 2
  batch: int = 32  # windows of all workers in a step


_MUON, _LOCAL, _BITS = 'Muon', 'MuLoCo', 'MuLoCo in few bits'
_ONE_BIT = 'preconditioned momentum, one bit'
_ALL = _MUON, _LOCAL, _BITS, _ONE_BIT
# The methods on which an axis has an effect; Muon is one worker.
_ALONG = {
  'width': _ALL, 'batch': _ALL, 'workers': _ALL[1:],
  'local_steps': (_LOCAL, _BITS), 'bits': (_BITS,),
}  # fmt: skip
_LABELS = {
  'width': 'width of the decoder', 'workers': 'workers', 'bits': 'bits',
  'local_steps': 'local steps', 'batch': 'windows of all workers in a step',
}  # fmt: skip
Gaps = dict[tuple[str, str], dict[int, np.ndarray]]  # (axis, method)


def growth(ws: Workspace) -> study.Report:
  """Curves of gaps over widths, workers, local steps, bits and batches."""
  quick = {'seeds': [1, 2], 'windows': 3200, 'axes': {'bits': [1, 2]}}
  quick['check'] = {'width': 16}
  r = registration.read('Growth') | ws.pick(quick, {})
  rates = {name: _tuned(ws, r, name, Setting()) for name in _ALL}
  losses: dict[tuple[str, Setting], np.ndarray] = {}

  def loss(name, axis, value):
    at = Setting(**({axis: value} if name in _ALONG[axis] else {}))
    if (name, at) not in losses:
      losses[name, at] = _losses(ws, r, name, at, rates[name])
    return losses[name, at]

  gaps: Gaps = {
    (axis, name): {
      x: 100 * (loss(name, axis, x) / loss(_MUON, axis, x) - 1) for x in values
    }
    for axis, values in r['axes'].items()
    for name in _ALONG[axis]
    if name != _MUON
  }
  other = Setting(**r['check'])
  found = {name: _tuned(ws, r, name, other) for name in _ALL}
  checks = [[name, f'{rates[name]:g}', f'{found[name]:g}'] for name in _ALL]
  seeds = {
    f'{axis} {x}, {name}': gap.tolist()
    for (axis, name), one in gaps.items() for x, gap in one.items()
  }  # fmt: skip
  table = _RATES, ('method', 'tuned at the base', 'tuned there'), checks
  panels = [_panel(axis, gaps) for axis in r['axes']]
  return study.registered(r, _claims(gaps), seeds, table, panels, _NOTE)


def _tuned(ws: Workspace, r: Any, name: str, at: Setting) -> float:
  """The best rate of a method at a point, by the loss on held-out windows."""
  fields, (tuned, rates) = _fields(ws, r, name, at), _rates(r, name)
  trial = fields | {'seed': r['tuning_seed'], 'client_holdout': 0.1}
  best = ws.tune(
    f'growth/{_folder(name, at)}/tune', trial, {tuned: rates},
    workspace.validation_score,
  )  # fmt: skip
  return best[tuned]


def _losses(
  ws: Workspace, r: Any, name: str, at: Setting, rate: float
) -> np.ndarray:
  """Test losses by seed."""
  fields, (tuned, _) = _fields(ws, r, name, at), _rates(r, name)
  config = fields | {tuned: rate, 'sweep': {'seed': tuple(r['seeds'])}}
  runs = ws.sweep(f'growth/{_folder(name, at)}/race', config)
  return np.array([run.final('test_loss') for run in runs])


def _rates(r: Any, name: str) -> tuple[str, list[float]]:
  if name == _ONE_BIT:
    return 'server_lr', r['adaptive']
  return 'client_lr', r['muon']


def _folder(name: str, at: Setting) -> str:
  return f'{comparison.slug(name)}-{"-".join(map(str, at))}'


def _fields(ws: Workspace, r: Any, name: str, at: Setting) -> Fields:
  """The config of a method at a point."""
  rounds = r['windows'] // at.batch
  task = tasks.decoder(ws, at.width, at.workers, at.batch, rounds)
  codec: Fields = {'kind': 'eden', 'bits': at.bits}
  if at.bits == 8:
    codec = {'kind': 'int8'}
  made = {
    _MUON: workers.central('muon', beta=0.9),
    _LOCAL: workers.muloco(workers.dense, at.local_steps),
    _BITS: workers.muloco(workers.in_bits(codec), at.local_steps),
    _ONE_BIT: workers.by_step(workers.preconditioned),
  }[name]
  return task.fields | made(task, 0.01)


def _claims(gaps: Gaps) -> Mapping[str, Any]:
  """The values of the registered claims, from gaps in per cent."""

  def of_bits(axis):
    dense = gaps.get((axis, _LOCAL), {})
    return {f'{x}': gaps[axis, _BITS][x] - gap for x, gap in dense.items()}

  def grown(axis):
    found = [*gaps.get((axis, _ONE_BIT), {}).values()]
    return found[-1] - found[0] if found else {}

  return {
    **{f'codec, {x}': of_bits(x) for x in ('width', 'workers', 'local_steps')},
    **{f'one bit, {x}': grown(x) for x in ('width', 'batch')},
  }


def _panel(axis: str, gaps: Gaps) -> figures.Panel:
  """Gaps along an axis, means over seeds with intervals."""
  lines = []
  for name in _ALL:
    if found := gaps.get((axis, name)):
      ends = [metrics.interval(gap) for gap in found.values()]
      y, low, high = ([float(x) for x in z] for z in zip(*ends, strict=True))
      lines.append(figures.Line(name, [*found], y, low, high))
  label = 'loss above that of Muon, %'
  return figures.Panel(_LABELS[axis], label, lines, x_scale='log')


_RATES = (
  'Rates are tuned at the base, of width 64, and are the same at all points; '
  'beside them those that tuning finds at one other point.'
)
_NOTE = (
  'A decoder of characters of depth 4 on tiny Shakespeare; the gap is that of '
  'the test loss to Muon, one worker with the samples of all. Every point has '
  'as many windows in all: larger batches make fewer steps. The base has four '
  'workers, 20 local steps, two bits and 32 windows in a step; an axis changes '
  'one of them. Eight bits are int8, fewer are EDEN.'
)
