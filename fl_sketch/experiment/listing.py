"""Lists the fields of a config, and the options of all registered factories."""

from collections.abc import Mapping
import inspect
import textwrap
import typing
from typing import Any

from fl_sketch.experiment.config import Config
from fl_sketch.experiment.fields import registries, run
from fl_sketch.models import losses
from fl_sketch.utils import fields

_Sections = list[tuple[str, list[tuple[str, str]]]]


def text(values: Mapping[str, Any]) -> str:
  """Lists fields with values, types, allowed values and meanings, by group.

  >>> 'fedprox(mu=0.01)' in text({'algorithm': 'fedprox'})
  True
  """
  hints = typing.get_type_hints(Config, include_extras=True)
  wrapped = textwrap.TextWrapper(80, '  ', ' ' * 6).fill
  indented = textwrap.TextWrapper(80, ' ' * 6, ' ' * 6).fill
  lines = ['Fields, with their values here, their types and meanings:']
  for group, meanings in sections(Config):
    lines += ['', group]
    for name, meaning in meanings:
      value = values.get(name, getattr(Config, name))
      kind = fields.plain_type(hints[name]).__name__
      kind = 'options' if name in registries.MAPPINGS else kind
      lines.append(f'  --config.{name}={value!r}  {kind}')
      allowed = fields.allowed(hints[name])
      if about := '; '.join(filter(None, (meaning, allowed))):
        lines.append(indented(about))
  for field, (named_by, parts) in registries.REGISTRIES.items():
    lines += ['', f'--config.{field}.OPTION=VALUE, by --config.{named_by}:']
    lines += [wrapped(parts.call(name)) for name in parts.names()]
  lines += ['', f'--config.loss=NAME: {", ".join(losses.names())}']
  return '\n'.join(lines)


def assignments(c: Config) -> str:
  """Lists the fields of a config that are set, a line each, by group.

  >>> 'cohort = 5' in assignments(Config(cohort=5)).splitlines()
  True
  """
  lines = []
  for group, meanings in sections(Config):
    given = c.given([name for name, _ in meanings])
    lines += ['', f'# {group}'] if given else []
    lines += [f'{name} = {value!r}' for name, value in given.items()]
  return '\n'.join(lines[1:])


def sections(cls: type) -> _Sections:
  """Returns groups of fields: a title, and names with their meanings.

  They are comments of the source. The first comment after an empty line begins
  a group, and so does each class of which a config is made.
  """
  found: _Sections = []
  for group, names in run.groups(cls):
    found.append(((inspect.getdoc(group) or '').partition('\n')[0], []))
    above, is_first = [], False
    for line in map(str.strip, inspect.getsource(group).splitlines()):
      code, _, comment = line.partition('# ')
      if comment and not code:
        if is_first and found[-1][1]:
          found.append((comment, []))
        else:
          above.append(comment)
      elif (name := code.partition(':')[0]) in names:
        found[-1][1].append((name, ' '.join([*above, comment]).strip()))
        above = []
      is_first = not line
  return [section for section in found if section[1]]
