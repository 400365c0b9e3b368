"""What a run will take: memory, bytes, operations and time.

`plan` asks the compiler and plays a few rounds without training; `flops` counts
the operations of a jaxpr, loops included.
"""

from fl_sketch.planning.plan import Plan, Wire, dry_run, plan, wire

__all__ = [
  'Plan', 'Wire', 'dry_run', 'plan', 'wire',
]  # fmt: skip
