"""Reads old names, and says the new ones."""

from collections.abc import Callable, Mapping
import functools
import sys
from typing import Any, TypeVar
import warnings

F = TypeVar('F', bound=Callable[..., Any])


def warn(kind: str, old: str, new: str, stacklevel: int = 3) -> None:
  """Warns that a name is read, and has another one now.

  Args:
    kind: what is named, such as 'argument'.
    old: its name of the past.
    new: its name.
    stacklevel: frames up to the user's line, this function's included.
  """
  warnings.warn(
    f'The {kind} {old!r} is now called {new!r}.',
    FutureWarning,
    stacklevel=stacklevel,
  )


def attributes(module: str, **names: str) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a module that has old names for its objects.

  >>> with warnings.catch_warnings(action='ignore'):
  ...   attributes('math', root='sqrt')('root')(4.0)
  2.0

  Args:
    module: its `__name__`.
    **names: new name by old name.

  Raises:
    AttributeError: raised by the `__getattr__`, for other names.
  """

  def load(name: str) -> Any:
    if name not in names:
      raise AttributeError(f'module {module!r} has no attribute {name!r}')
    warn('attribute', f'{module}.{name}', names[name])
    return getattr(sys.modules[module], names[name])

  return load


def arguments(**names: str) -> Callable[[F], F]:
  """Decorates a function that takes keyword arguments under old names, too.

  >>> @arguments(everybody='full_participation')
  ... def describe(*, full_participation):
  ...   return full_participation
  >>> with warnings.catch_warnings(action='ignore'):
  ...   describe(everybody=True)
  True

  Args:
    **names: new name by old name.
  """

  def decorate(function: F) -> F:
    @functools.wraps(function)
    def call(*args, **kwargs):
      for old in names.keys() & kwargs.keys():
        warn('argument', old, names[old])
        kwargs[names[old]] = kwargs.pop(old)
      return function(*args, **kwargs)

    return call  # type: ignore[return-value]

  return decorate


def keys(
  kind: str, given: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
  """Returns a mapping with the new names of its keys.

  >>> with warnings.catch_warnings(action='ignore'):
  ...   keys('field', {'downlink': 1, 'seed': 0}, {'downlink': 'codec'})
  {'codec': 1, 'seed': 0}

  Args:
    kind: what the keys name, for the warning.
    given: any mapping.
    names: new name by old name.
  """
  for old in names.keys() & given.keys():
    warn(kind, old, names[old], stacklevel=4)
  return {names.get(name, name): value for name, value in given.items()}
