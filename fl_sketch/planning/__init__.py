"""Predict memory, bytes and time of a run; choose compressors for budgets."""

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
