"""Iterative sketching, also without a server: Song et al., ICML 2023."""

from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.algorithms import server_optimizers, topology
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import numpy as np
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


class State(NamedTuple):
  """State between rounds of gossip."""

  offset: comms.PerClient  # each client's model less the mean of all
  bill: comms.Bill  # bytes that a client sends


def decentralised(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  graph: np.ndarray | str,
  population: int,
  gossip_steps: fields.Size | None = None,
) -> Algorithm:
  r"""Clients average sketches over a graph; each continues from its own model.

  :math:`w_i \leftarrow w_i - \eta_g R_t^\top (M R_t \Delta)_i`, where M is the
  exact average of a tree all-reduce, or :math:`W^q`, q steps of gossip with
  Metropolis weights W. The parameters of the run are the mean of all
  :math:`w_i`. Every client takes part in every round, with equal weights; a
  rejected one sends zeros and keeps its model. The uplink is the mean of what
  clients send: 2 (n - 1) tables in a tree, two over each edge a gossip step.

  Options:
    sketch: a linear operator whose table is one array.
    graph: adjacency of the clients, by id; or a kind of `topology.make`.
    gossip_steps: q; None: a tree all-reduce.

  Symbols: those of `iterative_sketching`.

  Departures: the paper has one sentence on it: rounds of messages of the order
  of the diameter. Flooding does so, with up to N tables over each edge.

  Raises ValueError if the sketch is not linear, the graph is of another size,
  or, in a round, the cohort is partial.

  Source: Song, Wang, Yu, Zhang, ICML 2023, section 4.
  """
  if isinstance(graph, str):
    graph = topology.make(graph, population)
  if (n := len(graph)) != population:
    raise ValueError(f'The graph has {n} clients, not {population=}.')
  if not sketch.properties.linear:
    raise ValueError('decentralised requires a linear sketch.')
  local, step = task.steps(hp), optax.scale_by_learning_rate(hp.server_lr)
  if gossip_steps is None:
    links = t.sketch(sketch), _tree_mean(n), t.desketch(sketch), step
    return federated(local, *links, full_participation=population)

  def from_own_model(params, batches, key, offset):
    return local(jax.tree.map(jnp.add, params, offset), batches, key, None)

  matrix = np.linalg.matrix_power(topology.metropolis(graph), gossip_steps)
  messages = int(graph.sum()) * gossip_steps
  return federated(
    from_own_model,
    t.sketch(sketch),
    _gossip(sketch, hp.server_lr, matrix, messages),
    t.desketch(sketch),
    step,
    correction=lambda protocol: chain.state_of(protocol, State).offset,
    full_participation=population,
  )


def _tree_mean(n) -> chain.Link:
  """Tables of n clients -> their mean, up a tree and down again."""

  def update(tables, _, params=None, *, comm, weight, **__):
    mean, size = comm.stacked_mean(tables, weight)
    return mean, comms.bill(-(-2 * (n - 1) * size // n))  # rounded up

  return chain.exchange(lambda params: comms.bill(), update, broadcasts=True)


def _gossip(op, server_lr, matrix, messages) -> chain.Link:
  mixing, n = np.asarray(matrix, np.float32), len(matrix)

  def init(params):
    offset = comms.PerClient(optax.tree.zeros_like(params))
    return State(offset, comms.bill())

  def update(tables, state, params=None, *, keys, comm, weight, ids, **extra):
    all_tables, size = comm.gather(tables, weight, ids, n)
    averages = jnp.tensordot(mixing, all_tables, 1)
    mean = averages.mean(0)
    read = lambda _, table: op.desketch(keys.round, table, params)
    estimates = t.over_lanes(read, averages[ids], keys=keys, **extra)
    move = lambda offset, x, m: offset - server_lr * (x - m[None])
    offset = jax.tree.map(move, state.offset.value, estimates, read(keys, mean))
    bill = comms.bill(-(-messages * size // n))  # rounded up
    return mean, State(comms.PerClient(offset), bill)

  return chain.exchange(init, update, broadcasts=True)
