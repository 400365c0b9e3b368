"""The methods of the comparison, as config fields for a task."""

from collections.abc import Callable
import math
from typing import NamedTuple

from ..chen.studies import methods as chen, settings
from .tasks import Fields, TunedTask

# A second average on the server would lag twice.
_AVERAGED = {'b1': 0.0, 'options': {'client_momentum': 0.9}}
_POWER_SGD = {'algorithm': 'power_sgd', 'options': {'rank': 1}, **settings.ADAM}
_FLOAT = 4  # bytes


class Method(NamedTuple):
  """A method at a share of the bytes."""

  kind: str  # of the rates that it is tuned over
  # (task, share) -> fields of its config.
  fields: Callable[[TunedTask, float], Fields]
  shares: tuple[float, ...] = (0.01,)  # at which it runs
  rate: str = 'server_lr'  # the field that is tuned
  schedule: bool = True  # whether its rate can fall over a run


def _floats(task: TunedTask, share: float) -> int:
  return max(25, int(share * task.dimension))


def _one_bit(task: TunedTask, share: float, spent: float = 0.0) -> Fields:
  """A table whose signs and one scale fill what is left of the bytes."""
  left = _FLOAT * (int(share * task.dimension) - 1) - spent
  size = max(8, 8 * int(left))
  return {
    'sketch': {'kind': 'block_srht', 'size': size},
    'codec': {'kind': 'eden', 'rotate': False},
  }


def _safl(task, share):
  sketch = {'kind': 'block_cyclic', 'size': _floats(task, share)}
  return {'algorithm': 'safl', **settings.ADAM, 'sketch': sketch}


def _safl_one_bit(task, share):
  return {'algorithm': 'safl', **settings.ADAM, **_one_bit(task, share)}


def _averaged(fields):
  """SAFL of averages over rounds, which clients keep."""
  return lambda *at: fields(*at) | _AVERAGED


def _preconditioned(task, share):
  every = max(1, min(round(0.2 / share), task.fields['rounds'] // 3))
  spent = _FLOAT * task.factors / every
  return {
    'algorithm': 'preconditioned_sketching', **_AVERAGED,
    'options': {'every': every} | _AVERAGED['options'],
    **_one_bit(task, share, spent),
  }  # fmt: skip


def _own_rotations(task, share):
  size = _one_bit(task, share)['sketch']['size']
  codec = {'kind': 'eden', 'num_coordinates': size}
  return {'algorithm': 'fedcom', **settings.ADAM, 'codec': codec}


def _sparse_loco(task, share):
  # 12 bits of an index and 2 of a value, and two magnitudes a chunk.
  chunk = min(4096, task.dimension)
  bits = 32 * share * task.dimension / -(-task.dimension // chunk)
  k = max(1, int((bits - 64) / 14))
  return {
    'algorithm': 'fedcom', 'server_lr': 1.0, 'weight_decay': 0.0,
    'local_optimizer': {'kind': 'adamw', 'keep_state': True},
    'codec': {'kind': 'chunked_top_k', 'k': k, 'chunk': chunk},
    'options': {'error_feedback': True, 'residual_decay': 0.95},
  }  # fmt: skip


def _demo(task, share):
  # Of a chunk one value of 32 bits, and 7 bits of its index.
  chunk = 2 ** math.ceil(math.log2(1.2 / share))
  return {
    'algorithm': 'demo', **chen.one_gradient(task.fields),
    'codec': {'kind': 'dct_top_k', 'k': 1, 'chunk': chunk},
  }  # fmt: skip


def both_ways(fields):
  """The same, with the mean table sent back in one bit an entry."""
  return lambda *at: fields(*at) | {'downlink_codec': {'kind': 'eden'}}


_BOTH = (0.01, 0.001)
DENSE = 'FedAdam, dense'
SAFL = 'SAFL'
ONE_BIT = 'SAFL, one bit'
ONE_BIT_BOTH = 'SAFL, one bit both ways'
OURS = 'preconditioned momentum, one bit'
OURS_BOTH = 'preconditioned momentum, one bit both ways'
METHODS: dict[str, Method] = {
  DENSE: Method(
    'adam', lambda *_: {'algorithm': 'fedavg', **settings.ADAM}, (1.0,)
  ),
  OURS: Method('preconditioned', _preconditioned, _BOTH),
  OURS_BOTH: Method('preconditioned', both_ways(_preconditioned)),
  'SAFL, client momentum, one bit': Method('adam', _averaged(_safl_one_bit)),
  ONE_BIT: Method('adam', _safl_one_bit, _BOTH),
  ONE_BIT_BOTH: Method('adam', both_ways(_safl_one_bit)),
  'SAFL, client momentum': Method('adam', _averaged(_safl)),
  SAFL: Method('adam', _safl, _BOTH),
  'EDEN, rand-k': Method('adam', _own_rotations, _BOTH),
  'SparseLoCo': Method('adamw', _sparse_loco, rate='client_lr'),
  'DeMo': Method('sign', _demo),
  'PowerSGD': Method('adam', lambda *_: _POWER_SGD),
  'CocktailSGD': Method(
    'clients', lambda *at: chen.cocktail_sgd(_floats(*at)),
    rate='client_lr', schedule=False,
  ),
  'CD-Adam': Method(
    'markov',
    lambda task, share: chen.cd_adam(task.fields, _floats(task, share)),
    schedule=False,
  ),
  'FetchSGD': Method(
    'one_gradient',
    lambda task, share: chen.fetchsgd(task.fields, _floats(task, share)),
    schedule=False,
  ),
}  # fmt: skip
# What (method, share) should reach: an accuracy, or points above dense.
BARS: dict[str, dict[tuple[str, float], float]] = {
  'mnist': {
    (ONE_BIT, 0.01): 98.9, (ONE_BIT, 0.001): 98.3, (ONE_BIT_BOTH, 0.01): 98.7,
    (OURS, 0.01): 98.9, (OURS, 0.001): 98.3, (OURS_BOTH, 0.01): 98.7,
  },
  'text': {(OURS, 0.01): 0.0, (OURS, 0.001): -4.0},
  'vit': {(OURS, 0.01): -0.5},
  'resnet': {(OURS, 0.01): -2.0},
}  # fmt: skip
RIVALS = (
  'EDEN, rand-k', 'SparseLoCo', 'DeMo', 'CocktailSGD', 'CD-Adam', 'FetchSGD',
)  # fmt: skip
REHEARSED = (DENSE, OURS, OURS_BOTH, ONE_BIT, ONE_BIT_BOTH, SAFL, 'DeMo')
