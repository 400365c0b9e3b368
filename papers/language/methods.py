"""The methods that are compared on models of language."""

from ..chen.studies import settings
from ..one_percent import methods
from ..one_percent.methods import Method
from ..one_percent.tasks import Fields, TunedTask

# 4,096 seeds, as its authors have.
_SEEDS = {'algorithm': 'fedkseed', 'options': {'pool': 4096}}
# Outer steps are the authors'; inner rates fall along half a cosine.
_DILOCO = {
  'local_optimizer': {'kind': 'adamw'}, 'client_schedule': {'kind': 'cosine'},
  'server_optimizer': 'nesterov', 'momentum': 0.9, 'server_lr': 0.7,
}  # fmt: skip


def _tables(task: TunedTask, share: float) -> Fields:
  """DiLoCo's clients and server, with SAFL's tables between them."""
  one_bit = methods.METHODS[ONE_BIT].fields(task, share)
  own = {'algorithm', 'sketch', 'codec'}
  return {k: v for k, v in one_bit.items() if k in own} | _DILOCO


def _sparse_loco(task: TunedTask, share: float) -> Fields:
  """SparseLoCo, whose clients begin AdamW anew, as here those of DiLoCo do."""
  fields = methods.METHODS[_SPARSE].fields(task, share)
  return fields | {'local_optimizer': {'kind': 'adamw'}}


def _adamw(keep_state: bool) -> Method:
  """AdamW on clients and their mean; of one client, AdamW and no more."""
  local = {**_DILOCO['local_optimizer'], 'keep_state': keep_state}
  fields = {
    'algorithm': 'fedavg', 'local_optimizer': local,
    'client_schedule': _DILOCO['client_schedule'],
  }  # fmt: skip
  return Method('adamw', lambda *_: fields, (1.0,), 'client_lr', False)


def _ferret(task: TunedTask, share: float) -> Fields:
  options = {'size': int(share * task.dimension)}
  return {'algorithm': 'ferret', **settings.ADAM, 'options': options}


def _of_products(kind: str) -> Method:
  """AdamW on clients, and a mean that is exact for products of factors."""
  algorithm = 'fedavg' if kind == 'ffa' else kind
  own = {k: _DILOCO[k] for k in ('local_optimizer', 'client_schedule')}
  fields = lambda task, _: {
    'algorithm': algorithm, **own, 'lora': task.fields['lora'] | {'kind': kind},
  }  # fmt: skip
  return Method('adamw', fields, (1.0,), 'client_lr', False)


FEDAVG = 'FedAvg'
CENTRAL, CENTRAL_SGD = 'central AdamW', 'central SGD'
DENSE, SAFL, ONE_BIT = methods.DENSE, methods.SAFL, methods.ONE_BIT
DILOCO = 'DiLoCo'
TABLES = "SAFL with DiLoCo's optimizers, one bit"
TABLES_BOTH = f'{TABLES} both ways'
_SPARSE = 'SparseLoCo'
_DENSE = {'algorithm': 'fedavg'}
_BOTH_WAYS = methods.both_ways(_tables)
_FEDAVG = Method('sgd', lambda *_: _DENSE, (1.0,), 'client_lr')
METHODS: dict[str, Method] = {
  FEDAVG: _FEDAVG,
  DILOCO: Method(
    'adamw', lambda *_: _DENSE | _DILOCO, (1.0,), 'client_lr', False
  ),
  TABLES: Method('adamw', _tables, (0.01,), 'client_lr', False),
  TABLES_BOTH: Method('adamw', _BOTH_WAYS, (0.01,), 'client_lr', False),
  **{
    name: methods.METHODS[name]
    for name in (DENSE, methods.OURS, ONE_BIT, SAFL, 'DeMo')
  },
  _SPARSE: Method('adamw', _sparse_loco, rate='client_lr'),
  'Ferret': Method('adam', _ferret),
  'FedKSeed': Method('seeds', lambda *_: _SEEDS, rate='client_lr'),
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
  DENSE: methods.METHODS[DENSE],
}
REHEARSED = (
  DENSE, DILOCO, TABLES, ONE_BIT, 'FedEx-LoRA', *CENTRALLY, *RECURRENT,
)  # fmt: skip
