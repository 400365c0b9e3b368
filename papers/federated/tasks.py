"""The federations: data of many clients, of whom few take part in a round."""

from typing import NamedTuple

from ..common import comparison
from ..common.workspace import Fields, Workspace
from ..language import problems


class Task(NamedTuple):
  """A federation, its model, and the mark of dense training."""

  name: str  # of its folder
  title: str
  fields: Fields  # of the config, those of methods apart
  metric: str  # of the test, by which methods are compared
  mark: float  # that dense training must reach
  source: str  # of the mark
  unit: str  # of the metric, in tables
  guessing: float  # its error
  dimension: int = 0  # parameters

  @property
  def is_loss(self) -> bool:
    """Whether the metric is a loss: the smaller, the better."""
    return 'accuracy' not in self.metric

  @property
  def scale(self) -> int:
    """Of the metric in tables: accuracies are in per cent."""
    return 1 if self.is_loss else 100


_CLOTHES = {
  'dataset': 'fashion_mnist', 'model': 'lenet5', 'population': 500,
  'cohort': 10, 'partition': 'dirichlet', 'alpha': 0.1, 'local_steps': 10,
  'batch_size': 10, 'client_lr': 0.05,
}  # fmt: skip
_DIGITS = {
  'dataset': 'digits', 'model_options': {'widths': (64,)}, 'population': 40,
  'cohort': 4, 'partition': 'dirichlet', 'alpha': 0.1, 'local_steps': 4,
  'batch_size': 8, 'client_lr': 0.05,
}  # fmt: skip


def clothes(ws: Workspace) -> Task:
  """Fashion-MNIST on 500 clients, each with few classes; ten in a round."""
  fields = ws.pick(_DIGITS, _CLOTHES) | _length(ws, 300)
  return _task(
    ws, 'clothes', 'Fashion-MNIST, 500 clients', fields, 'test_accuracy', 82.0,
    'TODO', 'test accuracy, %', 90.0,
  )  # fmt: skip


def speakers(ws: Workspace) -> Task:
  """Characters of 141 speakers of plays; eight in a round."""
  fields = problems.plays(ws) | problems.decoder(ws) | {'client_lr': 0.1}
  return _task(
    ws, 'speakers', 'tiny Shakespeare, 141 speakers',
    fields | _length(ws, 300), 'test_bits', 3.4,
    'TODO', 'test loss, bits a character', 6.0,
  )  # fmt: skip


def _length(ws, rounds) -> Fields:
  return comparison.length(ws.pick(6, rounds))


def _task(ws, name, title, fields, *mark) -> Task:
  dimension, _ = comparison.sizes(ws, fields)
  return Task(name, title, fields, *mark, dimension)
