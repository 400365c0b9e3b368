"""From the metrics of runs to tables and figures.

`metrics` reads metrics files and makes tables without matplotlib;
`learning_curves` and `label_distribution` draw figures, whose look is that of
`plotting`. Names load when they are first used.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from fl_sketch.reporting import label_distribution
  from fl_sketch.reporting.learning_curves import curves, draw_run
  from fl_sketch.reporting.metrics import read_metrics, sentence, table
  from fl_sketch.reporting.plotting import look, new_axes, plain_ticks

_HOMES = {
  'curves': 'learning_curves',
  'draw_run': 'learning_curves',
  'look': 'plotting',
  'new_axes': 'plotting',
  'plain_ticks': 'plotting',
  'read_metrics': 'metrics',
  'sentence': 'metrics',
  'table': 'metrics',
}
__all__ = [
  'curves',
  'draw_run',
  'label_distribution',
  'look',
  'new_axes',
  'plain_ticks',
  'read_metrics',
  'sentence',
  'table',
]


def __getattr__(name: str):
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  home = _HOMES.get(name)
  module = importlib.import_module(f'{__name__}.{home or name}')
  return getattr(module, name) if home else module
