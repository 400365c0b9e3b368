"""The methods that are compared on models of language."""

from ..chen.studies import settings
from ..compressors import methods
from .tuning import Fields, Method, Task

_SHARE = 0.01  # of the bytes of the model, up
# Outer steps are the authors'; inner rates fall along half a cosine.
_DILOCO = {
  'local_optimizer': {'kind': 'adamw'}, 'client_schedule': {'kind': 'cosine'},
  'server_optimizer': 'nesterov', 'momentum': 0.9, 'server_lr': 0.7,
}  # fmt: skip
_DENSE = {'algorithm': 'fedavg'}
# 4,096 seeds, as its authors have.
_SEEDS = {'algorithm': 'fedkseed', 'options': {'pool': 4096}}


def _tables(task: Task) -> Fields:
  """DiLoCo's clients and server, with SAFL's tables between them."""
  table = methods.one_bit(task.dimension, _SHARE)
  return {'algorithm': 'safl', **table, **_DILOCO}


def _one_bit(task: Task) -> Fields:
  table = methods.one_bit(task.dimension, _SHARE)
  return {'algorithm': 'safl', **settings.ADAM, **table}


def _both_ways(task: Task) -> Fields:
  return _tables(task) | {'downlink_codec': {'kind': 'eden'}}


def _safl(task: Task) -> Fields:
  size = methods.floats(task.dimension, _SHARE)
  sketch = {'kind': 'block_cyclic', 'size': size}
  return {'algorithm': 'safl', **settings.ADAM, 'sketch': sketch}


def _preconditioned(task: Task) -> Fields:
  every = max(1, min(20, task.fields['rounds'] // 3))
  spent = 4 * task.factors / every  # bytes
  return {
    'algorithm': 'preconditioned_sketching', 'b1': 0.0,
    'options': {'every': every, 'client_momentum': 0.9},
    **methods.one_bit(task.dimension, _SHARE, spent),
  }  # fmt: skip


def _demo(task: Task) -> Fields:
  steps, batch = task.fields['local_steps'], task.fields['batch_size']
  one_gradient = {'local_steps': 1, 'batch_size': steps * batch}
  codec = {'kind': 'dct_top_k', 'k': 1, 'chunk': 128}
  return {'algorithm': 'demo', **one_gradient, 'codec': codec}


def _sparse_loco(task: Task) -> Fields:
  """SparseLoCo, whose clients begin AdamW anew, as here those of DiLoCo do."""
  return {
    'algorithm': 'fedcom', 'server_lr': 1.0, 'weight_decay': 0.0,
    'local_optimizer': {'kind': 'adamw'},
    'codec': methods.two_bits(task.dimension, _SHARE),
    'options': {'error_feedback': True, 'residual_decay': 0.95},
  }  # fmt: skip


def _adamw(keep_state: bool) -> Method:
  """AdamW on clients and their mean; of one client, AdamW and no more."""
  local = {**_DILOCO['local_optimizer'], 'keep_state': keep_state}
  schedule = {'client_schedule': _DILOCO['client_schedule']}
  fields = {**_DENSE, 'local_optimizer': local, **schedule}
  return Method('adamw', lambda _: fields, 1.0, 'client_lr', False)


def _ferret(task: Task) -> Fields:
  options = {'size': int(_SHARE * task.dimension)}
  return {'algorithm': 'ferret', **settings.ADAM, 'options': options}


def _of_products(kind: str) -> Method:
  """AdamW on clients, and a mean that is exact for products of factors."""
  algorithm = 'fedavg' if kind == 'ffa' else kind
  own = {k: _DILOCO[k] for k in ('local_optimizer', 'client_schedule')}
  fields = lambda task: {
    'algorithm': algorithm, **own, 'lora': task.fields['lora'] | {'kind': kind},
  }  # fmt: skip
  return Method('adamw', fields, 1.0, 'client_lr', False)


FEDAVG = 'FedAvg'
CENTRAL, CENTRAL_SGD = 'central AdamW', 'central SGD'
DENSE, SAFL, ONE_BIT = 'FedAdam, dense', 'SAFL', 'SAFL, one bit'
DILOCO = 'DiLoCo'
TABLES = "SAFL with DiLoCo's optimizers, one bit"
TABLES_BOTH = f'{TABLES} both ways'
_OF_ADAMW = {'rate': 'client_lr', 'schedule': False}
_FEDAVG = Method('sgd', lambda _: _DENSE, 1.0, 'client_lr')
_FEDADAM = Method('adam', lambda _: _DENSE | settings.ADAM, 1.0)
METHODS: dict[str, Method] = {
  FEDAVG: _FEDAVG,
  DILOCO: Method('adamw', lambda _: _DENSE | _DILOCO, 1.0, **_OF_ADAMW),
  TABLES: Method('adamw', _tables, **_OF_ADAMW),
  TABLES_BOTH: Method('adamw', _both_ways, **_OF_ADAMW),
  DENSE: _FEDADAM,
  'preconditioned momentum, one bit': Method('preconditioned', _preconditioned),
  ONE_BIT: Method('adam', _one_bit),
  SAFL: Method('adam', _safl),
  'DeMo': Method('sign', _demo),
  'SparseLoCo': Method('adamw', _sparse_loco, rate='client_lr'),
  'Ferret': Method('adam', _ferret),
  'FedKSeed': Method('seeds', lambda _: _SEEDS, rate='client_lr'),
}
# Dense means of factors, beside the naive one of all the others.
OF_FACTORS: dict[str, Method] = {
  'FFA-LoRA': _of_products('ffa'),
  'FLoRA': _of_products('flora'),
  'FedEx-LoRA': _of_products('fedex'),
}
CENTRALLY = {CENTRAL: _adamw(keep_state=True), CENTRAL_SGD: _FEDAVG}
RECURRENT: dict[str, Method] = {
  FEDAVG: _FEDAVG,
  'FedAvg, AdamW on clients': _adamw(keep_state=False),
  DENSE: _FEDADAM,
}
REHEARSED = (
  DENSE, DILOCO, TABLES, ONE_BIT, 'FedEx-LoRA', *CENTRALLY, *RECURRENT,
)  # fmt: skip
