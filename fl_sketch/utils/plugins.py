"""Load modules and files that register factories of a user's own."""

import hashlib
import importlib
import importlib.util
import pathlib
import sys
import types

_PACKAGES = 'fl_sketch.configs', 'configs'  # installed, or a checkout


def load(plugin: str, option: str = 'plugin') -> types.ModuleType:
  """Import a module, or a file that ends in .py, for what it registers.

  A config file may be one, with its ``from . import new``. ValueError, which
  names the option: there is no such module or file.
  """
  if plugin.endswith('.py'):
    return _load_file(pathlib.Path(plugin).resolve(), option)
  if all(map(str.isidentifier, plugin.split('.'))):
    try:
      return importlib.import_module(plugin)
    except ModuleNotFoundError as e:
      if e.name is None or not f'{plugin}.'.startswith(f'{e.name}.'):
        raise  # the module exists, and imports one that does not
  raise ValueError(f'{option}={plugin!r} is no module.')


def _load_file(path: pathlib.Path, option: str) -> types.ModuleType:
  if not path.is_file():
    raise ValueError(f"{option}='{path}' is no file.")
  packages = (p for p in _PACKAGES if importlib.util.find_spec(p) is not None)
  name = f'{next(packages)}._{hashlib.sha256(bytes(path)).hexdigest()[:16]}'
  if name in sys.modules:
    return sys.modules[name]
  spec = importlib.util.spec_from_file_location(name, path)
  assert spec is not None  # the path ends in .py
  assert spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module  # dataclasses look for it there
  try:
    spec.loader.exec_module(module)
  except BaseException:
    del sys.modules[name]
    raise
  return module
