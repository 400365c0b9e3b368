"""The tasks: each has a published mark that dense training must reach."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..common import comparison
from ..common.workspace import Fields, Workspace


class Task(NamedTuple):
  """A problem, how it is shared out, and the mark of dense training."""

  name: str  # of its folder
  title: str
  fields: Fields  # of the config, those of methods apart
  mark: float  # that dense training must reach: per cent, or nats
  source: str  # of the mark
  metric: str = 'test_accuracy'  # or 'test_loss'
  dimension: int = 0  # parameters
  factors: int = 0  # numbers of the second moment that are sent

  @property
  def is_loss(self) -> bool:
    """Whether the metric is a loss: the smaller, the better."""
    return self.metric == 'test_loss'

  @property
  def unit(self) -> str:
    """The metric, in tables and figures."""
    return 'test loss, nats' if self.is_loss else 'test accuracy, %'

  @property
  def digits(self) -> int:
    """Of the metric in tables."""
    return 3 if self.is_loss else 1

  @property
  def scale(self) -> int:
    """From the metric to what tables have: accuracies are in per cent."""
    return 1 if self.is_loss else 100

  def errors(self, final: Sequence[float]) -> np.ndarray:
    """Losses, or what accuracies lack; what diverged guesses, of ten classes.

    >>> Task('', '', {}, 0, '').errors([85.0, float('nan')]).tolist()
    [15.0, 90.0]
    """
    x = np.array(final, float)
    if self.is_loss:
      return np.nan_to_num(x, nan=np.log(65))  # of 65 characters
    return np.nan_to_num(100 - x, nan=90.0)

  @property
  def dense_bytes(self) -> int:
    """Bytes of the dense updates of one client in a run, one way."""
    return 4 * self.dimension * self.fields['rounds']


FALLING = {'kind': 'cosine', 'final': 0.05}
_CLOTHES = {
  'dataset': 'fashion_mnist', 'model': 'lenet5', 'population': 500,
  'cohort': 10, 'partition': 'dirichlet', 'alpha': 0.1, 'local_steps': 10,
  'batch_size': 10, 'client_lr': 0.05, 'server_schedule': FALLING,
}  # fmt: skip
# The 2NN of McMahan et al. and their 100 clients of two shards each. A client's
# 600 samples are 20 batches of 30, where they have 60 of 10.
_DIGITS = {
  'dataset': 'mnist', 'model_options': {'widths': (200, 200)},
  'population': 100, 'cohort': 10, 'partition': 'label_shards',
  'shards_per_client': 2, 'local_steps': 20, 'batch_size': 30, 'client_lr': 0.1,
  'server_schedule': FALLING,
}  # fmt: skip
_REHEARSED = {
  'dataset': 'digits', 'model_options': {'widths': (64,)}, 'population': 40,
  'cohort': 4, 'partition': 'dirichlet', 'alpha': 0.1, 'local_steps': 4,
  'batch_size': 8, 'client_lr': 0.05, 'server_schedule': FALLING,
}  # fmt: skip


def clothes(ws: Workspace) -> Task:
  """Fashion-MNIST on 500 clients, each with few classes."""
  return _task(
    ws, 'clothes', 'Fashion-MNIST, 500 clients', _CLOTHES, 150, 82.0,
    'FedLECC with 100 clients of severe label skew, where FedAvg has 73.2',
  )  # fmt: skip


def digits(ws: Workspace) -> Task:
  """MNIST on 100 clients, each with two classes for the most part."""
  return _task(
    ws, 'digits', 'MNIST, 100 clients', _DIGITS, 200, 97.0,
    'McMahan et al., arXiv:1602.05629, Table 2: their 2NN in 350 rounds',
  )  # fmt: skip


# Four workers; `rounds` are the steps of methods that send at each one.
_WORKERS = {'population': 4, 'cohort': 4, 'local_steps': 1, 'batch_size': 64}
_DECODER = {
  'dataset': 'text', 'loss': 'tokens', 'model': 'gpt_micro',
  'dataset_options': {
    'path': 'tinyshakespeare/input.txt', 'tokens': 'characters', 'length': 64,
  },
  'model_options': {'width': 128, 'depth': 4, 'heads': 4, 'max_length': 64},
  **_WORKERS, 'batch_size': 6,
}  # fmt: skip
_FEW_REHEARSED = {
  'dataset': 'digits', 'model_options': {'widths': (64, 64)}, **_WORKERS,
}  # fmt: skip


def characters(ws: Workspace) -> Task:
  """A decoder of tiny Shakespeare on four workers, 9,600 windows."""
  return _task(
    ws, 'characters', 'decoder, tiny Shakespeare', _DECODER, 400, 1.88,
    "nanoGPT's README: its configuration for a CPU", 'test_loss',
  )  # fmt: skip


def decoder(
  ws: Workspace, width: int, workers: int, batch: int, rounds: int
) -> Task:
  """The decoder at another width, whose workers share a batch."""
  model = {'width': width, 'depth': 4, 'heads': 4, 'max_length': 64}
  small = _FEW_REHEARSED | {'model_options': {'widths': (width,)}}
  fields = ws.pick(small, _DECODER | {'model_options': model})
  shared = {'population': workers, 'cohort': workers}
  fields |= shared | {'batch_size': batch // workers}
  return _sized(ws, fields | comparison.length(rounds), 'decoder', '', 0, '')


def _task(ws, name, title, fields, rounds, *mark) -> Task:
  few = fields['local_steps'] == 1
  small = (_FEW_REHEARSED, 400) if few else (_REHEARSED, 10)
  fields, rounds = ws.pick(small, (fields, rounds))
  length = comparison.length(rounds)
  made = _sized(ws, fields | length, name, title, *mark)
  return made._replace(metric=ws.pick('test_accuracy', made.metric))


def _sized(ws, fields, name, title, *mark) -> Task:
  dimension, factors = comparison.sizes(ws, fields)
  made = Task(name, title, fields, *mark)
  return made._replace(dimension=dimension, factors=factors)
