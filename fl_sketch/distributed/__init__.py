"""Compressed averages of gradients in a training loop of your own.

`mean_over` averages gradients over a mesh axis through any compressor of the
package, as an optax transformation inside `jax.shard_map`::

    compressor = 'block_srht(size=0.32) | eden(rotate=False)'
    mean = distributed.mean_over('data', compressor, both_ways=True)
    tx = optax.chain(mean, optax.adamw(3e-4))
    state = distributed.init(tx, params, mesh)
    step = distributed.train_step(loss, tx, mesh)

What travels between workers has the types of the payload, one `uint8` array for
most; `bytes_per_step` counts it. `algorithm` runs algorithms of the federated
engine, whose step is more than a mean; `outer` exchanges what workers moved in
many steps of their own (DiLoCo). docs/guides/slow_link.md shows whole loops.
"""

from fl_sketch.distributed.bills import Bytes, bytes_per_step, traced_bytes
from fl_sketch.distributed.compressors import algorithm, mean_over
from fl_sketch.distributed.engine import PerWorker, State, from_algorithm
from fl_sketch.distributed.outer_steps import (
  OuterState,
  outer,
  per_worker,
  worker_params,
)
from fl_sketch.distributed.step import (
  init,
  map_step,
  state_specs,
  train_step,
  value_and_grad,
)

__all__ = [
  'mean_over', 'init', 'train_step', 'map_step', 'bytes_per_step', 'outer',
  'algorithm', 'value_and_grad', 'state_specs', 'worker_params', 'per_worker',
  'from_algorithm', 'traced_bytes', 'Bytes', 'PerWorker', 'State', 'OuterState',
]  # fmt: skip
