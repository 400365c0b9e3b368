"""Local work: one client's batches -> its pseudo-gradient.

`sgd` and `gradient` are the usual local work, `gram_sgd` an exact and faster
form of full-batch steps of a linear model, and `private_sgd` clips and perturbs
every step. Each returns a function (params, batches, key, drift) ->
(pseudo-gradient, metrics).
"""

from fl_sketch.local.gram import gram_sgd
from fl_sketch.local.private_sgd import private_sgd
from fl_sketch.local.sgd import gradient, sgd

__all__ = ['gradient', 'gram_sgd', 'private_sgd', 'sgd']
