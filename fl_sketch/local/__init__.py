"""Local work: one client's batches -> its pseudo-gradient.

`sgd` (with any optimizer of `optimizers`, and a learning rate by `schedules`)
and `gradient` are the usual local work, `gram_sgd` an exact and faster form of
full-batch steps of a linear model, and `private_sgd` clips and perturbs every
step. Each returns a function (params, batches, key, correction) ->
(pseudo-gradient, metrics). `zeroth_order` has slopes of the loss in place of
gradients. A `Task` is the loss of a client and its steps: algorithms build
local work from it.
"""

from fl_sketch.local.gram import gram_sgd
from fl_sketch.local.optimizers import Optimizer, register
from fl_sketch.local.private_sgd import private_sgd
from fl_sketch.local.sgd import gradient, sgd, steps_made
from fl_sketch.local.task import Task
from fl_sketch.local.zeroth_order import zeroth_order

__all__ = [
  'Optimizer', 'Task', 'gradient', 'gram_sgd', 'private_sgd', 'register', 'sgd',
  'steps_made', 'zeroth_order',
]  # fmt: skip
