"""Trains one run: loop, memory preflight, prefetch, checkpoints, resuming.

`loop` plays rounds and `log` makes their records; `runner` holds the compiled
`program` and the state, `cohort_feed` samples and prefetches cohorts,
`client_state` stores per-client state, and `placement` decides where.
`signals` lets a run save before it is stopped, `checkpoints` and `workdir`
write files, `sinks` copies rows elsewhere, `loaded` reads a run again, with
`language` for text; `identity` and `same_run` refuse a folder of another
problem, `extending` lets it have more rounds, and `initial` starts it from
another run. `preflight` checks the `memory` before anything is allocated.
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.training.log import DivergedError
  from fl_sketch.training.loop import Result, train

__all__ = ['DivergedError', 'Result', 'train']

__getattr__ = lazy.attach(
  __name__, log=('DivergedError',), loop=('Result', 'train')
)
