"""Docstrings as reStructuredText, with links from `name` to its object."""

import dataclasses
import importlib
import inspect
import re
import types
from typing import Any

from docutils import nodes
from sphinx.util import nodes as sphinx_nodes

# Literals, `names`, roles and doctests keep their bars and stars, and so does
# *emphasis*; elsewhere these are formulas: |x|, w*, **options.
_KEPT = re.compile(
  r"""
  ::\n\n(?:\ \ [^\n]*(?:\n|\Z)|\n)+    # a literal block
  | ^\.\.\ math::.*?(?=^\ *$|\Z)
  | ``.+?`` | `[^`]+`
  | ^\ *>>>\ .*?(?=^\ *$|\Z)           # a doctest, to the next empty line
  | (?<![\w*])\*[A-Za-z][\w ,-]*\*(?![\w*])
  """,
  re.DOTALL | re.MULTILINE | re.VERBOSE,
)
# Indented lines below a paragraph that ends with a colon, unless that is the
# title of a section that Napoleon knows.
_SECTIONS = 'Args|Attributes|Returns|Raises|Yields'
_LIST = re.compile(
  rf'^(?!(?:{_SECTIONS}):$)(\S.*:)\n((?:  .*(?:\n|\Z))+)', re.MULTILINE
)
_FIELD = re.compile(r'^  (\w+): [^#]*  # (.*)$', re.MULTILINE)
_PAGES = re.compile(
  r'docs/(?:results/([\w-]+)\.json|((?:concepts|guides|reference)/\w+)\.md)'
)
_HEADINGS = re.compile(r'^(Symbols|Departures|Source):(?= )', re.MULTILINE)


def markup(text: str) -> str:
  r"""A docstring of the library, with formulas escaped and lists marked.

  >>> print(markup('The norm |x|, for `a|b` and *any* x*:\n  first\n  second'))
  The norm \|x\|, for `a|b` and *any* x\*:
  <BLANKLINE>
  * first
  * second
  <BLANKLINE>
  """
  parts, end = [], 0
  for kept in _KEPT.finditer(text):
    parts += [_escape(text[end : kept.start()]), kept.group()]
    end = kept.end()
  escaped = ''.join([*parts, _escape(text[end:])])
  return _HEADINGS.sub(r'**\1:**', _LIST.sub(_bullets, escaped))


def _bullets(found: re.Match) -> str:
  """The items of a list, which are indented by two, as reStructuredText."""
  items = re.sub(r'^  (?:\* )?(?=\S)', '* ', found[2], flags=re.MULTILINE)
  return f'{found[1]}\n\n{items}\n'


def _escape(text: str) -> str:
  bullet_or_sign = re.compile(r'(^ *\* )|[|*]', re.MULTILINE)
  escaped = bullet_or_sign.sub(lambda m: m[1] or f'\\{m[0]}', text)
  return link_pages(escaped, ':doc:`{0} <{1}>`', ':doc:`/{0}`')


def link_pages(text: str, result: str, page: str) -> str:
  """Replaces paths of docs/ by links, in the forms for results and pages."""
  link = lambda m: (
    result.format(m[1], f'/generated/results/{m[1]}') if m[1]
    else page.format(m[2])
  )  # fmt: skip
  return _PAGES.sub(link, text)


def _meanings(cls: type) -> list[tuple[str, str]]:
  """The fields of a dataclass with meanings, as of `utils.fields.field`."""
  if not dataclasses.is_dataclass(cls):
    return []
  own = inspect.get_annotations(cls)
  fields = [x for x in dataclasses.fields(cls) if x.name in own]
  return [(x.name, x.metadata['doc']) for x in fields if x.metadata.get('doc')]


def prepare(app, what, name, obj, options, lines: list[str]):
  """Handler of autodoc-process-docstring; runs before Napoleon's.

  Fields with a comment, or a meaning, are listed as attributes.
  """
  if what == 'class' and 'Attributes:' not in lines:
    if fields := _meanings(obj) or _FIELD.findall(inspect.getsource(obj)):
      lines += ['Attributes:', *(f'  {x}: {text}' for x, text in fields), '']
  lines[:] = markup('\n'.join(lines)).split('\n')


def skip(app, what, name, obj, skipped, options) -> bool | None:
  """Leaves out the fields of a NamedTuple, which its docstring lists."""
  doc = getattr(obj, '__doc__', None) or ''
  return True if doc.startswith('Alias for field number') else None


def resolve(app, env, node, contnode) -> nodes.reference | None:
  """Looks a name up where the docstring stands, then in the whole library."""
  objects = env.domains.python_domain.objects
  module = node.get('py:module') or 'fl_sketch'
  if node.get('refdomain') != 'py':
    return None
  for scope in (module, module.rpartition('.')[0] or module, 'fl_sketch'):
    name = full_name(scope, node['reftarget'].rstrip('()'))
    if name in objects:
      entry, page = objects[name], node.get('refdoc', env.docname)
      return sphinx_nodes.make_refnode(
        app.builder, page, entry.docname, entry.node_id, contnode, name
      )
  return None


def full_name(scope: str, target: str) -> str | None:
  """Where the object that `target` names in a module is defined."""
  obj: Any = importlib.import_module(scope)
  for part in target.split('.'):
    obj = getattr(obj, part, None)
  if isinstance(obj, types.ModuleType):
    return obj.__name__
  return f'{getattr(obj, "__module__", "")}.{getattr(obj, "__qualname__", "")}'
