"""Reads the arrays that a user's clients hold, and checks them."""

from collections.abc import Mapping, Sequence
from typing import Any

from fl_sketch.data.ragged import Partition
import jax
import jax.numpy as jnp
import numpy as np

Arrays = Mapping[str, np.ndarray]
_SPLITS = {'train', 'test', 'validation', 'valid', 'val', 'dev'}
_AT_ONCE = 2**22  # numbers that are checked in one step


def read_clients(clients: Any) -> dict[Any, Arrays]:
  """Convert the data of all clients to NumPy arrays, by client name or number.

  A mapping, such as a Hugging Face `DatasetDict`, has them by client.
  """
  by_name = isinstance(clients, Mapping)
  if by_name and clients and {*clients} <= _SPLITS:
    raise ValueError(
      f'clients has the splits {[*clients]}; divide the training split by '
      'client, and pass the test split as test.'
    )
  if not by_name and hasattr(clients, 'with_format'):
    raise ValueError('clients is one Dataset; pass a list of one per client.')
  if not len(clients):
    raise ValueError('clients is empty; give the arrays of at least one.')
  by_client = clients if by_name else dict(enumerate(clients))
  return {name: read(f'client {name!r}', x) for name, x in by_client.items()}


def read(who: str, data: Any) -> Arrays:
  """Read the arrays of one client by name, leaves [samples, ...].

  A mapping or DataFrame of arrays; (x, y); a `Dataset` of Hugging Face; or
  samples by index, (x, y) or mappings, as of torch. `who` is for messages.

  >>> read('the test', (np.zeros((2, 3)), np.ones(2)))['y'].tolist()
  [1.0, 1.0]

  Raises:
    ValueError: it is none of these, or samples differ in shape.
  """
  pair = lambda x: isinstance(x, tuple | list) and len(x) == 2
  named = lambda x: dict(zip('xy', x, strict=True)) if pair(x) else x
  indexed = hasattr(data, '__getitem__') and hasattr(data, '__len__')
  columns = data
  if hasattr(data, 'with_format') and indexed:
    columns = data.with_format('numpy')[:]
  elif isinstance(data, tuple):
    columns = named(data)
  elif not hasattr(data, 'items') and indexed:
    rows = [named(data[i]) for i in range(len(data))]
    if all(hasattr(row, 'items') for row in rows):
      names = rows[0] if rows else 'xy'
      columns = {k: [np.asarray(row[k]) for row in rows] for k in names}
  if not hasattr(columns, 'items'):
    raise ValueError(
      f'{who} is of type {type(data).__name__}; pass a dict of arrays, (x, y), '
      'or a Dataset of Hugging Face or torch with such samples.'
    )
  try:
    return {name: np.asarray(x) for name, x in columns.items()}
  except ValueError as e:  # "setting an array element with a sequence"
    what = 'has samples of different shapes; pad or crop them.'
    raise ValueError(f'{who} {what}') from e


def check(clients: Mapping[Any, Arrays], test: Arrays):
  """Raise ValueError unless clients have arrays of numbers like the test's."""
  if 'mask' in test:
    raise ValueError("The name 'mask' is reserved; rename this array.")
  for who, arrays in (('the test', test), *clients.items()):
    who = who if arrays is test else f'client {who!r}'
    if arrays.keys() != test.keys():
      raise ValueError(
        f'{who}: has arrays {sorted(arrays)}, the test has {sorted(test)}.'
      )
    for name, x in arrays.items():
      if not (jnp.issubdtype(x.dtype, np.number) or x.dtype == bool):
        what = x.dtype.type.__name__.rstrip('_')
        raise ValueError(f'{who}: {name!r} is {what}, not numbers.')
      # Names of types are slow for many clients.
      like = test[name]
      same = (x.dtype, x.shape[1:]) == (like.dtype, like.shape[1:])
      if not same and _kind(x) != _kind(like):
        raise ValueError(
          f'{who}: {name!r} is {_kind(x)} per sample, of the test {_kind(like)}'
        )
    lengths = {name: len(x) if x.ndim else 0 for name, x in arrays.items()}
    if len({*lengths.values()}) != 1 or not min(lengths.values()):
      raise ValueError(f'{who}: lengths {lengths} must be equal and >= 1.')


def _kind(x) -> str:
  return f'{narrow(x[:0] if x.ndim else x).dtype}{x.shape[1:]}'


def narrow(x: np.ndarray) -> np.ndarray:
  """Convert numbers to the dtype that JAX has for them."""
  if x.dtype.kind not in 'iufc':
    return x
  return x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False)


def check_finite(arrays: Arrays, partition: Partition | None = None):
  """Check that the floats of clients, or of a test for None, are finite."""
  for name, x in arrays.items():
    parts = np.array_split(x, 1 + x.size // _AT_ONCE)  # less memory
    floats = jnp.issubdtype(x.dtype, np.inexact)
    if floats and not all(np.isfinite(part).all() for part in parts):
      bad = ~np.isfinite(x).reshape(len(x), -1)
      who, total = holders(bad.sum(1), partition)
      if total:
        raise ValueError(
          f'{who}: {name!r} is NaN or infinite in {total} of its numbers; '
          'remove or replace them.'
        )


def holders(marks: np.ndarray, partition: Partition | None) -> tuple[str, int]:
  """Return who has marks, int or bool[samples], and their sum; None: the test.

  >>> holders(np.arange(6) > 3, Partition(None, np.array([0, 2, 4, 5, 6])))
  ('clients 2, 3', 2)
  """
  if partition is None or not marks.any():
    return 'the test', int(marks.sum())
  held = marks[partition.take(np.arange(partition.samples))]
  totals = np.append(0, np.cumsum(held))
  ids = np.flatnonzero(np.diff(totals[partition.offsets])).tolist()
  names = partition.names or range(partition.population)
  return _some([names[i] for i in ids]), int(totals[-1])


def _some(names: Sequence[Any]) -> str:
  first = ', '.join(map(repr, names[:3]))
  more = f' and {len(names) - 3} more' * (len(names) > 3)
  return f'client{"s" * (len(names) > 1)} {first}{more}'
