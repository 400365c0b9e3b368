"""Builds experiments from configs.

`config` is made of the groups of `fields`, each with its check; `problem` loads
data and model, `sampler` draws cohorts, `held_out` is what clients only
evaluate on, `privacy_plan` derives mechanism and account together, `caveats`
say what a statement does not cover, `parts` makes what the config alone
decides, and `build` assembles an `Experiment`.
`custom` makes a problem of the user's own. `audit` attacks a private config on
a small model, `one_run_audit` in a training with `canary_clients`.
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
