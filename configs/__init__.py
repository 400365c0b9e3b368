"""Configs of experiments, one a file: source, command, result and time."""

from collections.abc import Iterable, Sequence
import dataclasses
import importlib
import typing
from typing import Any

from fl_sketch.runs import config
from fl_sketch.runs.fields.registries import CALLS, MAPPINGS, REGISTRIES
from fl_sketch.utils import registry
from ml_collections import config_dict

ConfigDict = config_dict.ConfigDict


def new() -> ConfigDict:
  """Return every field of `config.Config` at its default.

  Fields that default to None, options of registered factories and values of a
  sweep are placeholders of their types, which the command line can set.
  """
  c, unset = _fields(config.Config), config_dict.placeholder
  c.sweep = {name: unset(object) for name in c if name not in MAPPINGS}
  for name, (_, parts) in REGISTRIES.items():
    kinds = {registry.KIND: str} if name in CALLS else {}
    kinds |= parts.types()
    c[name] = {option: unset(kind) for option, kind in kinds.items()}
    c.sweep[name] = {option: unset(object) for option in kinds}
  c.sweep.draws = unset(int)
  return c


def is_quick(variant: str, known: Iterable[str] = ('', 'quick')) -> bool:
  """Return whether a variant ends with 'quick'; ValueError if it is unknown."""
  if variant not in known:
    raise ValueError(f'{variant=} must be one of {known}.')
  return variant.endswith('quick')


def words(variant: str, *groups: Sequence[str]) -> list[Any]:
  """Return a word of each group, its first by default, and whether 'quick' is.

  Words of a variant have commas between; ValueError if there are others.
  """
  given = {*variant.split(',')} - {''}
  taken = [next((x for x in some if x in given), some[0]) for some in groups]
  if not given <= {*taken, 'quick'}:
    raise ValueError(
      f'{variant=} must be a word of each of {groups}, or quick.'
    )
  return [*taken, 'quick' in given]


def attack() -> ConfigDict:
  """Return every field of an attack's config at its default."""
  return _fields(paper('song.attacks').settings.AttackConfig)


def paper(name: str) -> Any:
  """Return a module of the archive, such as 'song.attacks'."""
  package = f'{__package__}'.removesuffix('configs')
  return importlib.import_module(f'{package}papers.{name}')


def _fields(cls) -> ConfigDict:
  c, hints = ConfigDict(), typing.get_type_hints(cls)
  for field in dataclasses.fields(cls):
    c[field.name] = field.default
    if field.default is None and field.name not in MAPPINGS:
      (kind,) = {*typing.get_args(hints[field.name])} - {type(None)}
      c[field.name] = config_dict.placeholder(kind)
  return c
