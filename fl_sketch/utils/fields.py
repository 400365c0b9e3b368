"""Annotated types of config fields, with bounds and choices, and their check.

A field, or an option of a registered factory, is annotated `Count`, `Positive |
None`, `tuple[Count, ...]` or `Annotated[str, choice(NAMES)]`. None, where the
type allows it, satisfies every rule; those of a tuple hold for each element.
"""

import collections.abc
from collections.abc import Callable, Iterable, Mapping
import dataclasses
import difflib
import functools
import itertools
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
  names: tuple[str, ...] = ()  # of a choice, of which a message has the nearest


def choice(names: Iterable[str]) -> Rule:
  """The rule that a value is one of these names."""
  names = tuple(names)
  return Rule(f'one of {names}', lambda x: x in names, names)


def field(doc: str, default: Any = None, *, section: str = '') -> Any:
  """Return a dataclass field; `doc` is its meaning in help and reference.

  `section` is the title of the fields that begin with this one.
  """
  metadata = {'doc': doc, 'section': section}
  return dataclasses.field(default=default, metadata=metadata)


def slice_of(text: str) -> slice:
  """Parses 'A:B', of which A or B may be left out, as a slice of samples.

  >>> slice_of('500:')
  slice(500, None, None)
  """
  return slice(*(int(part) if part else None for part in text.split(':')))


def _holds_a_sample(text: str) -> bool:
  part = slice_of(text)
  return part.stop is None or (part.start or 0) < part.stop


Options = Mapping[str, Any] | None  # of a registered part
# Of the values that a command line or a config.json can hold.
_PLAIN = {bool, int, float, str, tuple, list, types.NoneType}
_SLICE = re.compile('[0-9]*:[0-9]*')
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
Slice = Annotated[
  str,
  Rule("A:B, such as '0:10000'", lambda x: _SLICE.fullmatch(x) is not None),
  Rule('A:B with A < B', _holds_a_sample),
]


def check(config: Any):
  """Checks every field of a dataclass against its annotation, types first.

  A value of another type, or that breaks a rule, raises ValueError, which names
  the field, the value and what was expected.
  """
  rules_of = _rules_of(type(config))
  for name, (of_type, _) in rules_of.items():
    _require(of_type, name, getattr(config, name))
  for name, (_, rules) in rules_of.items():
    _check_rules(name, getattr(config, name), rules)


@functools.cache
def _rules_of(cls: type) -> dict[str, tuple[Rule, list[Rule]]]:
  """The rule of the type of each field, and its other rules."""
  hints = typing.get_type_hints(cls, include_extras=True)
  parts = {name: _types_and_rules(hint) for name, hint in hints.items()}
  return {k: (_of_type(kinds), rules) for k, (kinds, rules) in parts.items()}


def check_option(name: str, value: Any, hint: Any):
  """Checks the value of an option against its annotation.

  Arrays pass, and so do values where an annotation has other types than those
  of config fields. A number of NumPy is checked as that of Python. Errors are
  those of `check`.

  >>> check_option('k', 3, Count | None)
  """
  kinds, rules = _types_and_rules(hint)
  if hasattr(value, 'dtype') and isinstance(value, numbers.Number):
    value = typing.cast(Any, value).item()
  if {*kinds} <= _PLAIN and not hasattr(value, 'dtype'):
    _require(_of_type(kinds), name, value)
    _check_rules(name, value, rules)


def plain_type(hint: Any) -> type:
  """The type of a command-line flag for values of an annotation.

  >>> plain_type(Count | None), plain_type(tuple[int, ...]), plain_type(Any)
  (<class 'int'>, <class 'tuple'>, <class 'object'>)
  """
  kinds = {*_types_and_rules(hint)[0]} - {types.NoneType, list}
  if float in kinds:
    kinds -= {int}
  return kinds.pop() if len(kinds) == 1 and kinds <= _PLAIN else object


def _check_rules(name: str, value: Any, rules: Iterable[Rule]):
  elements = value if isinstance(value, tuple | list) else (value,)
  for element, rule in itertools.product(elements, rules):
    if element is not None:
      _require(rule, name, element)


def shown(value: Any, most: int = 80) -> str:
  """Returns the repr of a value on one line, cut off if it is long.

  >>> shown('a' * 99, most=10)
  "'aaaaa ..."
  """
  text = ' '.join(repr(value).split())
  return text if len(text) <= most else f'{text[: most - 4]} ...'


def cut(message: str) -> str:
  """Returns a message, of whose longest words both ends are left.

  >>> len(cut('a' * 300))
  85
  """
  return re.sub(r'(\S{50})\S{20,}(\S{30})', r'\1 ... \2', message)


def listed(value: Any, names: Iterable[str], most: int = 100) -> str:
  """Returns names for a message: all, or of a long list the nearest five."""
  names = tuple(names)
  if len(f'{names}') <= most:
    return f'{names or "none"}'
  near = difflib.get_close_matches(str(value)[:most], names, 5, 0.0)
  near = near if value else names[:5]
  return f'{len(names)} names, such as {", ".join(map(repr, near))}'


def did_you_mean(value: Any, names: Iterable[str], cutoff: float = 0.6) -> str:
  """Returns the end of a message: the nearest of the names, if one is near.

  >>> did_you_mean('adm', ('sgd', 'adam'))
  " Did you mean 'adam'?"
  """
  near = difflib.get_close_matches(str(value)[:100], list(names), 1, cutoff)
  return f' Did you mean {near[0]!r}?' if near else ''


def _require(rule: Rule, name: str, value: Any):
  if not rule.holds(value):
    what = f'one of {listed(value, rule.names)}' if rule.names else rule.text
    hint = did_you_mean(value, rule.names)
    raise ValueError(f'{name}={shown(value)} must be {what}.{hint}')


def allowed(hint: Any) -> str:
  """Returns the conditions on a value, at any depth of its annotation.

  >>> allowed(Part | None)
  '> 0 and finite; <= 1'
  """
  rules = [*getattr(hint, '__metadata__', ())]
  inner = [allowed(part) for part in typing.get_args(hint)]
  own = [rule.text for rule in rules if type(rule) is Rule]
  return '; '.join(filter(None, [*own, *inner]))


def _types_and_rules(hint: Any) -> tuple[list[type], list[Rule]]:
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin is Annotated:
    kinds, rules = _types_and_rules(args[0])
    return kinds, rules + [r for r in hint.__metadata__ if isinstance(r, Rule)]
  union = origin in (typing.Union, types.UnionType)
  if union or origin in (tuple, collections.abc.Sequence):
    parts = [_types_and_rules(arg) for arg in args if arg is not ...]
    kinds, rules = ([*itertools.chain(*x)] for x in zip(*parts, strict=True))
    return (
      (kinds, rules) if union else ([tuple, list], [_of_type(kinds), *rules])
    )
  return [float, int] if hint is float else [origin or hint], []


def _of_type(kinds: list[type]) -> Rule:
  """The rule that a value has one of these types; a bool is no int."""
  allowed = lambda x: bool in kinds or not isinstance(x, bool)
  names = ' or '.join(k.__name__ for k in kinds).replace('NoneType', 'None')
  holds = lambda x: allowed(x) and isinstance(x, tuple(kinds))
  return Rule(f'of type {names}', holds)
