"""Predicts what a run takes: memory, communication cost, time.

`plan` reads them off the compiled round and times a dry run of a few rounds;
`advise_compression` and `advise_gradients` choose compressors for budgets.
"""

from fl_sketch.planning.compression import (
  Choice,
  advise_compression,
  advise_gradients,
  choice_flags,
  choices_table,
)
from fl_sketch.planning.plan import Plan, Wire, dry_run, plan, wire

__all__ = [
  'Choice', 'Plan', 'Wire', 'advise_compression', 'advise_gradients',
  'choice_flags', 'choices_table', 'dry_run', 'plan', 'wire',
]  # fmt: skip
