"""Experiments as documents: source, command, expected number and time."""

import dataclasses
import typing

from fl_sketch import config
from fl_sketch import sketches
import ml_collections
from ml_collections import config_dict


def new() -> ml_collections.ConfigDict:
  """Every field of `config.Config` at its default.

  A field that is None there has its type here, so that the command line can
  set it.
  """
  c = ml_collections.ConfigDict()
  hints = typing.get_type_hints(config.Config)
  for field in dataclasses.fields(config.Config):
    c[field.name] = field.default
    if field.default is None and field.name != 'sketch':
      (kind,) = {*typing.get_args(hints[field.name])} - {type(None)}
      c[field.name] = config_dict.placeholder(kind)
  c.sketch = {
    name: config_dict.placeholder(kind)
    for name, kind in sketches.options().items()
  }
  return c
