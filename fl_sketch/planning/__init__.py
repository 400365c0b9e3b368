"""Predicts what a run takes: memory, communication cost, operations, time.

`plan` reads them off the compiled round and times a dry run of a few rounds;
`flops` counts the operations of a jaxpr, loops included.
"""

from fl_sketch.planning.plan import Plan, Wire, dry_run, plan, wire

__all__ = ['Plan', 'Wire', 'dry_run', 'plan', 'wire']
