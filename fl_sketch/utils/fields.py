"""Annotated types of config fields, with bounds and choices, and their check.

A field, or an option of a registered factory, is annotated `Count`, `Positive |
None`, `tuple[Count, ...]` or `Annotated[str, choice(NAMES)]`. None satisfies
every rule where the type allows it; rules of a tuple hold for each element.
"""

import collections.abc
from collections.abc import Callable, Iterable, Mapping
import dataclasses
import difflib
import functools
import math
import numbers
import re
import types
import typing
from typing import Annotated, Any, NamedTuple


class Rule(NamedTuple):
  """A condition on the value of a field."""

  text: str  # what the value must be, for messages
  holds: Callable[[Any], bool]  # False for NaN
  names: tuple[str, ...] = ()  # the choices, of which a message has the nearest


def choice(names: Iterable[str]) -> Rule:
  """Return the rule that a value is one of these names."""
  names = tuple(names)
  return Rule(f'one of {names}', lambda x: x in names, names)


def field(
  doc: str, default: Any = None, *, section: str = '', **needs: Any
) -> Any:
  """Return a dataclass field with its meaning; `section` begins with it.

  needs: another field = its value, or values, without which it has no effect.
  """
  doc = '; '.join([doc, *(f'of {k}={value}' for k, value in needs.items())])
  metadata = {'doc': doc, 'section': section, 'needs': needs}
  return dataclasses.field(default=default, metadata=metadata)


def slice_of(text: str) -> slice:
  """Parse 'A:B', of which A or B may be left out, as a slice of samples.

  >>> slice_of('500:')
  slice(500, None, None)
  """
  return slice(*(int(part) if part else None for part in text.split(':')))


def _is_slice(text: str) -> bool:
  if not re.fullmatch('[0-9]*:[0-9]*', text):
    return False
  part = slice_of(text)
  return part.stop is None or (part.start or 0) < part.stop


Options = Mapping[str, Any] | None  # of a registered part
# Types of the values that a command line or a config.json can hold.
_PLAIN = {bool, int, float, str, tuple, list, types.NoneType}
_POSITIVE = Rule('> 0 and finite', lambda x: 0 < x < math.inf)
Count = Annotated[int, Rule('>= 1', lambda x: x >= 1)]
Size = Annotated[int, Rule('>= 0', lambda x: x >= 0)]
NonNegative = Annotated[float, Rule('>= 0', lambda x: x >= 0)]
Finite = Annotated[float, Rule('in [0, inf)', lambda x: 0 <= x < math.inf)]
Positive = Annotated[float, _POSITIVE]
Part = Annotated[float, _POSITIVE, Rule('<= 1', lambda x: x <= 1)]
Delta = Annotated[float, _POSITIVE, Rule('< 1', lambda x: x < 1)]
Multiple = Annotated[float, Rule('in [1, inf)', lambda x: 1 <= x < math.inf)]
Share = Annotated[float, Rule('in [0, 1)', lambda x: 0 <= x < 1)]
Fraction = Annotated[float, Rule('in (0, 1)', lambda x: 0 < x < 1)]
Slice = Annotated[str, Rule("A:B, such as '0:10000', with A < B", _is_slice)]


def check(config: object):
  """Raise ValueError if a field of a dataclass breaks its annotation."""
  for name, hint in _hints(type(config)).items():
    _check(name, getattr(config, name), *_types_and_rules(hint))


def check_options(part: Any):
  """Check each field of a dataclass of options, as `check_option` does."""
  hints = _hints(type(part))
  for field in dataclasses.fields(part):
    check_option(field.name, getattr(part, field.name), hints[field.name])


def check_option(name: str, value: object, hint: Any):
  """Check the value of an option against its annotation, as `check` does.

  Arrays pass, and values of types that no config field has.
  """
  kinds, rules = _types_and_rules(hint)
  if hasattr(value, 'dtype') and isinstance(value, numbers.Number):
    value = typing.cast(Any, value).item()  # a number of NumPy
  if {*kinds} <= _PLAIN and not hasattr(value, 'dtype'):
    _check(name, value, kinds, rules)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
  return typing.get_type_hints(cls, include_extras=True)


def _check(name: str, value: object, kinds: list[type], rules: list[Rule]):
  _require(_of_type(kinds), name, value)
  for element in value if isinstance(value, tuple | list) else (value,):
    for rule in rules if element is not None else ():
      _require(rule, name, element)


def _require(rule: Rule, name: str, value: object):
  if not rule.holds(value):
    what = f'one of {listed(value, rule.names)}' if rule.names else rule.text
    hint = did_you_mean(value, rule.names)
    raise ValueError(f'{name}={shown(value)} must be {what}.{hint}')


def _of_type(kinds: list[type]) -> Rule:
  """Return the rule that a value has one of these types; a bool is no int."""
  kind_names = dict.fromkeys(k.__name__ for k in kinds)  # each once
  names = ' or '.join(kind_names).replace('NoneType', 'None')

  def holds(value):
    if isinstance(value, bool):
      return bool in kinds
    return isinstance(value, tuple(kinds))

  return Rule(f'of type {names}', holds)


def _types_and_rules(hint: Any) -> tuple[list[type], list[Rule]]:
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    kinds, rules = _types_and_rules(args[0])
    return kinds, rules + [r for r in hint.__metadata__ if isinstance(r, Rule)]
  is_union = origin in (typing.Union, types.UnionType)
  if is_union or origin in (tuple, collections.abc.Sequence):
    parts = [_types_and_rules(arg) for arg in args if arg is not ...]
    kinds = [kind for part, _ in parts for kind in part]
    rules = [rule for _, part in parts for rule in part]
    return (
      (kinds, rules) if is_union else ([tuple, list], [_of_type(kinds), *rules])
    )
  return [float, int] if hint is float else [origin or hint], []


def plain_type(hint: Any) -> type:
  """Return the type of a command-line flag for values of an annotation.

  >>> plain_type(Count | None), plain_type(tuple[int, ...]), plain_type(Any)
  (<class 'int'>, <class 'tuple'>, <class 'object'>)
  """
  kinds = {*_types_and_rules(hint)[0]} - {types.NoneType, list}
  if float in kinds:
    kinds -= {int}
  return kinds.pop() if len(kinds) == 1 and kinds <= _PLAIN else object


def shown(value: object) -> str:
  """Return the repr of a value on one line of at most 80 characters."""
  text = ' '.join(repr(value).split())
  return text if len(text) <= 80 else f'{text[:76]} ...'


def listed(value: object, names: Iterable[str], most: int = 100) -> str:
  """Return names for a message: all, or of a long list the nearest five."""
  names = tuple(names)
  if len(f'{names}') <= most:
    return f'{names or "none"}'
  near = difflib.get_close_matches(str(value)[:most], names, 5, 0.0)
  near = near if value else names[:5]
  return f'{len(names)} names, such as {", ".join(map(repr, near))}'


def did_you_mean(value: object, names: Iterable[str]) -> str:
  """Return the end of a message: the nearest of the names, if one is near.

  >>> did_you_mean('adm', ('sgd', 'adam'))
  " Did you mean 'adam'?"
  """
  near = difflib.get_close_matches(str(value)[:100], list(names), 1)
  return f' Did you mean {near[0]!r}?' if near else ''
