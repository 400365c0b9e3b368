"""Data sets by name; partitions over clients, cohorts, and batches."""

from collections.abc import Callable, Mapping, Sequence
import functools
from typing import Any, NamedTuple

from fl_sketch.data import (
  own_arrays,
  partitions,
  sources,
  store,
  synthetic,
  text,
)
from fl_sketch.utils import registry
import numpy as np

__all__ = ['from_clients', 'register', 'describe', 'REGISTRY']


class Entry(NamedTuple):
  """A data set of the registry."""

  # (**options) -> `Dataset`, `Store`, or `Problem` of its own model and losses.
  factory: Callable[..., Any]
  clients: bool = False  # whether it says which samples each client holds
  # Whether these hold the test set as well; None: its arrays say so.
  test_of_clients: bool | None = None


REGISTRY = registry.Registry(
  'dataset', Entry, context=('data_dir', 'population', 'seed')
)
register, describe = REGISTRY.register, REGISTRY.describe


def from_clients(
  clients: Sequence[Any] | Mapping[str, Any],
  test: Any,
  num_classes: int | None = None,
  *,
  label: str | None = None,
) -> sources.Dataset:
  """Make a data set of the arrays that each client holds.

  >>> client = {'x': np.ones((3, 2)), 'y': np.ones(3)}
  >>> from_clients([client, client], test=client).partition.population
  2

  `clients`, in a list or by name, and `test`, of no client, are as of
  `own_arrays.read`; they are copied, with 64-bit numbers as 32-bit ones. Labels
  are 0 to num_classes - 1; None: no classes. With `label` that array becomes
  'y'; the others, if they are columns, f32[samples, columns] 'x', or 'x' if
  there is one. Raises ValueError for no client, or one without samples, with
  other arrays than the test, or without numbers.
  """
  is_named = isinstance(clients, Mapping)
  given = clients.items() if is_named else enumerate(clients)
  parts = {k: own_arrays.read(f'client {k!r}', x) for k, x in given}
  if not parts:
    raise ValueError('clients is empty; give the arrays of at least one.')
  test = own_arrays.read('the test', test)
  own_arrays.check(parts, test, label)
  if label is not None:
    names = [*test]
    named = lambda arrays: own_arrays.labelled(arrays, label, names)
    parts, test = {who: named(x) for who, x in parts.items()}, named(test)
  joined = lambda several: {
    k: np.concatenate([own_arrays.narrow(arrays[k]) for arrays in several])
    for k in test
  }
  sizes = [len(next(iter(arrays.values()))) for arrays in parts.values()]
  return sources.Dataset(
    'clients', joined(parts.values()), joined([test]), num_classes,
    partitions.Partition(None, np.append(0, np.cumsum(sizes)), [*parts]),
  )  # fmt: skip


for _name in sources.NAMES:
  register(functools.partial(sources.load, _name), name=_name)
register(text.sst2, name='sst2')
register(text.load, name='text')
register(synthetic.simulated, clients=True, test_of_clients=False)
register(store.open, name='store', clients=True)
