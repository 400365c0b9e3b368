"""Iterative sketching of updates: Song, Wang, Yu, Zhang, ICML 2023."""

from fl_sketch.algorithms import server_optimizers
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated


def iterative_sketching(
  task: Task,
  hp: Hyper,
  channel: Channel,
  *,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
) -> Algorithm:
  r"""K local steps, one linear sketch on clients, one de-sketch on the server.

  :math:`w \leftarrow w - \eta_g R_t^\top \sum_c p_c R_t \Delta_c` with a fresh
  :math:`R_t` every round; K = 1 is the paper's single-step scheme.

  Options:
    sketch: R, whose desketch is its adjoint.
    server_optimizer: 'momentum' is the extension that the paper names.

  Symbols: client_lr eta_local; server_lr eta_global, in practice from 4 b/d to
  1; local_steps K; sketch R, sk and desk; its size b_sketch.

  Departures: the printed line 9 decodes with the operator of the next round,
  under which the loss explodes; we decode with the one that encoded, as the
  paper's own proof (Lemma F.2) does, and apply the last round's sketch too.

  Source: Song, Wang, Yu, Zhang, ICML 2023, Algorithm 1.
  """
  return federated(
    task.steps(hp),
    *channel.links(),
    server_optimizers.server_step(hp, server_optimizer),
  )
