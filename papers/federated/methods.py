"""The methods: each sends a share of a dense update, and keeps no state."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..chen.studies.settings import ADAM
from ..common.workspace import Fields
from .tasks import Task

_BITS = 32  # of a float
Build = Callable[[Task, float], Fields]
SHARES = 0.1, 0.01, 0.001  # of the bytes of a dense update, up


class Method(NamedTuple):
  """A method, the shares that it can send, and what is tuned of it."""

  fields: Build  # (task, share) -> fields of its config
  family: str  # 'dense', 'sketch', 'random', 'largest', 'quantised', 'seeds'
  shares: Sequence[float] = SHARES
  rates: str = 'adaptive'  # or 'plain'; the ranges of a registration
  tuned: str = 'server_lr'


def floats(task: Task, share: float) -> int:
  """Numbers of 32 bits at a share of the bytes of a dense update."""
  return max(20, int(share * task.dimension))


def _table(kind: str) -> Build:
  """SAFL with tables of one operator."""

  def fields(task, share):
    sketch: Fields = {'kind': kind, 'size': floats(task, share)}
    if kind == 'count_sketch':
      sketch = {'kind': kind, 'rows': 5, 'cols': floats(task, share) // 5}
    return {'algorithm': 'safl', **ADAM, 'sketch': sketch}

  return fields


def _bits(task: Task, share: float, bits: int = 1) -> Fields:
  """A table in few bits, as large as its bytes allow."""
  size = int(share * task.dimension * _BITS / bits) // 8 * 8
  sketch = {'kind': 'block_srht', 'size': min(task.dimension, max(64, size))}
  return {'sketch': sketch, 'codec': {'kind': 'eden', 'rotate': False,
    'bits': bits}}  # fmt: skip


def _one_bit(task, share):
  return {'algorithm': 'safl', **ADAM, **_bits(task, share)}


def _both_ways(task, share):
  return _one_bit(task, share) | {'downlink_codec': {'kind': 'eden'}}


def _subspace(task, share):
  down = {'kind': 'eden', 'bits': 4}
  return {
    'algorithm': 'subspace_sketching', **ADAM, **_bits(task, share),
    'downlink_codec': down, 'hash_rounds': 20,
  }  # fmt: skip


def _compressed(codec: Callable[[Task, float], Fields]) -> Build:
  """Adam on the server, of the mean of what a codec sends."""
  return lambda task, share: {
    'algorithm': 'fedcom',
    **ADAM,
    'codec': codec(task, share),
  }


def _eden(task, share):
  """One bit of as many rotated numbers as there are bits."""
  size = int(share * task.dimension * _BITS) - _BITS
  if size >= task.dimension:
    return {
      'kind': 'eden',
      'bits': max(b for b in (1, 2, 3) if b <= 32 * share),
    }
  return {'kind': 'eden', 'num_coordinates': size}


def _heaprix(task, share):
  # Two tables of five rows and the heaviest values: a third each.
  third = floats(task, share) // 3
  sketch = {'kind': 'count_sketch', 'rows': 5, 'cols': max(1, third // 5)}
  return {
    'algorithm': 'fedsketch_heaprix',
    'sketch': sketch,
    'options': {'k': third},
  }


def _fetchsgd(task, share):
  steps, batch = task.fields['local_steps'], task.fields['batch_size']
  cols = floats(task, share) // 5
  return {
    'algorithm': 'fetchsgd', 'local_steps': 1, 'batch_size': steps * batch,
    'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': cols},
    'options': {'k': max(1, cols * 5 // 16)},
  }  # fmt: skip


def _fewer_rounds(task, share):
  """Dense, of as many samples: fewer rounds, with more local steps in each."""
  rounds = int(share * task.fields['rounds'])
  steps = int(task.fields['local_steps'] / share)
  length = {k: rounds for k in ('rounds', 'eval_every', 'checkpoint_every')}
  more = {'local_steps': steps, 'rounds_per_dispatch': 1}
  return {'algorithm': 'fedavg', **ADAM, **length, **more}


def _fedkseed(task, share):
  return {'algorithm': 'fedkseed', 'options': {'pool': 4096}}


_DENSE = (1.0,)
FEDADAM, FEDAVG = 'FedAdam, dense', 'FedAvg, dense'
DENSE = FEDADAM, FEDAVG
SUBSPACE = 'subspaces, one bit up and four down'
METHODS: dict[str, Method] = {
  FEDADAM: Method(lambda *_: {'algorithm': 'fedavg', **ADAM}, 'dense', _DENSE),
  FEDAVG: Method(lambda *_: {'algorithm': 'fedavg'}, 'dense', _DENSE, 'plain'),
  'FedAdam, fewer rounds': Method(_fewer_rounds, 'dense', (0.1, 0.03)),
  'SAFL, block_cyclic': Method(_table('block_cyclic'), 'sketch'),
  'SAFL, count_sketch': Method(_table('count_sketch'), 'sketch'),
  'SAFL, block_srht': Method(_table('block_srht'), 'sketch'),
  'SAFL, one bit': Method(_one_bit, 'sketch', (0.01, 0.001)),
  'SAFL, one bit both ways': Method(_both_ways, 'sketch', (0.01, 0.001)),
  SUBSPACE: Method(_subspace, 'sketch', (0.01, 0.001)),
  'FedSKETCH, HEAPRIX': Method(_heaprix, 'sketch', SHARES, 'plain'),
  'FetchSGD': Method(_fetchsgd, 'sketch', SHARES, 'plain'),
  'EDEN': Method(_compressed(_eden), 'quantised'),
  'QSGD': Method(
    _compressed(lambda *_: {'kind': 'qsgd', 'levels': 1}), 'quantised', (0.1,)
  ),
  'rand-k': Method(
    _compressed(lambda t, s: {'kind': 'rand_k', 'k': floats(t, s)}), 'random'
  ),
  'top-k': Method(
    _compressed(lambda t, s: {'kind': 'top_k', 'k': floats(t, s) // 2}),
    'largest',
  ),
  'FedKSeed': Method(_fedkseed, 'seeds', (0.001,), 'seeds', 'client_lr'),
}
