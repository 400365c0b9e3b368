"""Local work: one client's batches -> its pseudo-gradient.

`sgd`, `gradient`, `gram_sgd` and `private_sgd` return a function (params,
batches, key, correction) -> (pseudo-gradient, metrics); `zeroth_order` sends
slopes of the loss. A `Task` is what algorithms build local work from.
"""

from fl_sketch.local.gram import gram_sgd
from fl_sketch.local.optimizers import Optimizer, register
from fl_sketch.local.private_sgd import private_sgd
from fl_sketch.local.sgd import gradient, sgd, steps_made
from fl_sketch.local.task import Task
from fl_sketch.local.zeroth_order import zeroth_order

__all__ = [
  'sgd', 'gradient', 'gram_sgd', 'private_sgd', 'zeroth_order', 'Optimizer',
  'register', 'Task', 'steps_made',
]  # fmt: skip
