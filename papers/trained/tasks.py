"""The tasks: each is trained densely to a mark before it is used."""

from collections.abc import Sequence
from typing import NamedTuple

from ..common import comparison
from ..common.workspace import Fields, Workspace


class Task(NamedTuple):
  """A learning problem, its mark, and the samples of every method."""

  name: str
  title: str
  fields: Fields  # the problem: data, model and loss
  metric: str  # of the test, by which methods are compared
  mark: float  # that the dense run must reach
  source: str  # of the mark
  # Largest difference that counts as none: points, or per cent of a loss.
  margin: float
  workers: int  # of every method but the ceilings, which have one
  batch_size: int  # samples of a worker in a step
  steps: int  # optimizer steps of every method, in all
  local_steps: int  # of a round of local-update methods
  seeds: Sequence[int] = range(5)  # that are reported
  dimension: int = 0  # parameters that are trained
  factors: int = 0  # numbers of the second moment that are sent

  @property
  def is_loss(self) -> bool:
    """Whether the metric is a loss: the smaller, the better."""
    return self.metric == 'test_loss'

  @property
  def decimals(self) -> int:
    """Of the metric in tables."""
    return 3 if self.is_loss else 2

  def length(self, rounds: int) -> Fields:
    """The fields of a run of so many rounds."""
    every = max(1, rounds // 10)
    dispatch = max(n for n in range(1, 51) if every % n == 0)
    return {
      'rounds': rounds, 'eval_every': every, 'checkpoint_every': rounds,
      'rounds_per_dispatch': dispatch,
    }  # fmt: skip


_CHARACTERS = {
  'dataset': 'text', 'loss': 'tokens', 'model': 'gpt_micro',
  'dataset_options': {
    'path': 'tinyshakespeare/input.txt', 'tokens': 'characters', 'length': 64,
  },
  'model_options': {'width': 128, 'depth': 4, 'heads': 4, 'max_length': 64},
}  # fmt: skip
TASKS = {
  'characters': Task(
    'characters', 'decoder, tiny Shakespeare', _CHARACTERS, 'test_loss', 1.88,
    "nanoGPT's README: its configuration for a CPU, loss in nats", margin=1.0,
    workers=4, batch_size=3, steps=2000, local_steps=20,
  ),
  'digits': Task(
    'digits', 'LeNet-5, MNIST', {'dataset': 'mnist', 'model': 'lenet5'},
    'test_accuracy', 99.05, 'LeCun et al., 1998: LeNet-5', margin=0.5,
    workers=4, batch_size=64, steps=2000, local_steps=20,
    seeds=range(5, 15),  # as many as a pilot on seeds 0 to 4 asked for
  ),
  'clothes': Task(
    'clothes', 'LeNet-5, Fashion-MNIST',
    {'dataset': 'fashion_mnist', 'model': 'lenet5'}, 'test_accuracy', 90.3,
    "Fashion-MNIST's README: two convolutions with pools and ELU; others with "
    'two convolutions have 87.6 to 92.5', margin=0.5, workers=4, batch_size=64,
    steps=2000, local_steps=20, seeds=range(10),
  ),
}  # fmt: skip
_REHEARSED = {'dataset': 'digits', 'model_options': {'widths': (64, 64)}}


def make(ws: Workspace, name: str) -> Task:
  """Makes a task at the scale of the workspace: at quick scale, on digits."""
  task = TASKS[name]
  if ws.scale == 'quick':
    task = task._replace(
      name='rehearsed', fields=_REHEARSED, metric='test_accuracy', steps=100,
      local_steps=10, batch_size=64, seeds=range(2),
    )  # fmt: skip
  dimension, factors = comparison.sizes(ws, task.fields)
  return task._replace(dimension=dimension, factors=factors)
