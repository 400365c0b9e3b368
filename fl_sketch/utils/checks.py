"""Checks of Python and NumPy numbers on the host.

A bool, array or traced value raises TypeError; a number out of its range, NaN
or infinity ValueError. Both name the argument.
"""

from collections.abc import Callable
import math
import numbers
import traceback

# Modules of this library, and of files that it loads by their path.
_OWN_MODULES = 'fl_sketch.', 'configs.', 'launch.'


class ChoiceError(ValueError):
  """An argument that is none of its choices, or contradicts another one."""


def is_refusal(error: ValueError) -> bool:
  """Return whether this library, a config file or a plug-in raised an error."""
  *_, (frame, _) = traceback.walk_tb(error.__traceback__)
  module = f'{frame.f_globals.get("__name__", "")}.'
  of_value = type(error) in (ValueError, ChoiceError)
  return of_value and module.startswith(_OWN_MODULES)


def real(name: str, value: object) -> float:
  """Return `value` as a finite float; TypeError unless it is a real number."""
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(
      f'{name} must be a real number on the host, not {type(value).__name__}.'
    )
  if not math.isfinite(value):
    raise ValueError(f'{name}={value} must be finite.')
  return float(value)


def at_least(name: str, value: object, bound: float) -> float:
  """Return `value` as a finite float >= `bound`."""
  return _real(name, value, lambda x: x >= bound, f'>= {bound}')


def at_most(name: str, value: object, bound: float) -> float:
  """Return `value` as a finite float <= `bound`, up to rounding.

  >>> at_most('client_lr', 0.1 + 0.2, 0.3)
  0.30000000000000004
  """
  rounded = bound + 1e-12 * abs(bound)
  return _real(name, value, lambda x: x <= rounded, f'<= {bound}')


def positive(name: str, value: object) -> float:
  """Return `value` as a finite float > 0."""
  return _real(name, value, lambda x: x > 0, '> 0')


def fraction(name: str, value: object) -> float:
  """Return `value` as a float strictly between 0 and 1."""
  return _real(name, value, lambda x: 0 < x < 1, '> 0 and < 1')


def count(name: str, value: object) -> int:
  """Return `value` as an int >= 1; TypeError unless it is an integer."""
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(
      f'{name} must be an integer on the host, not {type(value).__name__}.'
    )
  if value < 1:
    raise ValueError(f'{name}={value} must be >= 1.')
  return int(value)


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
  """Raise ChoiceError unless `value` is one of the strings `allowed`."""
  if not (isinstance(value, str) and value in allowed):
    raise ChoiceError(f'{name}={value!r} must be one of {allowed}.')


def _real(name, value: object, holds: Callable[[float], bool], text) -> float:
  number = real(name, value)
  if not holds(number):
    raise ValueError(f'{name}={value} must be {text}.')
  return number


def ceil(value: float) -> int:
  """Return the least integer >= `value`, up to rounding.

  >>> ceil((0.1 + 0.2) * 10), ceil(3.1)
  (3, 4)
  """
  nearest = round(value)
  is_integer = abs(value - nearest) <= 1e-12 * abs(value)
  return nearest if is_integer else math.ceil(value)
