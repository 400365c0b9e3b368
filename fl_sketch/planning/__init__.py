"""Predicts what a run takes: memory, communication cost, time.

`plan` reads them off the compiled round and times a dry run of a few rounds.
`advise_compression` compares compressors within budgets of bytes by the noise
of a step, with the formulas of `compression_noise`; `advise_gradients` does
so for gradients of a loop of your own.
"""

from fl_sketch.planning.compression import (
  Choice,
  advise_compression,
  advise_gradients,
  choice_flags,
  choices_table,
  draw_choices,
)
from fl_sketch.planning.plan import Plan, Wire, dry_run, plan, wire

__all__ = [
  'Choice', 'Plan', 'Wire', 'advise_compression', 'advise_gradients',
  'choice_flags', 'choices_table', 'draw_choices', 'dry_run', 'plan', 'wire',
]  # fmt: skip
