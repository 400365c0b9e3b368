"""Builds experiments from configs.

`build` assembles an `Experiment` from a `config`, made of the groups of
`fields`. `problem` loads data and model, `custom` takes the user's own.
`privacy_plan` derives mechanism and account together; `audit` attacks them on a
small model, `one_run_audit` in a training with `canary_clients`.
"""

from fl_sketch.experiment.build import (
  Experiment,
  OwnProblem,
  account,
  assemble,
  build,
  reconfigured,
)
from fl_sketch.experiment.parts import (
  algorithm_options,
  declared,
  guarantee_of,
  hyper_of,
)

__all__ = [
  'Experiment', 'OwnProblem', 'account', 'algorithm_options', 'assemble',
  'build', 'declared', 'guarantee_of', 'hyper_of', 'reconfigured',
]  # fmt: skip
