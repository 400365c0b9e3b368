"""Trains one run: loop, memory preflight, prefetch, checkpoints, resuming.

`loop` plays rounds and `log` makes their records; `runner` holds the compiled
`program` and the state, `cohort_feed` samples and prefetches cohorts,
`client_state` stores per-client state, and `placement` decides where.
`checkpoints` and `workdir` write files. `preflight` checks the `memory` before
anything is allocated.
"""

from fl_sketch.training.log import DivergedError
from fl_sketch.training.loop import Result, train

__all__ = ['DivergedError', 'Result', 'train']
