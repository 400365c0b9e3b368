"""API pages: one a package, with each public function and class in it."""

import ast
import importlib
import pathlib

import fl_sketch

from generators import docstrings, pages

ROOT = pathlib.Path(fl_sketch.__file__).parents[1]


def write(folder: pathlib.Path):
  """Writes a page for every package, and their index."""
  packages = [
    path
    for top in ('fl_sketch', 'papers')
    for path in sorted((ROOT / top).rglob('__init__.py'))
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
  index = [pages.title('API'), summary, pages.toctree(names, 'hidden')]
  pages.save(folder / 'api' / 'index.rst', '\n'.join(index))


def _name(path: pathlib.Path) -> str:
  parts = path.relative_to(ROOT).with_suffix('').parts
  return '.'.join(parts).removesuffix('.__init__')


def _summary(path: pathlib.Path) -> str:
  doc = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8')))
  return docstrings.markup(doc or '').partition('\n\n')[0]


def _package(name: str, folder: pathlib.Path) -> str:
  """The page of a package: its docstring, exports, and modules by name."""
  paths = sorted(p for p in folder.glob('*.py') if not p.stem.startswith('_'))
  parts = [pages.title(name), _module(name, folder / '__init__.py')]
  if exports := _exports(name):
    parts.append(f'Exports: {", ".join(exports)}.\n')
  for path in paths:
    parts += [pages.title(path.stem, '-'), _module(_name(path), path)]
  return '\n'.join(parts)


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


def _module(name: str, path: pathlib.Path) -> str:
  """Directives for a module and for what is defined in it, in that order."""
  lines = [f'.. automodule:: {name}', '']
  for node in ast.parse(path.read_text(encoding='utf-8')).body:
    if getattr(node, 'name', '_').startswith('_'):
      continue
    if isinstance(node, ast.FunctionDef):
      lines += [f'.. autofunction:: {name}::{node.name}', '']
    elif isinstance(node, ast.ClassDef):
      lines += [f'.. autoclass:: {name}::{node.name}', '   :members:', '']
  return '\n'.join(lines)
