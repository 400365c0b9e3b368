"""SAFL: clients send sketches; the server steps by an adaptive optimizer."""

from fl_sketch.algorithms import server_optimizers
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds import transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
import optax


def safl(
  task: Task,
  hp: Hyper,
  channel: Channel,
  *,
  server_optimizer: server_optimizers.ServerOptimizer = 'adam',
  schedule: optax.Schedule | None = None,
  client_momentum: fields.Share = 0.0,
) -> Algorithm:
  r"""Sketch, average, de-sketch, then any optax server optimizer.

  :math:`D = R_t^\top \frac1n \sum_c R_t \Delta_c`, and
  :math:`x \leftarrow x - \kappa\,\mathrm{ADA}(D)`; server and clients compute
  the moments from D. With `sketches.layerwise` every layer has its own table.

  With ``client_momentum`` a client sketches the average :math:`m_c \leftarrow
  \beta m_c + (1 - \beta) \Delta_c` of its updates, divided by :math:`1 -
  \beta^t`; set b1 to 0, since momentum on both sides doubles the lag.

  Options:
    server_optimizer: ADA, as of `server_step`.
    client_momentum: beta; 0 keeps no state on clients. Ours, not the paper's.

  Symbols: client_lr eta_t; server_lr kappa; sketch R, sk and desk; its size b;
  b1, b2, eps beta_1, beta_2, epsilon.

  Departures: we decode in the round that encoded; the printed client loop
  decodes a mean of the next one. 'amsgrad' is Algorithm 2, without bias
  correction; the paper's experiments have 'adam'. The sketch's noise lifts
  second moments to :math:`\|\Delta\|^2 / b`: keep eps well below
  :math:`\|\Delta\| / \sqrt b`.

  Raises ValueError if ``client_momentum`` is set with ``privacy``.

  Source: Chen, Li, Banerjee, arXiv:2411.06770, Algorithms 1 and 2.
  """
  if channel.privacy is not None and client_momentum:
    raise ValueError(f'Private safl does not support {client_momentum=}.')
  on_client = []
  if client_momentum:
    on_client.append(t.per_client(optax.ema(client_momentum)))
  return federated(
    task.steps(hp),
    *on_client,
    *channel.links(),
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )
