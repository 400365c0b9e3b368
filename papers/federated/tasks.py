"""The federations: data of many clients, of whom few take part in a round."""

from typing import NamedTuple

from ..common import comparison
from ..common.workspace import Fields, Workspace


class Task(NamedTuple):
  """A federation, its model, and the mark of dense training."""

  name: str  # of its folder
  title: str
  fields: Fields  # of the config, those of methods apart
  mark: float  # test accuracy in per cent that dense training must reach
  source: str  # of the mark
  dimension: int  # parameters


_CLOTHES = {
  'dataset': 'fashion_mnist', 'model': 'lenet5', 'population': 500,
  'cohort': 10, 'partition': 'dirichlet', 'alpha': 0.1, 'local_steps': 10,
  'batch_size': 10, 'client_lr': 0.05,
}  # fmt: skip
# The 2NN of McMahan et al. and their 100 clients of two shards each. A client's
# 600 samples are 20 batches of 30, where they have 60 of 10.
_DIGITS = {
  'dataset': 'mnist', 'model_options': {'widths': (200, 200)},
  'population': 100, 'cohort': 10, 'partition': 'label_shards',
  'shards_per_client': 2, 'local_steps': 20,
  'batch_size': 30, 'client_lr': 0.1,
}  # fmt: skip
_REHEARSED = {
  'dataset': 'digits', 'model_options': {'widths': (64,)}, 'population': 40,
  'cohort': 4, 'partition': 'dirichlet', 'alpha': 0.1, 'local_steps': 4,
  'batch_size': 8, 'client_lr': 0.05,
}  # fmt: skip


def clothes(ws: Workspace) -> Task:
  """Fashion-MNIST on 500 clients, each with few classes."""
  return _task(
    ws, 'clothes', 'Fashion-MNIST, 500 clients', _CLOTHES, 82.0,
    'FedLECC with 100 clients of severe label skew, where FedAvg has 73.2',
  )  # fmt: skip


def digits(ws: Workspace) -> Task:
  """MNIST on 100 clients, each with two classes for the most part."""
  return _task(
    ws, 'digits', 'MNIST, 100 clients', _DIGITS, 97.0,
    'McMahan et al., arXiv:1602.05629, Table 2: their 2NN in 350 rounds',
  )  # fmt: skip


def _task(ws, name, title, fields, mark, source) -> Task:
  fields = ws.pick(_REHEARSED, fields) | comparison.length(ws.pick(10, 300))
  dimension, _ = comparison.sizes(ws, fields)
  return Task(name, title, fields, mark, source, dimension)
