"""Iterative sketching of updates: Song, Wang, Yu, Zhang, ICML 2023."""

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import (
  aggregation,
  error_feedback as feedback,
  robust as robust_lib,
  transforms as t,
)
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated


def iterative_sketching(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  privacy: aggregation.PrivateMean | None = None,
  robust: robust_lib.Rule | None = None,
  codec: codecs.Codec | None = None,
  downlink: codecs.Codec | None = None,
  hash_rounds: int | None = None,
) -> Algorithm:
  r"""K local steps, one linear sketch on clients, one de-sketch on the server.

  :math:`w \leftarrow w - \eta_g R_t^\top \sum_c p_c R_t \Delta_c` with a fresh
  :math:`R_t` every round; K = 1 is the paper's single-step scheme.

  Args:
    task: loss and local steps of a client.
    hp: the practical range of ``server_lr`` is 4 b/d to 1.
    sketch: a linear operator whose desketch is its adjoint.
    server_optimizer: 'momentum' is the extension that the paper names.
    privacy: bounds and noise on the tables; None is no privacy.
    robust: byzantine-robust rule in place of the mean; None is the mean.
    codec: compresses the clients' tables; None sends them uncompressed.
    downlink: compresses the mean table likewise.
    hash_rounds: for how many rounds :math:`R_t` is kept: None is one, as in the
      paper, 0 the whole run. Correlated noise needs it.

  Symbols: client_lr eta_local; server_lr eta_global; local_steps K; sketch R,
  sk and desk; its size b_sketch.

  Departures: the printed line 9 decodes with the operator of the next round,
  under which the loss explodes; we decode with the one that encoded, as the
  paper's own proof (Lemma F.2) does, and apply the last round's sketch too. Our
  pseudo-gradient is received minus returned, the paper's the opposite.

  Source: Song, Wang, Yu, Zhang, ICML 2023, Algorithm 1.
  """
  hash_key = t.hash_key(hash_rounds)
  return federated(
    task.steps(hp),
    t.sketch(sketch, hash_key=hash_key),
    aggregation.mean_over_cohort(privacy=privacy, robust=robust, codec=codec),
    *feedback.broadcast(downlink, sketch.like),
    t.desketch(sketch, hash_key=hash_key),
    server_optimizers.server_step(hp, server_optimizer),
  )
