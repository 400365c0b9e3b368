"""Trains one run: loop, memory preflight, prefetch, checkpoints, resuming."""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.training.log import DivergedError
  from fl_sketch.training.loop import Result, train

__all__ = ['DivergedError', 'Result', 'train']

_NAMES = {'log': ('DivergedError',), 'loop': ('Result', 'train')}
__getattr__ = lazy.attach(__name__, **_NAMES)
