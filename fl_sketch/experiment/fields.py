"""Types of config fields with bounds and choices, and one check of values.

A field of a config is annotated as `Count`, `Positive | None`,
`tuple[Count, ...]` or `Annotated[str, choice(NAMES)]`. None, where its type
allows it, satisfies every rule; the rules of a tuple hold for each element.
"""

from collections.abc import Callable, Iterable
import itertools
import math
import re
import types
import typing
from typing import Annotated, Any, NamedTuple


class Rule(NamedTuple):
  """What the value of a field must satisfy.

  Attributes:
    text: of the error message; {} stands for name=value.
    holds: value -> whether it does; False for NaN.
  """

  text: str
  holds: Callable[[Any], bool]

  def check(self, name: str, value: Any):
    """Raises ValueError, with the name and the value, unless the rule holds."""
    if not self.holds(value):
      shown = repr(value) if isinstance(value, str) else value
      raise ValueError(f'Expected {self.text.format(f"{name}={shown}")}.')


def choice(names: Iterable[str]) -> Rule:
  """The rule that a value is one of these names."""
  names = tuple(names)
  return Rule(f'{{}} in {names}', lambda x: x in names)


def slice_of(text: str) -> slice:
  """Parses 'A:B', of which A or B may be left out, as a slice of samples.

  >>> slice_of('500:')
  slice(500, None, None)
  """
  return slice(*(int(part) if part else None for part in text.split(':')))


def _holds_a_sample(text: str) -> bool:
  part = slice_of(text)
  return part.stop is None or (part.start or 0) < part.stop


_SLICE = re.compile('[0-9]*:[0-9]*')
AT_MOST_ONE = Rule('{} <= 1', lambda x: x <= 1)
LESS_THAN_ONE = Rule('{} < 1', lambda x: x < 1)

Count = Annotated[int, Rule('{} >= 1', lambda x: x >= 1)]
Size = Annotated[int, Rule('{} >= 0', lambda x: x >= 0)]
NonNegative = Annotated[float, Rule('{} >= 0', lambda x: x >= 0)]
Deviation = Annotated[float, Rule('0 <= {} < inf', lambda x: 0 <= x < math.inf)]
Positive = Annotated[
  float, Rule('{} > 0 and finite', lambda x: 0 < x < math.inf)
]
Multiple = Annotated[float, Rule('1 <= {} < inf', lambda x: 1 <= x < math.inf)]
Share = Annotated[float, Rule('0 <= {} < 1', lambda x: 0 <= x < 1)]
Fraction = Annotated[float, Rule('0 < {} < 1', lambda x: 0 < x < 1)]
Slice = Annotated[
  str,
  Rule(
    "{} to be as '0:10000'", lambda x: bool(re.fullmatch('[0-9]*:[0-9]*', x))
  ),
  Rule('{} to hold a sample', _holds_a_sample),
]


def check(config: Any):
  """Checks every field of a dataclass against its annotation, types first.

  Raises:
    ValueError: a value has another type or breaks a rule; the message names
      the field, the value and what was expected.
  """
  hints = typing.get_type_hints(type(config), include_extras=True)
  fields = [
    (name, getattr(config, name), *_kinds_and_rules(hint))
    for name, hint in hints.items()
  ]
  for name, value, kinds, _ in fields:
    if not _is_of(value, kinds):
      raise ValueError(f'Expected {name}={value!r} to be {_words(kinds)}.')
  for name, value, _, rules in fields:
    for element in value if isinstance(value, tuple | list) else (value,):
      for rule in rules if element is not None else ():
        rule.check(name, element)


def _kinds_and_rules(hint: Any) -> tuple[list[type], list[Rule]]:
  """The types that an annotation allows, and its rules."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    kinds, rules = zip(*map(_kinds_and_rules, args), strict=True)
    return [*itertools.chain(*kinds)], [*itertools.chain(*rules)]
  if origin is Annotated:
    kinds, rules = _kinds_and_rules(args[0])
    return kinds, [*rules, *hint.__metadata__]
  if origin is tuple:
    kinds, rules = _kinds_and_rules(args[0])
    of_kind = Rule(f'{{}} to be {_words(kinds)}', lambda x: _is_of(x, kinds))
    return [tuple, list], [of_kind, *rules]
  return [float, int] if hint is float else [origin or hint], []


def _is_of(value: Any, kinds: list[type]) -> bool:
  """Whether a value has one of these types; a bool is no int."""
  if isinstance(value, bool):
    return bool in kinds
  return isinstance(value, tuple(kinds))


def _words(kinds: list[type]) -> str:
  return ' or '.join(kind.__name__ for kind in kinds)
