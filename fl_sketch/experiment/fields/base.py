"""The base class of the groups of config fields."""

from collections.abc import Iterable
import dataclasses
import inspect
from typing import Any

from fl_sketch.experiment.fields import registries
from fl_sketch.utils import fields


@dataclasses.dataclass(frozen=True)
class Fields:
  """A group of fields; the last of them is a whole config."""

  def check(self):
    """Checks each field, and the parts that fields name; extended by groups.

    A ValueError has field and value, the reason, and what to set.
    """
    fields.check(self)
    registries.check(self)

  def check_effect(self, names: Iterable[str], holds: bool, condition: str):
    """Refuses fields that differ from their default without any effect.

    They have one if `condition`, in words, `holds`.
    """
    for name in () if holds else names:
      value = getattr(self, name)
      if value != getattr(type(self), name):
        raise ValueError(
          f'{name}={fields.shown(value)} has no effect unless {condition}; '
          f'remove {name}.'
        )

  def check_needed(self, *names: str, **needed: str):
    """Refuses fields that have no effect unless another has this value."""
    ((other, value),) = needed.items()
    holds = getattr(self, other) == value
    self.check_effect(names, holds, f'{other}={value!r}')

  def refusal(self, text: str) -> ValueError:
    """The error of a text in which {name} stands for name=value of a field."""
    named = {k: f'{k}={fields.shown(v)}' for k, v in vars(self).items()}
    return ValueError(text.format(c=self, **named))

  def refuse(self, *rows: tuple[Any, str]):
    """Raises the `refusal` of the first text whose condition holds."""
    for holds, text in rows:
      if holds:
        raise self.refusal(text)

  def given(self, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that are set."""
    values = {name: getattr(self, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def groups(config: type) -> list[tuple[type, list[str]]]:
  """Lists the groups of a config's class, each with the names of its fields."""
  every = reversed(inspect.getmro(config))
  named = [(group, [*inspect.get_annotations(group)]) for group in every]
  return [(group, names) for group, names in named if names]
