"""Data sets by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fl_sketch.data import ragged, simulated, sources, store, text
from fl_sketch.utils import registry
import jax
import numpy as np

Arrays = Mapping[str, np.ndarray]


class Entry(NamedTuple):
  """A data set of the registry.

  Attributes:
    factory: (**options) -> `sources.Dataset`, `store.Store`, or an
      `experiment.problem.Problem`, which has a model and losses of its own.
    clients: whether it says itself which samples each client holds.
  """

  factory: Callable[..., Any]
  clients: bool = False


REGISTRY = registry.Registry(
  'dataset', Entry, context=('data_dir', 'population', 'seed')
)
register, describe = REGISTRY.register, REGISTRY.describe


def from_clients(
  clients: Sequence[Arrays], test: Arrays, num_classes: int | None = None
) -> sources.Dataset:
  """A data set of the arrays that each client holds.

  >>> client = {'x': np.ones((3, 2)), 'y': np.ones(3)}
  >>> from_clients([client, client], test=client).partition.population
  2

  Args:
    clients: the arrays of every client by name, leaves [samples, ...]; 64-bit
      ones become 32-bit ones. They are copied: `data.store` maps them.
    test: the same arrays, of examples that no client holds.
    num_classes: labels are 0 to num_classes - 1; None if they are no classes.

  Raises:
    ValueError: there is no client, or one has no sample or other arrays than
      the test.
  """
  parts, test = [_narrow(arrays) for arrays in clients], _narrow(test)
  offsets = np.concatenate([[0], np.cumsum(_sizes(parts, test))])
  train = {k: np.concatenate([arrays[k] for arrays in parts]) for k in test}
  partition = ragged.Partition(None, offsets)
  return sources.Dataset('clients', train, test, num_classes, partition)


def _narrow(arrays: Arrays) -> sources.Arrays:
  """Converts arrays to the dtypes of JAX."""
  type_of = jax.dtypes.canonicalize_dtype
  return {
    name: np.asarray(x).astype(type_of(np.asarray(x).dtype), copy=False)
    for name, x in arrays.items()
  }


def _sizes(clients, test) -> list[int]:
  """The number of samples of each client, whose arrays must agree."""
  if not clients:
    raise ValueError('clients is empty; give the arrays of at least one.')
  if 'mask' in test:
    raise ValueError("The name 'mask' is reserved; rename this array.")
  kinds = lambda xs: {k: (str(x.dtype), x.shape[1:]) for k, x in xs.items()}
  expected, sizes = kinds(test), []
  for i, arrays in enumerate([test, *clients]):
    who = f'client {i - 1}' if i else 'the test'
    if kinds(arrays) != expected:
      raise ValueError(
        f"{who}: arrays {kinds(arrays)} differ from the test set's {expected} "
        'in name, dtype or shape.'
      )
    lengths = {k: len(x) for k, x in arrays.items()}
    if len({*lengths.values()}) != 1 or not min(lengths.values()):
      raise ValueError(f'{who}: lengths {lengths} must be equal and >= 1.')
    sizes.append(min(lengths.values()))
  return sizes[1:]


def _images(name):
  def load(data_dir: Any = None) -> sources.Dataset:
    return sources.load(name, data_dir)

  load.__doc__ = f'The images of {name}, by `sources.load`.'
  return load


def _simulated(population: int) -> store.Store:
  """Samples drawn for each client on its own, by `simulated.load`."""
  return simulated.load(population)


for _name in sources.NAMES:
  register(_images(_name), name=_name)
register(text.sst2, name='sst2')
register(text.load, name='text')
register(_simulated, name='simulated', clients=True)
register(store.open, name='store', clients=True)
