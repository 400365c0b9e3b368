"""API pages: one a package, with each public function and class in it.

Packages, modules and what is in them stand in the order of use, which the
`__all__` of a package has; then as its docstring names them.
"""

import ast
from collections.abc import Sequence
import importlib
import pathlib
import re

import fl_sketch

from generators import docstrings, pages

ROOT = pathlib.Path(fl_sketch.__file__).parents[1]


def write(folder: pathlib.Path):
  """Writes a page for every package, and their index."""
  packages = [
    path
    for top in ('fl_sketch', 'papers')
    for path in sorted((ROOT / top).rglob('__init__.py'), key=_place)
    if path.parent != ROOT / 'fl_sketch'
  ]
  names = [_name(path) for path in packages]
  for name, path in zip(names, packages, strict=True):
    pages.save(folder / 'api' / f'{name}.rst', _package(name, path.parent))
  summary = pages.table(
    ('package', 'what it is'),
    [
      (f':doc:`{name}`', _summary(path))
      for name, path in zip(names, packages, strict=True)
    ],
  )
  first = f'Begin with {", ".join(_exports("fl_sketch"))}.\n'
  index = [pages.title('API'), first, summary, pages.toctree(names, 'hidden')]
  pages.save(folder / 'api' / 'index.rst', '\n'.join(index))


def _place(path: pathlib.Path) -> tuple:
  """Sorts packages by the one of fl_sketch that they belong to."""
  parts = path.relative_to(ROOT).parts
  in_order = [*fl_sketch.__all__, parts[1]]
  return parts[0], in_order.index(parts[1]), parts


def _name(path: pathlib.Path) -> str:
  parts = path.relative_to(ROOT).with_suffix('').parts
  return '.'.join(parts).removesuffix('.__init__')


def _summary(path: pathlib.Path) -> str:
  doc = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8')))
  return docstrings.markup(doc or '').partition('\n\n')[0]


def _package(name: str, folder: pathlib.Path) -> str:
  """The page of a package: its docstring, exports, and modules."""
  used = _used(name)
  init = folder / '__init__.py'
  named = re.findall(r'`(\w+)`', init.read_text(encoding='utf-8'))

  def place(path):
    """Sorts modules by what is exported, then as the docstring has them."""
    first = [i for i, (home, _) in enumerate(used) if home == _name(path)]
    of_name = named.index(path.stem) if path.stem in named else len(named)
    return min(first, default=len(used)), of_name, path.stem

  paths = [p for p in folder.glob('*.py') if not p.stem.startswith('_')]
  parts = [pages.title(name), _module(name, init)]
  if exports := _exports(name):
    parts.append(f'Exports: {", ".join(exports)}.\n')
  for path in sorted(paths, key=place):
    parts += [pages.title(path.stem, '-'), _module(_name(path), path, used)]
  return '\n'.join(parts)


def _used(package: str) -> list[tuple[str, str]]:
  """Module and name of what fl_sketch, and then a package, exports."""
  exports = [
    getattr(module, name)
    for module in (fl_sketch, importlib.import_module(package))
    for name in getattr(module, '__all__', ())
  ]
  of = lambda x, key: getattr(x, key, '')
  return [(of(x, '__module__'), of(x, '__name__')) for x in exports]


def _exports(package: str) -> list[str]:
  """Links to what a package exports from its modules."""
  module = importlib.import_module(package)
  exports = {
    name: getattr(module, name) for name in getattr(module, '__all__', ())
  }
  return [
    pages.object_link(name, obj)
    for name, obj in exports.items()
    if getattr(obj, '__module__', package).startswith(package + '.')
    and hasattr(obj, '__qualname__')  # no instance, such as a registry
  ]


def _defined(path: pathlib.Path) -> dict[str, ast.stmt]:
  """Public functions and classes that a module defines, by name."""
  kinds = ast.FunctionDef, ast.ClassDef
  body = ast.parse(path.read_text(encoding='utf-8')).body
  named = {node.name: node for node in body if isinstance(node, kinds)}
  return {k: node for k, node in named.items() if not k.startswith('_')}


def _module(name: str, path: pathlib.Path, used: Sequence = ()) -> str:
  """Directives for a module and what it defines, exports first."""
  lines, defined = [f'.. automodule:: {name}', ''], _defined(path)
  exports = [x for home, x in used if home == name and x in defined]
  for key in dict.fromkeys([*exports, *defined]):
    if isinstance(defined[key], ast.ClassDef):
      lines += [f'.. autoclass:: {name}::{key}', '   :members:', '']
    else:
      lines += [f'.. autofunction:: {name}::{key}', '']
  return '\n'.join(lines)
