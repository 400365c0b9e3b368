"""Loads the modules of a package on first use of an attribute (PEP 562)."""

from collections.abc import Callable, Sequence
import importlib
import sys
from typing import Any


def attach(package: str, **exports: Sequence[str]) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a package that exports `__all__` lazily.

  Type checkers read the exports from imports under `TYPE_CHECKING`.

  >>> attach('fl_sketch.utils')('checks').__name__
  'fl_sketch.utils.checks'

  Args:
    package: its `__name__`.
    **exports: by module, the names of `__all__` that are defined inside it;
      every other one is a module itself.

  Raises:
    AttributeError: raised by the `__getattr__`, for a name outside `__all__`.
  """
  modules = {name: module for module in exports for name in exports[module]}

  def load(name: str) -> Any:
    if name not in sys.modules[package].__all__:
      raise AttributeError(f'module {package!r} has no attribute {name!r}')
    module = importlib.import_module(f'{package}.{modules.get(name, name)}')
    return getattr(module, name) if name in modules else module

  return load
