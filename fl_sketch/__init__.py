"""Federated learning in which clients send a random sketch of their update.

Every package loads when it is first used: `import fl_sketch` alone loads
neither JAX nor matplotlib. CONTRIBUTING.md lists the packages, one line each.
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import __version__ as __version__, lazy

if TYPE_CHECKING:
  from fl_sketch import (
    algorithms,
    attacks,
    codecs,
    data,
    distributed,
    experiment,
    local,
    messaging,
    models,
    planning,
    privacy,
    reporting,
    rounds,
    sketches,
    sweeps,
    training,
    utils,
  )
  from fl_sketch.training.loaded import load

__all__ = [
  'algorithms', 'attacks', 'codecs', 'data', 'distributed', 'experiment',
  'load', 'local', 'messaging', 'models', 'planning', 'privacy', 'reporting',
  'rounds', 'sketches', 'sweeps', 'training', 'utils',
]  # fmt: skip

__getattr__ = lazy.attach(__name__, **{'training.loaded': ('load',)})
