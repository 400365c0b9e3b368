"""One run: the training loop, its memory check, its files, and resuming.

`loop` plays rounds and `log` makes their records; `runner` holds the compiled
`program` and the state, `cohort_feed` samples and prefetches cohorts,
`client_state` stores what clients keep, where `placement` decides.
`checkpoints` and `workdir` write files. `preflight` checks the memory before
anything is allocated.
"""

from fl_sketch.training.log import DivergedError
from fl_sketch.training.loop import Result, train

__all__ = ['DivergedError', 'Result', 'train']
