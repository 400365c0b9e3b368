"""Lists the fields of a config, and the options of all registered factories."""

from collections.abc import Mapping
import inspect
import textwrap
import typing
from typing import Any

from fl_sketch.experiment.config import Config
from fl_sketch.experiment.fields import base, registries
from fl_sketch.models import losses
from fl_sketch.utils import fields


def text(values: Mapping[str, Any]) -> str:
  """Lists fields with their values, and what each nested field may hold.

  >>> 'fedprox(mu=0.01)' in text({'algorithm': 'fedprox'})
  True
  """
  hints = typing.get_type_hints(Config, include_extras=True)
  wrapped = textwrap.TextWrapper(80, '  ', '      ').fill
  lines = ['Fields, with their values here and their types:']
  for group, names in base.groups(Config):
    listed = [name for name in names if name not in registries.MAPPINGS]
    if listed:
      lines += ['', (inspect.getdoc(group) or '').partition('\n')[0]]
    for name in listed:
      value = values.get(name, getattr(Config, name))
      kind = fields.plain_type(hints[name]).__name__
      lines.append(f'  --config.{name}={value!r}  {kind}')
  for field, (named_by, parts) in registries.REGISTRIES.items():
    lines += ['', f'--config.{field}.OPTION=VALUE, by --config.{named_by}:']
    lines += [wrapped(parts.call(name)) for name in parts.names()]
  lines += ['', f'--config.loss=NAME: {", ".join(losses.names())}']
  return '\n'.join(lines)


def factories(c: Config) -> list[Any]:
  """Return the registered factories that a config names."""
  parts = registries.named(c).values()
  return [known.entry(name).factory for known, name, _ in parts]
