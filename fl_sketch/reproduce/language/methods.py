"""The methods that are compared on models of language."""

from fl_sketch.reproduce.chen import settings
from fl_sketch.reproduce.one_percent import methods
from fl_sketch.reproduce.one_percent.methods import Method
from fl_sketch.reproduce.one_percent.tasks import Fields, Task

_POOL = 4096  # seeds of FedKSeed, as its authors have


def _diloco(task: Task, share: float) -> Fields:
  del task, share
  return {
    'algorithm': 'fedavg', 'local_optimizer': {'kind': 'adamw'},
    'server_optimizer': 'nesterov', 'momentum': 0.9, 'server_lr': 0.7,
  }  # fmt: skip


def _ferret(task: Task, share: float) -> Fields:
  options = {'size': int(share * task.dimension)}
  return {'algorithm': 'ferret', **settings.ADAM, 'options': options}


def _fedkseed(task: Task, share: float) -> Fields:
  del task, share
  return {'algorithm': 'fedkseed', 'options': {'pool': _POOL}}


def _of_products(kind: str) -> Method:
  """AdamW on clients, and a mean that is exact for products of factors."""

  def fields(task, share):
    del share
    lora = task.fields['lora'] | {'kind': kind}
    algorithm = 'fedavg' if kind == 'ffa' else kind
    local = {'local_optimizer': {'kind': 'adamw'}}
    return {'algorithm': algorithm, 'lora': lora} | local

  return Method('products', 'adamw', fields, (1.0,), rate='client_lr')


DENSE, SAFL, ONE_BIT = methods.DENSE, methods.SAFL, methods.ONE_BIT
DILOCO = 'DiLoCo'
OURS = methods.OURS
_SHARED = (
  DENSE, OURS, 'SAFL, client momentum, one bit', ONE_BIT, SAFL, 'SparseLoCo',
  'DeMo',
)  # fmt: skip
METHODS: dict[str, Method] = {
  'FedAvg': Method(
    'dense', 'sgd', lambda *_: {'algorithm': 'fedavg'}, (1.0,), 'client_lr'
  ),
  DILOCO: Method('dense', 'adamw', _diloco, (1.0,), 'client_lr'),
  **{name: methods.METHODS[name] for name in _SHARED},
  'Ferret': Method('layers', 'adam', _ferret),
  'FedKSeed': Method('seeds', 'seeds', _fedkseed, rate='client_lr'),
}
# Dense means of factors, beside the naive one of all the others.
OF_FACTORS: dict[str, Method] = {
  'FFA-LoRA': _of_products('ffa'),
  'FLoRA': _of_products('flora'),
  'FedEx-LoRA': _of_products('fedex'),
}
REHEARSED = (DENSE, DILOCO, ONE_BIT, 'Ferret', 'FedKSeed', 'FedEx-LoRA')
