"""The methods: each sends a share of a dense update, and keeps no state."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..chen.studies.settings import ADAM
from ..common.workspace import Fields
from ..trained import methods as trained
from .tasks import Task

_BITS = 32  # of a float
_SHARES = 0.1, 0.01, 0.001
_WHOLE = (1.0,)
SKETCH = 'sketch'  # the family of methods that send tables


class Method(NamedTuple):
  """A method, the shares that it can send, and what is tuned of it."""

  # (task, share of a dense update's bytes, up) -> fields of its config.
  fields: Callable[[Task, float], Fields]
  family: str  # 'dense', 'sketch', 'random', 'largest', 'quantised', 'seeds'
  shares: Sequence[float] = _SHARES
  rates: str = 'adaptive'  # or 'plain', 'seeds': the range in a registration
  tuned: str = 'server_lr'


def floats(task: Task, share: float) -> int:
  """Numbers of 32 bits at a share of the bytes of a dense update."""
  return max(20, int(share * task.dimension))


def _table(kind: str):
  """SAFL with tables of one operator."""

  def fields(task, share):
    size = floats(task, share)
    sketch = {'kind': kind, 'size': size}
    if kind == 'count_sketch':
      sketch = {'kind': kind, 'rows': 5, 'cols': size // 5}
    return {'algorithm': 'safl', **ADAM, 'sketch': sketch}

  return fields


def _one_bit(task, share):
  """A table in one bit, as large as its bytes allow."""
  size = int(share * task.dimension * _BITS) // 8 * 8
  sketch = {'kind': 'block_srht', 'size': min(task.dimension, max(64, size))}
  codec = {'kind': 'eden', 'rotate': False}
  return {'algorithm': 'safl', **ADAM, 'sketch': sketch, 'codec': codec}


def _both_ways(task, share):
  return _one_bit(task, share) | {'downlink_codec': {'kind': 'eden'}}


def _subspace(task, share):
  return _one_bit(task, share) | {
    'algorithm': 'subspace_sketching', 'hash_rounds': 20,
    'downlink_codec': {'kind': 'eden', 'bits': 4},
  }  # fmt: skip


def _mean(codec: Callable[[Task, float], Fields]):
  """Adam on the server, along the mean of what a codec decodes."""
  return lambda task, share: {
    'algorithm': 'fedcom', **ADAM, 'codec': codec(task, share),
  }  # fmt: skip


def _rounded(kind: str):
  """Adam on the server, with numbers of fewer bits both ways."""
  fields = {
    'algorithm': 'safl', **ADAM, 'sketch': {'kind': 'identity'},
    'codec': {'kind': kind}, 'downlink_codec': {'kind': kind},
  }  # fmt: skip
  return lambda *_: fields


def _eden(task, share):
  """One bit of as many rotated numbers as fit; three bits where all do."""
  size = int(share * task.dimension * _BITS) - _BITS
  if size >= task.dimension:
    return {'kind': 'eden', 'bits': int(_BITS * share)}
  return {'kind': 'eden', 'num_coordinates': size}


def _heaprix(task, share):
  # Two tables of five rows and the heaviest values: a third each.
  third = floats(task, share) // 3
  sketch = {'kind': 'count_sketch', 'rows': 5, 'cols': max(1, third // 5)}
  return {
    'algorithm': 'fedsketch_heaprix', 'sketch': sketch, 'options': {'k': third},
  }  # fmt: skip


def _fetchsgd(task, share):
  """One gradient of all samples of a round."""
  steps, batch = task.fields['local_steps'], task.fields['batch_size']
  cols = floats(task, share) // 5
  return {
    'algorithm': 'fetchsgd', 'local_steps': 1, 'batch_size': steps * batch,
    'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': cols},
    'options': {'k': max(1, cols * 5 // 16)},
  }  # fmt: skip


def _fewer_rounds(task, share):
  """Dense updates in a share of the rounds, with as many samples in all."""
  rounds = max(1, int(share * task.fields['rounds']))
  length = {k: rounds for k in ('rounds', 'eval_every', 'checkpoint_every')}
  steps = int(task.fields['local_steps'] / share)
  more = {'local_steps': steps, 'rounds_per_dispatch': 1}
  return {'algorithm': 'fedavg', **ADAM, **length, **more}


_FEW = (0.01, 0.001)
FEDADAM, FEDAVG, FEWER = 'FedAdam', 'FedAvg', 'FedAdam, fewer rounds'
DENSE = FEDADAM, FEDAVG
TABLES, ONE_BIT = 'SAFL, block_srht', 'SAFL, one bit'
BOTH_WAYS, SUBSPACE = 'SAFL, one bit both ways', 'subspaces, one and four bits'
EDEN = 'EDEN'
METHODS: dict[str, Method] = {
  FEDADAM: Method(lambda *_: {'algorithm': 'fedavg', **ADAM}, 'dense', _WHOLE),
  FEDAVG: Method(lambda *_: {'algorithm': 'fedavg'}, 'dense', _WHOLE, 'plain'),
  FEWER: Method(_fewer_rounds, 'dense', (0.1, 0.03)),
  'FedAdam, bfloat16': Method(_rounded('bfloat16'), 'quantised', (0.5,)),
  'FedAdam, int8': Method(_rounded('int8'), 'quantised', (0.25,)),
  TABLES: Method(_table('block_srht'), SKETCH),
  'SAFL, block_cyclic': Method(_table('block_cyclic'), SKETCH),
  'SAFL, count_sketch': Method(_table('count_sketch'), SKETCH),
  ONE_BIT: Method(_one_bit, SKETCH, _FEW),
  BOTH_WAYS: Method(_both_ways, SKETCH, _FEW),
  SUBSPACE: Method(_subspace, SKETCH, _FEW),
  'FedSKETCH, HEAPRIX': Method(_heaprix, SKETCH, rates='plain'),
  'FetchSGD': Method(_fetchsgd, SKETCH, rates='plain'),
  EDEN: Method(_mean(_eden), 'quantised'),
  'QSGD, one level': Method(
    _mean(lambda *_: {'kind': 'qsgd', 'levels': 1}), 'quantised', (0.1,)
  ),
  'rand-k': Method(
    _mean(lambda t, x: {'kind': 'rand_k', 'k': floats(t, x)}), 'random'
  ),
  'top-k, two bits': Method(
    _mean(lambda t, x: trained.two_bits(t.dimension, x)), 'largest'
  ),
  'FedKSeed': Method(
    lambda *_: {'algorithm': 'fedkseed', 'options': {'pool': 4096}}, 'seeds',
    (0.001,), 'seeds', 'client_lr',
  ),
}  # fmt: skip
