"""Tables of config fields: type, default, allowed values, and the comment."""

import ast
import dataclasses
import inspect
import io
import re
import textwrap
import tokenize
import typing
from typing import Any, NamedTuple

from fl_sketch.experiment import config
from fl_sketch.experiment.fields import base
from fl_sketch.utils import fields, markdown
from papers.song.attacks import settings

_HEAD = ('field', 'type', 'default', 'allowed', 'meaning')


class _Section(NamedTuple):
  comment: str
  rows: list[list[str]]


def experiment() -> str:
  """The fields of `experiment.config.Config`."""
  return _text(config.Config)


def attack() -> str:
  """The fields of `papers.song.attacks.settings.AttackConfig`."""
  return _text(settings.AttackConfig)


def _text(cls: type) -> str:
  """A heading and a table for each group of fields."""
  parts = []
  for section in _sections(cls):
    title = re.split(r'[.,:;](?:\s|$)| \(', section.comment)[0].strip()
    parts.append(f'## {title}\n')
    if len(section.comment) > len(title) + 1:
      parts.append(_cell(section.comment) + '\n')
    parts.append(markdown.table(_HEAD, section.rows))
  return '\n'.join(parts)


def _sections(cls: type) -> list[_Section]:
  """Groups of fields; the first comment after an empty line begins one.

  So does the docstring of each class of which a config is made.
  """
  hints = typing.get_type_hints(cls, include_extras=True)
  return [
    section
    for group, _ in base.groups(cls)
    for section in _sections_of(cls, group, hints)
    if section.rows
  ]


def _sections_of(
  cls: type, group: type, hints: dict[str, Any]
) -> list[_Section]:
  source = textwrap.dedent(inspect.getsource(group))
  lines = source.splitlines()
  comments = {
    token.start[0]: token.string.lstrip('# ')
    for token in tokenize.generate_tokens(io.StringIO(source).readline)
    if token.type == tokenize.COMMENT
  }
  summary = (inspect.getdoc(group) or '').partition('\n')[0]
  sections = [_Section(summary, [])]
  (body,) = ast.parse(source).body
  assert isinstance(body, ast.ClassDef)
  for node in body.body:
    if not isinstance(node, ast.AnnAssign):
      continue
    first = node.lineno
    while lines[first - 2].lstrip().startswith('#'):
      first -= 1
    above = [comments[i] for i in range(first, node.lineno)]
    if above and sections[-1].rows and not lines[first - 2].strip():
      sections.append(_Section(above.pop(0), []))
    own = comments.get(node.end_lineno or node.lineno)
    name = ast.unparse(node.target)
    meaning = ' '.join([*above, *([own] if own else [])])
    sections[-1].rows.append(_row(cls, name, hints[name], meaning))
  return sections


def _row(cls: type, name: str, hint: Any, meaning: str) -> list[str]:
  default = {f.name: f.default for f in dataclasses.fields(cls)}[name]
  plain = typing.get_type_hints(cls)[name]
  kind = plain.__name__ if isinstance(plain, type) else str(plain)
  kind = kind.replace('collections.abc.', '').replace('typing.', '')
  kind = re.sub(r'^Optional\[(.*)\]$', r'\1 | None', kind)
  rules = '; '.join(rule.text for rule in _rules(hint))
  code = [f'`{text}`' if text else '' for text in (name, kind, repr(default))]
  return [*map(_cell, code), _cell(rules), _cell(meaning)]


def _rules(hint: Any) -> list[fields.Rule]:
  """The conditions on a field, at any depth of its type."""
  own = [r for r in getattr(hint, '__metadata__', ()) if type(r) is fields.Rule]
  inner = [_rules(part) for part in typing.get_args(hint)]
  return sum(inner, own)


def _cell(text: str) -> str:
  return text.replace('|', '\\|')
