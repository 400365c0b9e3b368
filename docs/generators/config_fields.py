"""Tables of config fields: type, default, allowed values, and the meaning."""

import dataclasses
import re
import typing
from typing import Any

from fl_sketch.runs import config
from fl_sketch.utils import markdown
from papers.song.attacks import settings

_HEAD = ('field', 'type', 'default', 'allowed', 'meaning')


def experiment() -> str:
  """The fields of `runs.config.Config`."""
  return _text(config.Config)


def attack() -> str:
  """The fields of `papers.song.attacks.settings.AttackConfig`."""
  return _text(settings.AttackConfig)


def _text(cls: type) -> str:
  """A heading and a table for each group of fields."""
  parts = []
  hints = typing.get_type_hints(cls, include_extras=True)
  for comment, meanings in config.sections(cls):
    title = re.split(r'[.,:;](?:\s|$)| \(', comment)[0].strip()
    parts.append(f'## {title}\n')
    if len(comment) > len(title) + 1:
      parts.append(_cell(comment) + '\n')
    rows = [
      _row(cls, name, hints[name], text) for name, text in meanings.items()
    ]
    parts.append(markdown.table(_HEAD, rows))
  return '\n'.join(parts)


def _row(cls: type, name: str, hint: Any, meaning: str) -> list[str]:
  default = {f.name: f.default for f in dataclasses.fields(cls)}[name]
  plain = typing.get_type_hints(cls)[name]
  kind = plain.__name__ if isinstance(plain, type) else str(plain)
  kind = kind.replace('collections.abc.', '').replace('typing.', '')
  kind = re.sub(r'^Optional\[(.*)\]$', r'\1 | None', kind)
  code = [f'`{text}`' if text else '' for text in (name, kind, repr(default))]
  return [*map(_cell, code), _cell(config.allowed(hint)), _cell(meaning)]


def _cell(text: str) -> str:
  return text.replace('|', '\\|')
