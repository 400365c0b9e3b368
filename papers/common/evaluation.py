"""Evaluates formulas on arrays; NaN where a condition does not hold."""

from collections.abc import Callable
import functools
import inspect
import math
import types
import typing
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from fl_sketch.utils import checks
import numpy as np

from . import conditions

P = ParamSpec('P')
R_co = TypeVar('R_co', covariant=True)
R = TypeVar('R')
_hints = functools.cache(typing.get_type_hints)


class Formula(Protocol[P, R_co]):
  """A function of numbers that `formula` has extended to arrays."""

  __name__: str

  @overload
  def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

  @overload
  def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def formula(function: Callable[P, R]) -> Formula[P, R]:
  """Checks a function's annotations; adds arrays and a keyword ``check``.

  Numbers, also fields of a `NamedTuple`, may be arrays, which broadcast; the
  result has arrays of their common shape. With check=False the result is NaN
  where a condition on numbers does not hold, so that a plot ends there.

  >>> @formula
  ... def bound(step: float, *, smoothness: conditions.Positive) -> float:
  ...   step = checks.at_most('step', step, 1 / smoothness)
  ...   return 1 / (step - step**2 * smoothness)
  >>> bound(np.array([0.125, 0.25]), smoothness=2.0)
  array([10.66666667,  8.        ])
  >>> bound(np.array([0.25, 1.0]), smoothness=2.0, check=False)
  array([ 8., nan])
  """
  if hasattr(function, 'formula'):
    return typing.cast(Any, function)
  signature = inspect.signature(function)

  @functools.wraps(function)
  def evaluate(*args, check: bool = True, **kwargs):
    call = functools.partial(_checked if check else _or_nan, function)
    return _elementwise(function, call, signature.bind(*args, **kwargs))

  evaluate.__dict__['formula'] = function
  return typing.cast(Any, evaluate)


def with_checks(function: Callable[P, R]) -> Callable[P, R]:
  """Checks the annotations of a function's arguments when it is called."""
  signature = inspect.signature(function)

  @functools.wraps(function)
  def call(*args, **kwargs):
    return _checked(function, signature.bind(*args, **kwargs))

  return call


def _elementwise(function, call, bound):
  """Calls once for each number of the arrays, which broadcast."""
  slots = _slots(_hints(function), bound.arguments)
  if not slots:
    return call(bound)
  arrays = np.broadcast_arrays(*(array for *_, array in slots))
  results = []
  for numbers in zip(*(x.ravel().tolist() for x in arrays), strict=True):
    for (name, field, _), number in zip(slots, numbers, strict=True):
      if field is not None:
        number = bound.arguments[name]._replace(**{field: number})
      bound.arguments[name] = number
    results.append(call(bound))
  return _stacked(results, arrays[0].shape)


def _slots(hints, arguments):
  """The (argument, field of a tuple or None, array) of all that broadcast."""
  numbers, others = [], []
  for name, value in arguments.items():
    if hasattr(value, '_fields'):
      fields = _hints(type(value))
      numbers += [
        (name, field, x)
        for field, x in zip(value._fields, value, strict=True)
        if _is_array(x) and _is_number(fields[field])
      ]
    elif _is_array(value) and _is_number(hints.get(name)):
      numbers.append((name, None, value))
    elif _is_array(value) and hints.get(name) is Any:
      others.append((name, None, value))
  return numbers + others if numbers else []  # others broadcast by themselves


def _is_number(hint):
  is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
  kinds = typing.get_args(hint) if is_union else (hint,)
  return {int, float, types.NoneType}.issuperset(kinds)


def _is_array(value):
  return np.ndim(value) > 0 and hasattr(value, 'dtype')


def _checked(function, bound):
  conditions.check(function, bound.arguments)
  return function(*bound.args, **bound.kwargs)


def _or_nan(function, bound):
  try:
    return _checked(function, bound)
  except checks.ChoiceError:
    raise
  except (ArithmeticError, ValueError):  # such as a power that overflows
    return _nan(_hints(function).get('return'))


def _nan(hint):
  """NaN, or a tuple of them where a result has this type."""
  if fields := getattr(hint, '_fields', None):
    return hint(*(_nan(_hints(hint)[field]) for field in fields))
  if typing.get_origin(hint) is tuple:
    return tuple(map(_nan, typing.get_args(hint)))
  return math.nan


def _stacked(results, shape):
  """Arrays of this shape, from a list of numbers or of tuples of them."""
  if results and isinstance(results[0], tuple):
    columns = zip(*results, strict=True)
    return _like(results[0], (_stacked(list(x), shape) for x in columns))
  return np.array(results).reshape(shape + np.shape(results[:1])[1:])


def _like(example, parts):
  """A tuple of the type of an example."""
  kind = type(example)
  return kind(*parts) if hasattr(example, '_fields') else kind(parts)
