"""Loads the modules of a package on first use of an attribute (PEP 562)."""

from collections.abc import Callable, Mapping
import importlib
import sys
import types
from typing import Any


def attach(
  package: str, modules: Mapping[str, str] = types.MappingProxyType({})
) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a package that exports `__all__` lazily.

  Type checkers read the exports from imports under `TYPE_CHECKING`.

  >>> attach('fl_sketch.utils')('checks').__name__
  'fl_sketch.utils.checks'

  Args:
    package: its `__name__`.
    modules: for names that are defined inside a module of the package, that
      module; every other name of `__all__` is a module itself.

  Raises:
    AttributeError: raised by the `__getattr__`, for a name outside `__all__`.
  """

  def load(name: str) -> Any:
    if name not in sys.modules[package].__all__:
      raise AttributeError(f'module {package!r} has no attribute {name!r}')
    module = importlib.import_module(f'{package}.{modules.get(name, name)}')
    return getattr(module, name) if name in modules else module

  return load
