"""The four tasks of the comparison, and the grids of rates for them."""

from typing import Any, NamedTuple

from fl_sketch import experiment, models
from fl_sketch.reproduce import lab as lab_lib
from fl_sketch.reproduce.chen import settings
import jax

Fields = dict[str, Any]
_DECADE = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class Task(NamedTuple):
  """A learning problem, and the four rates of each kind of method.

  Attributes:
    name: of its folder.
    fields: of the config, those of methods apart.
    dimension: number of parameters.
    factors: numbers that `preconditioned_sketching` sends of the second moment.
    rates: kind of optimizer -> its least rate of four, half a decade apart.
    cosine: whether rates fall to 1e-5 over a run, where methods have schedules.
    shares: of the bytes of the model, up.
    tuned_over: rounds of a trial.
  """

  name: str
  fields: Fields
  dimension: int
  factors: int
  rates: dict[str, float]
  cosine: bool
  shares: tuple[float, ...]
  tuned_over: int

  def grid(self, kind: str) -> tuple[float, ...]:
    """The four rates that methods of this kind are tuned over."""
    start = _DECADE.index(self.rates[kind])
    return _DECADE[start : start + 4]


_MNIST = {
  'dataset': 'mnist', 'model': 'lenet5', 'population': 50, 'cohort': 25,
  'rounds': 300, 'local_steps': 5, 'batch_size': 32, 'client_lr': 0.05,
  'rounds_per_dispatch': 15, 'eval_every': 30, 'checkpoint_every': 300,
}  # fmt: skip


def mnist(lab: lab_lib.Lab) -> Task:
  """LeNet-5 on MNIST, 25 of 50 clients a round."""
  rates = {
    'adam': 0.001, 'preconditioned': 0.0003, 'sign': 0.0001,
    'one_gradient': 0.01, 'clients': 0.01, 'adamw': 0.0003, 'markov': 0.0003,
  }  # fmt: skip
  if lab.scale == 'quick':
    return _task(lab, 'mnist', settings.text(lab).fields, rates, cosine=True)
  return _task(lab, 'mnist', _MNIST, rates, cosine=True, tuned_over=100)


def resnet(lab: lab_lib.Lab) -> Task:
  """ResNet-8 on CIFAR-10, from scratch, five clients."""
  rates = {
    'adam': 0.001, 'preconditioned': 0.001, 'sign': 0.0003,
    'one_gradient': 0.03, 'clients': 0.03, 'adamw': 0.0003, 'markov': 0.01,
  }  # fmt: skip
  return _task(lab, 'resnet', _whole(settings.resnet(lab)), rates)


def text(lab: lab_lib.Lab) -> Task:
  """An encoder on SST-2, from scratch, five clients."""
  rates = {
    'adam': 0.0003, 'preconditioned': 0.0001, 'sign': 0.0001,
    'one_gradient': 0.001, 'clients': 0.001, 'adamw': 0.0001, 'markov': 0.0003,
  }  # fmt: skip
  return _task(lab, 'text', _whole(settings.text(lab)), rates)


def vit(lab: lab_lib.Lab) -> Task:
  """A vision transformer that is fine-tuned on CIFAR-10, five clients."""
  rates = {
    'adam': 0.0003, 'preconditioned': 0.0003, 'sign': 0.0001,
    'one_gradient': 0.03, 'clients': 0.03, 'adamw': 0.0001, 'markov': 0.0003,
  }  # fmt: skip
  task = _task(lab, 'vit', _whole(settings.vit(lab)), rates)
  return task._replace(shares=(0.01,))


def _whole(setting: settings.Setting) -> Fields:
  """The fields of a setting, with the whole test set."""
  fields = {k: v for k, v in setting.fields.items() if k != 'test_slice'}
  return fields | {'eval_every': fields['rounds'] // 10}


def _task(lab, name, fields, rates, *, cosine=False, tuned_over=None) -> Task:
  params = experiment.build(fields, lab.data_dir).params
  leaves = jax.tree.leaves(params)
  rows_and_columns = lambda x: x.size // x.shape[-1] + x.shape[-1]
  factors = sum(rows_and_columns(x) if x.ndim > 1 else 1 for x in leaves)
  return Task(
    lab.pick('digits', name),
    fields,
    models.num_params(params),
    factors,
    rates,
    cosine,
    lab.pick((0.01,), (0.01, 0.001)),
    tuned_over or fields['rounds'],
  )
