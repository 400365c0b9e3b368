"""Federations: methods without residuals on clients, and their claims."""

from collections.abc import Callable, Sequence
from typing import Any

from fl_sketch.codecs import rotation

from ..chen.studies.settings import ADAM
from ..common import study as studies
from ..common.workspace import Fields, Workspace
from . import study, tasks
from .methods import Method, floats, one_bit, two_bits
from .study import Row
from .tasks import Task

_BITS = 32  # of a float
_WHOLE = (1.0,)
_SKETCH = 'sketch'


def _table(kind: str):
  """SAFL with tables of one operator."""

  def fields(task, share):
    size = floats(task.dimension, share)
    sketch = {'kind': kind, 'size': size}
    if kind == 'count_sketch':
      sketch = {'kind': kind, 'rows': 5, 'cols': size // 5}
    return {'algorithm': 'safl', **ADAM, 'sketch': sketch}

  return fields


def _one_bit(task, share):
  """A table in one bit, as large as its bytes allow."""
  return {'algorithm': 'safl', **ADAM, **one_bit(task.dimension, share)}


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


def eden(task: Task, share: float) -> Fields:
  """One bit of as many rotated numbers as fit; three bits where all do."""
  scale = _BITS / rotation.BLOCK  # of each block, in bits a number
  size = int((share * task.dimension * _BITS - _BITS) / (1 + scale))
  if size >= task.dimension:
    return {'kind': 'eden', 'bits': int(_BITS * share)}
  return {'kind': 'eden', 'num_coordinates': size}


def _rand_k(task, share):
  return {'kind': 'rand_k', 'k': floats(task.dimension, share)}


def _heaprix(task, share):
  # Two tables of five rows and the heaviest values: a third each.
  third = floats(task.dimension, share) // 3
  sketch = {'kind': 'count_sketch', 'rows': 5, 'cols': max(1, third // 5)}
  return {
    'algorithm': 'fedsketch_heaprix', 'sketch': sketch, 'options': {'k': third},
    'server_schedule': None, 'client_schedule': task.fields['server_schedule'],
  }  # fmt: skip


def _fetchsgd(task, share):
  """One gradient of all samples of a round."""
  steps, batch = task.fields['local_steps'], task.fields['batch_size']
  cols = floats(task.dimension, share) // 5
  return {
    'algorithm': 'fetchsgd', 'local_steps': 1, 'batch_size': steps * batch,
    'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': cols},
    'options': {'k': max(1, cols * 5 // 16)},
  }  # fmt: skip


def _fewer_rounds(task, share):
  """Dense updates in a share of the rounds, with as many samples in all."""
  rounds = max(1, int(share * task.fields['rounds']))
  length = {k: rounds for k in ('rounds', 'eval_every', 'checkpoint_every')}
  steps = round(task.fields['local_steps'] * task.fields['rounds'] / rounds)
  more = {'local_steps': steps, 'rounds_per_dispatch': 1}
  return {'algorithm': 'fedavg', **ADAM, **length, **more}


_FEW = (0.01, 0.001)
FEDADAM, FEDAVG, FEWER = 'FedAdam', 'FedAvg', 'FedAdam, fewer rounds'
TABLES, ONE_BIT = 'SAFL, block_srht', 'SAFL, one bit'
BOTH_WAYS, SUBSPACE = 'SAFL, one bit both ways', 'subspaces, one and four bits'
EDEN = 'EDEN'
METHODS: dict[str, Method] = {
  FEDADAM: Method(lambda *_: {'algorithm': 'fedavg', **ADAM}, 'dense', _WHOLE),
  FEDAVG: Method(lambda *_: {'algorithm': 'fedavg'}, 'dense', _WHOLE, 'plain'),
  FEWER: Method(_fewer_rounds, 'dense', (0.1, 0.03)),
  'FedAdam, bfloat16 up': Method(
    _mean(lambda *_: {'kind': 'bfloat16'}), 'quantised', (0.5,)
  ),
  'FedAdam, int8 up': Method(
    _mean(lambda *_: {'kind': 'int8'}), 'quantised', (0.25,)
  ),
  TABLES: Method(_table('block_srht'), _SKETCH),
  'SAFL, block_cyclic': Method(_table('block_cyclic'), _SKETCH, (0.01,)),
  'SAFL, count_sketch': Method(_table('count_sketch'), _SKETCH, (0.01,)),
  ONE_BIT: Method(_one_bit, _SKETCH, _FEW),
  BOTH_WAYS: Method(_both_ways, _SKETCH, _FEW),
  SUBSPACE: Method(_subspace, _SKETCH, _FEW),
  'FedSKETCH, HEAPRIX': Method(_heaprix, _SKETCH, rates='plain'),
  'FetchSGD': Method(_fetchsgd, _SKETCH, rates='plain'),
  EDEN: Method(_mean(eden), 'quantised'),
  'QSGD, one level': Method(
    _mean(lambda *_: {'kind': 'qsgd', 'levels': 1}), 'quantised', (0.0625,)
  ),
  'rand-k': Method(_mean(_rand_k), 'random'),
  'top-k, two bits': Method(
    _mean(lambda t, x: two_bits(t.dimension, x)), 'largest'
  ),
  'FedKSeed': Method(
    lambda *_: {'algorithm': 'fedkseed', 'options': {'pool': 4096}}, 'seeds',
    (0.001,), 'seeds', 'client_lr',
  ),
}  # fmt: skip
# On MNIST without what Fashion-MNIST shows to be level with its neighbours.
ON_DIGITS = {
  name: method
  for name, method in METHODS.items()
  if name not in (
    'FedAdam, bfloat16 up', 'FedAdam, int8 up', 'SAFL, block_cyclic',
    'SAFL, count_sketch',
  )
}  # fmt: skip
# Rows with a claim on their error.
_SHOWN: Sequence[Row] = (
  (TABLES, 0.1), (TABLES, 0.01), (ONE_BIT, 0.01), (ONE_BIT, 0.001),
  (BOTH_WAYS, 0.01), (SUBSPACE, 0.01), (SUBSPACE, 0.001), (EDEN, 0.01),
  (EDEN, 0.001), (FEWER, 0.1),
)  # fmt: skip
_NOTE = (
  'No method keeps residuals or momentum on clients. A client keeps the model '
  'of its last round and receives what it missed since, or the whole model '
  'where that is fewer bytes; clients of SAFL step like the server, and keep '
  'its moments, too. A server that sent its '
  'parameters alone would have the errors of SAFL at the bytes down of a dense '
  'method. Fewer rounds are of as many samples in all.'
)


def clothes(ws: Workspace) -> studies.Report:
  """Fashion-MNIST."""
  task = tasks.clothes(ws)
  return study.report(ws, 'Federated-Clothes', task, METHODS, claims, _NOTE)


def digits(ws: Workspace) -> studies.Report:
  """MNIST."""
  task = tasks.digits(ws)
  return study.report(ws, 'Federated-Digits', task, ON_DIGITS, claims, _NOTE)


def claims(c: study.Compared) -> dict[str, Any]:
  """The values of the registered claims."""
  ours, small, one_bit = (SUBSPACE, 0.01), (SUBSPACE, 0.001), (ONE_BIT, 0.01)
  return {
    'mark': c.mark,
    **{study.title(row): c.above_dense(row) for row in _SHOWN},
    'rivals, 0.01': c.above(ours, c.rivals(ours, _SKETCH)),
    'rivals, 0.001': c.above(small, c.rivals(small, _SKETCH)),
    'trivial rival': c.above((TABLES, 0.1), [(FEWER, 0.1)]),
    'bits': c.above(one_bit, [(TABLES, 0.01)]),
    'one hash': c.above(ours, [(BOTH_WAYS, 0.01)]),
    'uplink alone': c.above((EDEN, 0.01), [one_bit]),
  }
