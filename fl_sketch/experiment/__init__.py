"""Build experiments from configs.

`problem` loads data and model, `custom` takes the user's own. `privacy_plan`
derives mechanism and account together; `audit` and `one_run_audit` attack them.
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
