"""Conditions on the arguments of formulas, as annotations.

`evaluation.formula` checks what is annotated `Count`, `Positive | None` or
`Form`, also as a field of a `NamedTuple`, by `utils.checks`: an error names the
argument, its value and the condition.
"""

from collections.abc import Callable, Iterable
import functools
import types
import typing
from typing import Annotated, Any, NamedTuple, TypeAlias

from fl_sketch.utils import checks
import numpy as np

Numbers: TypeAlias = Any  # a number or an array; `evaluation` knows it
Check = Callable[[str, Any], Any]  # (name, value) -> value
FORMS = ('printed', 'corrected')


class Condition(NamedTuple):
  """A check, and the text by which annotations show it."""

  text: str
  check: Check

  def __repr__(self):
    return repr(self.text)


def choice(names: Iterable[str]) -> Condition:
  """The condition that a value is one of these names."""
  names = tuple(names)
  check = lambda name, value: checks.choice(name, value, names) or value
  return Condition(' | '.join(names), check)


def at_least(bound: float) -> Condition:
  """The condition that a number is finite and at least `bound`."""
  check = functools.partial(checks.at_least, bound=bound)
  return Condition(f'>= {bound}', check)


def at_most_one(name: str, value: Any) -> float:
  """Return `value` as a float in [0, 1]."""
  checks.at_least(name, value, 0)
  return checks.at_most(name, value, 1)


def finite(name: str, values: Numbers) -> Numbers:
  """Return numbers, of which all must be finite."""
  for end in (np.min, np.max):
    checks.real(name, float(end(np.asarray(values), initial=0)))
  return values


def squares(name: str, values: Numbers) -> Numbers:
  """Return numbers, of which all must be finite and >= 0."""
  least = np.min(np.asarray(finite(name, values)), initial=0)
  checks.at_least(name, float(least), 0)
  return values


def zero_or_fraction(name: str, value: Any) -> float:
  """Return `value` as a float in [0, 1)."""
  number = checks.at_least(name, value, 0)
  return number and checks.fraction(name, number)


Count = Annotated[int, Condition('>= 1', checks.count)]
Positive = Annotated[float, Condition('> 0', checks.positive)]
NonNegative = Annotated[float, at_least(0)]
AtLeastOne = Annotated[float, at_least(1)]
Fraction = Annotated[float, Condition('in (0, 1)', checks.fraction)]
Share = Annotated[float, Condition('in [0, 1)', zero_or_fraction)]
Part = Annotated[float, Condition('in [0, 1]', at_most_one)]
Finite = Annotated[Numbers, Condition('finite', finite)]  # all of an array
Squares = Annotated[Numbers, Condition('>= 0', squares)]  # likewise
Form = Annotated[str, choice(FORMS)]


def check(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
  """Checks the arguments of a function by its annotations, and sets them.

  >>> def inverse(x: Positive): ...
  >>> check(inverse, arguments := {'x': 2})
  >>> arguments
  {'x': 2.0}
  """
  for name, rule in _rules(function).items():
    if name in arguments:
      arguments[name] = rule(name, arguments[name])


@functools.cache
def _rules(owner: Any) -> dict[str, Check]:
  """The checks of a function's arguments, or of a tuple's fields, by name."""
  hints = typing.get_type_hints(owner, include_extras=True)
  rules = {name: _rule(hint) for name, hint in hints.items()}
  return {name: rule for name, rule in rules.items() if rule is not None}


def _rule(hint) -> Check | None:
  if hasattr(hint, '_fields'):
    return _check_fields
  if typing.get_origin(hint) in (typing.Union, types.UnionType):
    first, *_ = map(_rule, typing.get_args(hint))
    return first and (lambda name, x: x if x is None else first(name, x))
  conditions = getattr(hint, '__metadata__', ())
  return conditions[0].check if conditions else None


def _check_fields(name: str, record: Any) -> Any:
  """Checks fields, and by its own `check` what they are to each other."""
  del name
  for field, rule in _rules(type(record)).items():
    rule(field, getattr(record, field))
  getattr(record, 'check', lambda: None)()
  return record
