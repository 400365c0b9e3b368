"""Loads the modules of a package on first use of an attribute (PEP 562)."""

from collections.abc import Callable, Sequence
import importlib
import importlib.util
import sys
from typing import Any


def attach(package: str, **exports: Sequence[str]) -> Callable[[str], Any]:
  """Return the `__getattr__` of a package that loads its modules lazily.

  `exports` has by module the names that are defined inside it; every other one
  is a module itself, or an AttributeError. Type checkers read them from imports
  under `TYPE_CHECKING`.

  >>> attach('fl_sketch.utils')('checks').__name__
  'fl_sketch.utils.checks'
  """
  modules = {name: module for module in exports for name in exports[module]}
  # Python suggests names that `dir` has, loaded or not.
  whole = sys.modules[package]
  listed = lambda: sorted({*vars(whole), *getattr(whole, '__all__', ())})
  vars(whole).setdefault('__dir__', listed)

  def load(name: str) -> Any:
    path = f'{package}.{modules.get(name, name)}'
    # Private names are asked for by doctest and others, and are no modules.
    if name.startswith('_') or importlib.util.find_spec(path) is None:
      text = f'module {package!r} has no attribute {name!r}'
      raise AttributeError(text, name=name, obj=whole)
    module = importlib.import_module(path)
    return getattr(module, name) if name in modules else module

  return load
