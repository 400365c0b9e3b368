"""DeMo: the largest cosine coefficients of each client's own momentum."""

from fl_sketch import codecs
from fl_sketch.algorithms import compressed, server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import (
  aggregation,
  error_feedback as feedback,
  transforms as t,
)
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
import optax


def demo(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  momentum: fields.Part = 0.999,
  signs: bool = True,
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Decoupled momentum: what a client sends leaves its momentum.

  :math:`m_i \leftarrow \beta m_i + g_i`, a client sends :math:`q_i = C(m_i)`
  and keeps :math:`m_i - q_i`; :math:`x \leftarrow x - \eta\,\mathrm{sign}
  (\frac1n \sum_i q_i)`. The server sends the signs, packed eight a byte.

  Args:
    task: loss of a client, which takes one gradient.
    hp: hyperparameters.
    codec: C, a contraction, such as ``codecs.dct_top_k(1)``.
    momentum: beta, above 0.
    signs: False steps along the mean itself, of which the server sends d
      floats. `fedcom` with ``error_feedback`` and ``residual_decay`` has local
      steps and any server optimizer as well.
    schedule: round -> factor on ``server_lr``.

  Symbols: server_lr eta; momentum beta; codec C, the k largest coefficients of
  the DCT-II of each chunk.

  Departures: chunks are of the vector of all parameters, under a transform in
  one dimension. The mean is over all clients; the authors' code averages a
  coefficient over those that sent it. There every worker receives what all have
  sent. A zero counts as +1. Gradients enter the momentum without the step size,
  which at a constant one makes no difference to the signs; no weight decay.

  Source: Peng, Quesnelle, Kingma, arXiv:2411.19870, Algorithm 1; checked
  against the authors' code, github.com/bloc97/DeMo.

  Raises:
    ValueError: the codec is no contraction, or momentum not in (0, 1].
  """
  down = compressed.broadcast_signs() if signs else (t.broadcast(),)
  return federated(
    task.gradient(hp),
    feedback.compress(codec, error_feedback=True, residual_decay=momentum),
    aggregation.mean_over_cohort(decode=feedback.decoder(codec)),
    *down,
    server_optimizers.server_step(hp, schedule=schedule),
  )
