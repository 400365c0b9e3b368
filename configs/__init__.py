"""Configs of experiments, one a file: source, command, result and time."""

import dataclasses
import typing

from fl_sketch import codecs, models, sketches
from fl_sketch.attacks import settings
from fl_sketch.experiment import config
import ml_collections
from ml_collections import config_dict


def new() -> ml_collections.ConfigDict:
  """Returns every field of `config.Config` at its default.

  A field whose default is None becomes a placeholder of its type, so that the
  command line can set it. So does every value that a sweep may range over.
  """
  c = _fields(config.Config)
  typed = lambda options: {
    name: config_dict.placeholder(kind) for name, kind in options.items()
  }
  c.sketch = typed(sketches.options())
  c.codec = typed(codecs.options())
  c.model_options = typed(models.options())
  unset = lambda names: {n: config_dict.placeholder(object) for n in names}
  c.sweep = unset(name for name in c if name not in config.MAPPINGS)
  for name in set(config.MAPPINGS) - {'sweep'}:
    c.sweep[name] = unset(c[name])
  c.sweep.draws = config_dict.placeholder(int)
  return c


def attack() -> ml_collections.ConfigDict:
  """Returns every field of `attacks.settings.AttackConfig` at its default."""
  return _fields(settings.AttackConfig)


def _fields(cls) -> ml_collections.ConfigDict:
  c, hints = ml_collections.ConfigDict(), typing.get_type_hints(cls)
  for field in dataclasses.fields(cls):
    c[field.name] = field.default
    if field.default is None and field.name not in config.MAPPINGS:
      (kind,) = {*typing.get_args(hints[field.name])} - {type(None)}
      c[field.name] = config_dict.placeholder(kind)
  return c
