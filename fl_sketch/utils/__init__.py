"""Host helpers that every other package may use.

`checks` validates numbers, `files` writes files atomically, `markdown` makes
tables, `progress` shows bars, and `seeding` derives NumPy generators from
seeds. None of them knows a sketch, a round or a config.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from fl_sketch.utils import checks, files, markdown, progress, seeding

__all__ = ['checks', 'files', 'markdown', 'progress', 'seeding']


def __getattr__(name: str):
  if name not in __all__:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return importlib.import_module(f'{__name__}.{name}')
