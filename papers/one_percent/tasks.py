"""The four tasks of the comparison, and the grids of rates for them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..chen.studies import settings
from ..common import comparison, workspace
from ..common.workspace import Workspace

Fields = dict[str, Any]
MNIST = {
  'dataset': 'mnist', 'model': 'lenet5', 'population': 50, 'cohort': 25,
  'rounds': 300, 'local_steps': 5, 'batch_size': 32, 'client_lr': 0.05,
  'eval_every': 20, 'checkpoint_every': 300,
}  # fmt: skip


class TunedTask(NamedTuple):
  """A learning problem, and the four rates of each kind of method."""

  name: str  # of its folder
  fields: Fields  # of the config, those of methods apart
  dimension: int  # number of parameters
  # Numbers that `preconditioned_sketching` sends of the second moment.
  factors: int
  # Kind of optimizer -> its least rate of four, half a decade apart.
  rates: dict[str, float]
  # Whether rates fall to 1e-5 over a run, where methods have schedules.
  cosine: bool
  shares: tuple[float, ...]  # of the bytes of the model, up
  tuned_over: int  # rounds of a trial
  trials: Fields | None = None  # fields of trials alone
  # Of a trial, the larger the better.
  score: Callable[[workspace.PointRun], float] = workspace.training_score

  def grid(self, kind: str) -> tuple[float, ...]:
    """The four rates that methods of this kind are tuned over."""
    return workspace.half_decades(self.rates[kind])


TITLES = {
  'mnist': 'LeNet-5, MNIST', 'resnet': 'ResNet-8, CIFAR-10',
  'text': 'encoder, SST-2', 'vit': 'ViT, CIFAR-10',
}  # fmt: skip
# TunedTask -> kind of method -> its least rate of four.
_RATES = {
  'mnist': {
    'adam': 0.001, 'preconditioned': 0.0003, 'sign': 0.0001,
    'one_gradient': 0.01, 'clients': 0.01, 'adamw': 0.0003, 'markov': 0.0003,
  },
  'resnet': {
    'adam': 0.001, 'preconditioned': 0.001, 'sign': 0.0003,
    'one_gradient': 0.03, 'clients': 0.03, 'adamw': 0.0003, 'markov': 0.01,
  },
  'text': {
    'adam': 0.0003, 'preconditioned': 0.0001, 'sign': 0.0001,
    'one_gradient': 0.001, 'clients': 0.001, 'adamw': 0.0001, 'markov': 0.0003,
  },
  'vit': {
    'adam': 0.0003, 'preconditioned': 0.0003, 'sign': 0.0001,
    'one_gradient': 0.03, 'clients': 0.03, 'adamw': 0.0001, 'markov': 0.0003,
  },
}  # fmt: skip


def make(ws: Workspace, name: str) -> TunedTask:
  """Makes a task at the scale of the workspace; its test set is whole.

  'mnist' is LeNet-5, 25 of 50 clients a round. With five clients, 'resnet' is
  ResNet-8 on CIFAR-10, 'text' an encoder on SST-2, and 'vit' a vision
  transformer that is fine-tuned on CIFAR-10. At quick scale all are the digits.
  """
  name = ws.pick('text', name)
  if name == 'mnist':
    fields = MNIST
  else:
    fields = dict(settings.SETTINGS[name](ws).fields)
    fields.pop('test_slice', None)
  return of_fields(ws, name, fields, _RATES[name])


def of_fields(
  ws: Workspace, name: str, fields: Fields, rates: dict[str, float]
) -> TunedTask:
  """Makes a task from config fields and the least rate of each method kind."""
  cosine = name == 'mnist'
  return TunedTask(
    ws.pick('digits', name),
    fields,
    *comparison.sizes(ws, fields),
    rates,
    cosine,
    ws.pick((0.01,), (0.01,) if name == 'vit' else (0.01, 0.001)),
    ws.pick(fields['rounds'], 100 if cosine else fields['rounds']),
  )
