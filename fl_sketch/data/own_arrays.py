"""Read the arrays that a user's clients hold, and check them."""

from collections.abc import Iterable, Mapping
from typing import Any

from fl_sketch.data.partitions import Partition
import jax
import jax.numpy as jnp
import numpy as np

Arrays = Mapping[str, np.ndarray]


def read(who: str, data: Any) -> Arrays:
  """Read the arrays of one client by name, leaves [samples, ...].

  A mapping or DataFrame of arrays; (x, y); a `Dataset` of Hugging Face; or
  samples by index, (x, y) or mappings, as of torch; else, or if the shapes of
  samples differ, a ValueError that names `who`.

  >>> read('the test', (np.zeros((2, 3)), np.ones(2)))['y'].tolist()
  [1.0, 1.0]
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


def check(
  clients: Mapping[Any, Arrays], test: Arrays, label: str | None = None
):
  """Check that clients have numbers like the test's.

  With a label, columns beside it may be integers in places.
  """
  if label is not None and label not in test:
    raise ValueError(f'{label=} must be one of the arrays {sorted(test)}.')
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
        raise ValueError(f'{who}: {name!r} is {x.dtype}, not numbers.')
      _check_range(who, name, x)
      is_column = label not in (None, name) and x.ndim == 1
      kind, expected = (_kind(x, is_column) for x in (x, test[name]))
      if kind != expected:
        named = [f'{x.dtype}{list(x.shape[1:])}' for x in (x, test[name])]
        raise ValueError(
          f'{who}: {name!r} is {named[0]}, of the test {named[1]}.'
        )
    lengths = {name: len(x) if x.ndim else 0 for name, x in arrays.items()}
    if len({*lengths.values()}) != 1 or not min(lengths.values()):
      raise ValueError(f'{who}: lengths {lengths} must be equal and >= 1.')


def _check_range(who: str, name: str, x: np.ndarray):
  """Refuse 64-bit numbers that 32 bits would change beyond rounding."""
  dtype = np.dtype(jax.dtypes.canonicalize_dtype(x.dtype))
  if x.dtype == dtype or x.dtype.kind not in 'iuf':
    return
  limits = np.iinfo(dtype) if x.dtype.kind in 'iu' else np.finfo(dtype)
  finite = x[np.isfinite(x)]
  if not ((limits.min <= finite) & (finite <= limits.max)).all():
    raise ValueError(
      f'{who}: {name!r} has numbers beyond {dtype}, in which JAX computes.'
    )


def labelled(arrays: Arrays, label: str, names: Iterable[str]) -> Arrays:
  """Rename the labels to 'y'; make the other columns, or one array, 'x'."""
  rest = {name: arrays[name] for name in names if name != label}
  if all(x.ndim == 1 for x in rest.values()):
    rest = {'x': np.stack([*rest.values()], axis=-1, dtype=np.float32)}
  elif len(rest) == 1:
    rest = {'x': rest.popitem()[1]}
  if 'y' in rest:
    raise ValueError(f"{label=} becomes 'y', as another array is named.")
  return {**rest, 'y': arrays[label]}


def _kind(x, is_column: bool) -> tuple[np.dtype, tuple[int, ...]]:
  dtype = jax.dtypes.canonicalize_dtype(x.dtype)
  return np.dtype(np.float32 if is_column else dtype), x.shape[1:]


def narrow(x: np.ndarray) -> np.ndarray:
  """Convert numbers to the dtype that JAX has for them."""
  if x.dtype.kind not in 'iufc':
    return x
  return x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False)


def check_finite(arrays: Arrays, partition: Partition | None = None):
  """Check that the floats of clients, or of a test for None, are finite."""
  for name, x in arrays.items():
    if not jnp.issubdtype(x.dtype, np.inexact):
      continue
    marks = np.asarray(~np.isfinite(x).all(tuple(range(1, x.ndim))))
    if marks.any() and (who := holder(marks, partition)):
      raise ValueError(
        f'{who}: {name!r} is NaN or infinite in places; replace these.'
      )


def holder(marks: np.ndarray, partition: Partition | None) -> str | None:
  """Name the first client with a mark, bool[samples]; without clients the test.

  >>> holder(np.arange(6) > 3, Partition(None, np.array([0, 2, 4, 5, 6])))
  'client 2'
  """
  if partition is None:
    return 'the test'
  places = np.flatnonzero(marks[partition.take(np.arange(partition.samples))])
  if not len(places):
    return None
  number = int(np.searchsorted(partition.offsets, places[0], side='right')) - 1
  name = number if partition.names is None else partition.names[number]
  return f'client {name!r}'
