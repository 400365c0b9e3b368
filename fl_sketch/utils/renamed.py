"""Reads old names, and says the new ones."""

from collections.abc import Callable
import functools
import sys
from typing import Any, TypeVar
import warnings

F = TypeVar('F', bound=Callable[..., Any])
T = TypeVar('T')


def warn(kind: str, old: str, new: str, stacklevel: int = 3) -> None:
  """Warns that a kind of name is now called `new`; see `warnings.warn`."""
  text = f'The {kind} {old!r} is now called {new!r}.'
  warnings.warn(text, FutureWarning, stacklevel)


def attributes(
  module: str, others: Callable[[str], Any] | None = None, **names: str
) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a module that has old names for its objects.

  Names are old='new'; `others` loads any other one, as `lazy.attach` does, or
  it raises AttributeError.

  >>> with warnings.catch_warnings(action='ignore'):
  ...   attributes('math', root='sqrt')('root')(4.0)
  2.0
  """

  def load(name: str) -> Any:
    if name in names:
      warn('attribute', f'{module}.{name}', names[name])
      return getattr(sys.modules[module], names[name])
    if others is None:
      raise AttributeError(f'module {module!r} has no attribute {name!r}')
    return others(name)

  return load


def arguments(**names: str) -> Callable[[F], F]:
  """Decorates a function that takes old names of keyword arguments: old='new'.

  >>> @arguments(everybody='full_participation')
  ... def describe(*, full_participation):
  ...   return full_participation
  >>> with warnings.catch_warnings(action='ignore'):
  ...   describe(everybody=True)
  True
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


def members(**names: str) -> Callable[[type[T]], type[T]]:
  """Decorates a NamedTuple whose fields and methods have old names: old='new'.

  >>> from typing import NamedTuple
  >>> @members(left='low')
  ... class Interval(NamedTuple):
  ...   low: float = 0.0
  >>> with warnings.catch_warnings(action='ignore'):
  ...   Interval(left=1.0).left
  1.0
  """

  def decorate(cls: type[T]) -> type[T]:
    def member(old: str) -> property:
      def get(self):
        warn('attribute', f'{cls.__name__}.{old}', names[old])
        return getattr(self, names[old])

      return property(get, doc=f'The old name of `{names[old]}`.')

    for old in names:
      setattr(cls, old, member(old))
    cls.__new__ = arguments(**names)(cls.__new__)
    return cls

  return decorate
