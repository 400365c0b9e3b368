"""The methods: ceilings, ours and rivals, by the step or after local steps."""

from collections.abc import Callable, Mapping, Sequence
import math
from typing import NamedTuple

from ..chen.studies import settings
from ..compressors.methods import floats, one_bit, two_bits
from .tasks import Fields, Task

_FLOAT = 4  # bytes
_FALLING = {'kind': 'cosine', 'final': 0.05}
_BACK = {'downlink_codec': {'kind': 'eden'}}
TWO_BITS = 1 / 16  # of a float


class Method(NamedTuple):
  """A method, and what of it is tuned."""

  # (task, share of a dense update's bytes, choice) -> fields of its config.
  fields: Callable[..., Fields]
  # Field -> ends of the range from which values are drawn, evenly in the log.
  ranges: Mapping[str, tuple[float, float]]
  # Of another hyperparameter, an argument of `fields` by name, the values that
  # are tried; each has as many of the trials.
  choice: tuple[str, tuple[float, ...]]
  kind: str = 'rival'  # or 'ceiling', 'dense ours', 'ours'
  local: bool = False  # whether a worker makes many steps in a round
  # Whether workers may send each other their payloads in place of the mean.
  gathers: bool = False


def config(task: Task, method: Method, share: float, **choice) -> Fields:
  """The config of a method on a task, but for what it draws.

  A method without local steps sends the gradient of each step. A ceiling is one
  worker with the samples of all.
  """
  steps = task.local_steps if method.local else 1
  workers, batch = task.workers, task.batch_size
  central = method.kind == 'ceiling' and not method.local
  if central:
    workers, batch = 1, workers * batch
  rounds = task.steps // steps
  decays = {**_FALLING, 'warmup': max(1, rounds // 20)}
  own = method.fields(task, share, **choice)
  # Adam on the server takes steps of one size, whatever the rate of clients.
  adam = own.get('server_optimizer') == 'adam'
  of_client = central or (method.local and not adam)
  schedule = {'client_schedule' if of_client else 'server_schedule': decays}
  shared = {
    'population': workers, 'cohort': workers, 'batch_size': batch,
    'local_steps': steps, 'client_lr': 1.0, **schedule, **task.length(rounds),
  }  # fmt: skip
  return task.fields | shared | own


def _central(kind: str, **options) -> Callable[..., Fields]:
  """An optimizer of optax, on one worker with the samples of all."""
  local = {'kind': kind, 'keep_state': True, **options}
  return lambda *_, **choice: {
    'algorithm': 'fedavg', 'local_optimizer': local | choice,
  }  # fmt: skip


def _preconditioned(task, share, momentum):
  every = min(max(20, round(0.2 / share)), task.steps // 3)
  # On workers: a second average, on the server, would lag twice.
  options = {'every': every, 'client_momentum': momentum}
  fields = {
    'algorithm': 'preconditioned_sketching', 'b1': 0.0, 'options': options,
  }  # fmt: skip
  if share == 1:
    return fields | {'sketch': {'kind': 'identity'}}
  table = one_bit(task.dimension, share, _FLOAT * task.factors / every)
  return fields | table | _BACK


def _safl(task, share, b1):
  sketch = {'kind': 'block_cyclic', 'size': floats(task.dimension, share)}
  return {'algorithm': 'safl', **settings.ADAM, 'b1': b1, 'sketch': sketch}


def _power_sgd(task, rank, momentum):
  return {
    'algorithm': 'power_sgd', 'options': {'rank': int(rank)},
    'server_optimizer': 'momentum', 'momentum': momentum,
  }  # fmt: skip


def _top_k(task, share, momentum):
  # Of each value two floats: itself and its place.
  k = max(1, int(share * task.dimension / 2))
  return {
    'algorithm': 'fedcom', 'codec': {'kind': 'top_k', 'k': k},
    'options': {'error_feedback': True}, 'server_optimizer': 'momentum',
    'momentum': momentum,
  }  # fmt: skip


def _demo(task, share, momentum):
  # Of a chunk k values of 32 bits, and about 6 bits of each one's place.
  chunk = 64 if share > 0.03 else 2 ** math.ceil(math.log2(1.2 / share))
  k = max(1, int(share * chunk * 32 / 38))
  return {
    'algorithm': 'demo', 'momentum': momentum,
    'codec': {'kind': 'dct_top_k', 'k': k, 'chunk': chunk},
  }  # fmt: skip


def _eden(task, share, b1):
  size = min(task.dimension, 8 * int(_FLOAT * (share * task.dimension - 1)))
  codec = {'kind': 'eden', 'num_coordinates': size}
  return {'algorithm': 'fedcom', **settings.ADAM, 'b1': b1, 'codec': codec}


def _outer(kind: str):
  """Nesterov steps along what local optimizers move; dense, or in few bits."""

  def fields(task, share, momentum):
    outer = {'algorithm': 'fedavg'}
    if share < 1:
      outer = {'algorithm': 'safl', **_few_bits(task, share)}
    return {
      **outer, 'local_optimizer': {'kind': kind, 'keep_state': True},
      'server_optimizer': 'nesterov', 'momentum': momentum,
    }  # fmt: skip

  return fields


def _few_bits(task, share):
  """Two bits of every number, or one-bit tables of fewer, both ways."""
  if share < TWO_BITS:
    return one_bit(task.dimension, share) | _BACK
  codec = {'kind': 'eden', 'bits': 2}
  identity = {'sketch': {'kind': 'identity'}}
  return identity | {'codec': codec, 'downlink_codec': codec}


def _sparse_loco(task, share, decay):
  return {
    'algorithm': 'fedcom', 'codec': two_bits(task.dimension, share),
    'local_optimizer': {'kind': 'adamw', 'keep_state': True},
    'options': {'error_feedback': True, 'residual_decay': decay},
  }  # fmt: skip


_RATE = {'server_lr': (3e-4, 3e-2)}  # of normalised steps
_SIGNS = {'server_lr': (3e-5, 3e-3)}
_OF_SGD = {'server_lr': (1e-2, 3.0)}
_INNER = {'client_lr': (3e-4, 3e-2)}
_OF_MUON = {'client_lr': (1e-3, 1e-1)}
_LOCAL_SGD = {'client_lr': (1e-2, 1.0)}
_OUTER = {'server_lr': (0.2, 1.0)}
_B1, _MOMENTUM = ('b1', (0.9, 0.95)), ('momentum', (0.9, 0.95))
_LESS, _NESTEROV = ('momentum', (0.5, 0.9)), ('momentum', (0.6, 0.9))
_BETA = ('beta', (0.9, 0.95))
ADAMW, MUON, SGD = 'AdamW', 'Muon', 'momentum SGD'
DENSE = 'preconditioned momentum'
OURS = 'preconditioned momentum, one bit both ways'
SAFL, POWER_SGD, DEMO = 'SAFL', 'PowerSGD', 'DeMo'
DILOCO, MULOCO = 'DiLoCo', 'MuLoCo'
DILOCO_BITS = 'DiLoCo in one bit, both ways'
MULOCO_BITS = 'MuLoCo in two bits, both ways'
TOP_K, EDEN = 'top-k, error feedback', 'EDEN, rand-k'
SPARSE_LOCO = 'SparseLoCo'
_ADAMW, _SGD = _central('adamw'), _central('sgd', nesterov=True)
_DILOCO, _MULOCO = _outer('adamw'), _outer('muon')
METHODS: dict[str, Method] = {
  ADAMW: Method(_ADAMW, _INNER, ('b2', (0.95, 0.99)), 'ceiling'),
  SGD: Method(_SGD, _LOCAL_SGD, _MOMENTUM, 'ceiling'),
  MUON: Method(_central('muon'), _OF_MUON, _BETA, 'ceiling'),
  DENSE: Method(_preconditioned, _RATE, _MOMENTUM, 'dense ours'),
  OURS: Method(_preconditioned, _RATE, _MOMENTUM, 'ours'),
  SAFL: Method(_safl, _LOCAL_SGD | _RATE, _B1, 'ours', local=True),
  POWER_SGD: Method(_power_sgd, _OF_SGD, _MOMENTUM),
  DEMO: Method(_demo, _SIGNS, ('momentum', (0.99, 0.999)), gathers=True),
  TOP_K: Method(_top_k, _OF_SGD, _LESS, gathers=True),
  EDEN: Method(_eden, _RATE, _B1, gathers=True),
  DILOCO: Method(_DILOCO, _INNER | _OUTER, _NESTEROV, 'ceiling', local=True),
  MULOCO: Method(_MULOCO, _OF_MUON | _OUTER, _NESTEROV, 'ceiling', local=True),
  DILOCO_BITS: Method(_DILOCO, _INNER | _OUTER, _NESTEROV, 'ours', local=True),
  MULOCO_BITS: Method(
    _MULOCO, _OF_MUON | _OUTER, _NESTEROV, 'ours', local=True
  ),
  SPARSE_LOCO: Method(
    _sparse_loco, _INNER | _OUTER, ('decay', (0.9, 0.95)), local=True,
    gathers=True,
  ),
}  # fmt: skip
# Of each task the methods that run on it, with the share of the bytes of a
# dense update; of PowerSGD it is the rank.
_OF_EACH: dict[str, Sequence[float]] = {
  MUON: [1], ADAMW: [1], OURS: [0.01], MULOCO_BITS: [TWO_BITS],
  SAFL: [0.2], DEMO: [0.0375],
}  # fmt: skip
_LENET: dict[str, Sequence[float]] = _OF_EACH | {
  SGD: [1], POWER_SGD: [1], DEMO: [0.0375, 0.005], SPARSE_LOCO: [0.01],
  DILOCO_BITS: [0.01],
}  # fmt: skip
ROWS: dict[str, dict[str, Sequence[float]]] = {
  'digits': _LENET | {
    DENSE: [1], OURS: [0.01, 0.001], TOP_K: [0.01], EDEN: [0.01], DILOCO: [1],
    MULOCO: [1],
  },
  'clothes': _LENET,
  'characters': _OF_EACH,
  'rehearsed': {
    ADAMW: [1], DENSE: [1], OURS: [0.001], DILOCO: [1], DILOCO_BITS: [0.01],
    POWER_SGD: [4],
  },
}  # fmt: skip


def rows(task: str) -> list[tuple[str, float]]:
  """Every method of a task with each of its sizes."""
  return [(name, x) for name, xs in ROWS[task].items() for x in xs]
