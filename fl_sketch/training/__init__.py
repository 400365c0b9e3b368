"""Train one run: loop, memory preflight, prefetch, checkpoints, resuming."""

from fl_sketch.training.log import DivergedError
from fl_sketch.training.loop import Result, train

__all__ = ['DivergedError', 'Result', 'train']
