"""One run: the training loop, its memory check, its files, and resuming.

`loop` plays rounds and logs them, `runner` holds the compiled program and the
state, `cohort_feed` samples and prefetches cohorts, `client_state` stores what
clients keep, `checkpoints` and `workdir` write files. `preflight` checks the
memory before anything is allocated.
"""

from fl_sketch.training.loop import (
  DivergedError,
  Result,
  train,
)

__all__ = [
  'DivergedError',
  'Result',
  'train',
]
