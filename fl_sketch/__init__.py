"""Federated learning in which clients send a random sketch of their update.

Every package loads when it is first used: `import fl_sketch` alone loads
neither JAX nor matplotlib. CONTRIBUTING.md lists the packages, one line each.
"""

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from fl_sketch.utils import __version__ as __version__

if TYPE_CHECKING:
  from fl_sketch import (
    accounting,
    algorithms,
    attacks,
    codecs,
    data,
    distributed,
    local,
    models,
    privacy,
    rounds,
    runs,
    sites,
    sketches,
    utils,
  )
  from fl_sketch.runs.compare import compare, train
  from fl_sketch.runs.loaded import load

__all__ = [
  'train', 'compare', 'load', 'runs', 'data', 'models', 'algorithms',
  'sketches', 'codecs', 'distributed', 'privacy', 'accounting', 'sites',
  'rounds', 'local', 'attacks', 'utils',
]  # fmt: skip


_FUNCTIONS = {'compare': 'compare', 'load': 'loaded', 'train': 'compare'}


def __getattr__(name: str) -> Any:
  """Import a package, or a function, on its first use (PEP 562)."""
  if name in _FUNCTIONS:
    module = importlib.import_module(f'fl_sketch.runs.{_FUNCTIONS[name]}')
    return getattr(module, name)
  path = f'fl_sketch.{name}'
  # Private names are asked for by doctest and others, and are no modules.
  if name.startswith('_') or importlib.util.find_spec(path) is None:
    text = f'module {__name__!r} has no attribute {name!r}'
    raise AttributeError(text, name=name, obj=sys.modules[__name__])
  return importlib.import_module(path)


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
