"""Few workers that keep momentum: by the step, and after local steps."""

from collections.abc import Callable, Sequence
import functools
from typing import Any

from ..chen.studies.settings import ADAM
from ..common import comparison, study as studies
from ..common.workspace import Fields, Workspace
from . import study, tasks
from .methods import Method, one_bit, two_bits
from .study import Row
from .tasks import Task

Build = Callable[[Task, float], Fields]
LOCAL_STEPS = 20
_BACK = {'downlink_codec': {'kind': 'eden'}}
_WHOLE, _16TH, _HUNDREDTH = (1.0,), (0.0625,), (0.01,)


def _schedule(rounds: int) -> Fields:
  """A rate that rises over a twentieth of the rounds, and falls."""
  return {**tasks.FALLING, 'warmup': max(1, rounds // 20)}


def central(kind: str, **options: Any) -> Build:
  """An optimizer of optax, on one worker with the samples of all."""
  local = {'kind': kind, 'keep_state': True, **options}

  def fields(task, _):
    samples = task.fields['cohort'] * task.fields['batch_size']
    return {
      'algorithm': 'fedavg', 'local_optimizer': local, 'population': 1,
      'cohort': 1, 'batch_size': samples,
      'client_schedule': _schedule(task.fields['rounds']),
    }  # fmt: skip

  return fields


def by_step(own: Build) -> Build:
  """Something is sent at every step; the rate of the server rises and falls."""
  return lambda task, share: {
    'client_lr': 1.0, 'server_schedule': _schedule(task.fields['rounds']),
    **own(task, share),
  }  # fmt: skip


def muloco(own: Build, steps: int = LOCAL_STEPS) -> Build:
  """MuLoCo: local steps of Muon, and Nesterov's along what workers moved."""

  def fields(task, share):
    rounds = task.fields['rounds'] // steps
    return {
      'local_optimizer': {'kind': 'muon', 'keep_state': True, 'beta': 0.9},
      'server_optimizer': 'nesterov', 'momentum': 0.6, 'server_lr': 0.7,
      'local_steps': steps, 'client_schedule': _schedule(rounds),
      **comparison.length(rounds), **own(task, share),
    }  # fmt: skip

  return fields


def dense(*_) -> Fields:
  """Whole updates."""
  return {'algorithm': 'fedavg'}


def in_bits(codec: Fields) -> Build:
  """Every number in few bits, both ways."""
  both = {'codec': codec, 'downlink_codec': codec}
  return lambda *_: {
    'algorithm': 'safl',
    'sketch': {'kind': 'identity'},
    **both,
  }


def _tables(task, share):
  """One-bit tables up, and one bit down."""
  return {'algorithm': 'safl', **_BACK, **one_bit(task.dimension, share)}


def preconditioned(task: Task, share: float) -> Fields:
  """Preconditioned momentum on workers, in one-bit tables both ways."""
  every = 20  # steps between exchanges of the second moment
  table = one_bit(task.dimension, share, 4 * task.factors / every)
  options = {'every': every, 'client_momentum': 0.9}
  return {
    'algorithm': 'preconditioned_sketching', 'b1': 0.0, 'options': options,
    **table, **_BACK,
  }  # fmt: skip


def _safl(task, share):
  rounds = task.fields['rounds'] // LOCAL_STEPS
  sketch = {'kind': 'block_srht', 'size': int(share * task.dimension)}
  return {
    'algorithm': 'safl', **ADAM, 'sketch': sketch, 'client_lr': 0.1,
    'local_steps': LOCAL_STEPS, 'server_schedule': _schedule(rounds),
    **comparison.length(rounds),
  }  # fmt: skip


def _sparse(task, share):
  """SparseLoCo: the largest of chunks in two bits, and a decaying residual."""
  return {
    'algorithm': 'fedcom', 'codec': two_bits(task.dimension, share),
    'options': {'error_feedback': True, 'residual_decay': 0.95},
    'server_optimizer': 'sgd', 'server_lr': 1.0, 'momentum': None,
  }  # fmt: skip


def _demo(task, share):
  # Of a block of 4,096 numbers; smaller ones send more of theirs.
  codec = {'kind': 'dct_blocks', 'k': round(2100 * share)}
  return {'algorithm': 'demo', 'momentum': 0.999, 'codec': codec}


MUON, OURS = 'Muon', 'preconditioned momentum, one bit both ways'
TWO_BITS, ONE_BIT = 'MuLoCo, two bits both ways', 'MuLoCo, one-bit tables'
RARE, SPARSE, DEMO = 'MuLoCo, 200 local steps', 'SparseLoCo with Muon', 'DeMo'
_OF_MUON = functools.partial(Method, rates='muon', tuned='client_lr')
METHODS: dict[str, Method] = {
  MUON: _OF_MUON(central('muon', beta=0.9), 'dense', _WHOLE),
  'AdamW': Method(central('adamw'), 'dense', _WHOLE, 'adamw', 'client_lr'),
  'MuLoCo': _OF_MUON(muloco(dense), 'dense', _WHOLE),
  RARE: _OF_MUON(muloco(dense, 200), 'dense', _WHOLE),
  TWO_BITS: _OF_MUON(
    muloco(in_bits({'kind': 'eden', 'bits': 2})), 'quantised', _16TH
  ),
  ONE_BIT: _OF_MUON(muloco(_tables), 'sketch', _HUNDREDTH),
  OURS: Method(by_step(preconditioned), 'sketch', _HUNDREDTH),
  'SAFL': Method(_safl, 'sketch', (0.2,)),
  SPARSE: _OF_MUON(muloco(_sparse), 'largest', (0.0625, 0.01), gathers=True),
  DEMO: Method(
    by_step(_demo), 'largest', (0.03, 0.008), 'signs', gathers=True
  ),
}  # fmt: skip
_SHOWN: Sequence[Row] = (
  (TWO_BITS, 0.0625), (ONE_BIT, 0.01), (OURS, 0.01), (RARE, 1.0),
  (SPARSE, 0.0625), (SPARSE, 0.01), (DEMO, 0.03), (DEMO, 0.008),
)  # fmt: skip
_NOTE = (
  'Muon and AdamW are one worker with the samples of all. What a worker of '
  'SparseLoCo or DeMo receives is counted as the payloads of the others, or as '
  'what a server sends where that is less. All methods see as many samples. '
  'Values other than the rate are those that random trials chose on earlier '
  'seeds, or their authors.'
)


def characters(ws: Workspace) -> studies.Report:
  """A decoder of characters."""
  task = tasks.characters(ws)
  return study.report(ws, 'Workers-Characters', task, METHODS, claims, _NOTE)


def claims(c: study.Compared) -> dict[str, Any]:
  """The values of the registered claims."""
  ours, tables, bits = (OURS, 0.01), (ONE_BIT, 0.01), (TWO_BITS, 0.0625)
  return {
    'mark': c.mark,
    **{study.title(row): c.above_dense(row) for row in _SHOWN},
    'rivals of one bit': c.above(ours, c.rivals(ours, 'sketch')),
    'trivial rival': c.above(tables, [(RARE, 1.0)]),
    'two bits': c.above(bits, [(SPARSE, 0.0625), ('MuLoCo', 1.0)]),
  }
