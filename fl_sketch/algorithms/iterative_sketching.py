"""Iterative sketching of updates: Song, Wang, Yu, Zhang, ICML 2023."""

from fl_sketch import sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
import optax


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


def decentralised(
  task: Task, hp: Hyper, *, sketch: sketches.Sketch, population: int
) -> Algorithm:
  r"""`iterative_sketching` without a server: a tree all-reduce of the tables.

  Every client takes part in every round, with equal weights. The uplink is the
  mean of the bytes that clients send: a tree of n clients carries
  :math:`2 (n - 1)` tables.

  Options:
    sketch: a linear operator whose table is one array, else a ValueError.

  Symbols: those of `iterative_sketching`; population n.

  Departures: the paper has one sentence on it, and names flooding, which
  carries up to N tables over each edge.

  Source: Song, Wang, Yu, Zhang, ICML 2023, section 3.
  """
  if not sketch.properties.linear:
    raise ValueError('decentralised requires a linear sketch.')

  def up_and_down(tables, _, params=None, *, comm, weight, **__):
    mean, size = comm.stacked_mean(tables, weight)
    sent = 2 * (population - 1) * size
    return mean, comms.bill(-(-sent // population))  # rounded up

  nothing = lambda params: comms.bill()
  return federated(
    task.steps(hp),
    t.sketch(sketch),
    chain.exchange(nothing, up_and_down, broadcasts=True),
    t.desketch(sketch),
    optax.scale_by_learning_rate(hp.server_lr),
    full_participation=population,
  )
