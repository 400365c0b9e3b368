"""A method for `fl-sketch compare`: one-bit tables, and momentum on the server.

`fl-sketch compare own_compressor.py --task=clothes` tunes and runs it.
"""

from fl_sketch import algorithms
from fl_sketch.algorithms import server_optimizers
from fl_sketch.rounds import federated
import optax

TUNED = 'server_lr'
RATES = 0.003, 0.01, 0.03  # those beyond an end are tried while it is the best


@algorithms.register
def momentum_tables(
  task, hp, channel: algorithms.Channel, *, schedule=None, beta: float = 0.5
):
  """SAFL with momentum on the estimate, before Adam."""
  return federated(
    task.steps(hp),
    channel.encode(),  # each client: its update to a table
    channel.mean(),  # the uplink
    *channel.broadcast(),  # the downlink
    channel.decode(),  # server and clients: the table to an estimate
    optax.trace(beta),
    server_optimizers.server_step(hp, 'adam', schedule),
  )


def fields(dimension):
  """A hundredth of the bytes of the model up, one bit an entry."""
  size = dimension * 32 // 100 // 8 * 8
  return {
    'algorithm': 'momentum_tables',
    'options': {'beta': 0.5},
    'sketch': f'block_srht(size={size})',
    'codec': 'eden(rotate=False)',
  }
