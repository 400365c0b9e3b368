"""Federated learning in which clients send a random sketch of their update.

Every package loads when it is first used: `import fl_sketch` alone loads
neither JAX nor matplotlib. CONTRIBUTING.md lists the packages, one line each.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from fl_sketch import (
    algorithms,
    attacks,
    bench,
    codecs,
    data,
    experiment,
    local,
    messaging,
    models,
    planning,
    privacy,
    reporting,
    reproduce,
    rounds,
    sketches,
    sweeps,
    theory,
    training,
    utils,
  )

__version__ = '0.1.0'
__all__ = [
  'algorithms',
  'attacks',
  'bench',
  'codecs',
  'data',
  'experiment',
  'local',
  'messaging',
  'models',
  'planning',
  'privacy',
  'reporting',
  'reproduce',
  'rounds',
  'sketches',
  'sweeps',
  'theory',
  'training',
  'utils',
]


def __getattr__(name: str):
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return importlib.import_module(f'{__name__}.{name}')
