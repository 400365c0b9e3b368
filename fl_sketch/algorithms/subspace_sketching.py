"""Subspace sketching: one hash for several rounds, and a server on tables."""

from typing import NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, error_feedback, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


class Epoch(NamedTuple):
  """State of the server in the rounds of one hash."""

  table: Tree  # z, how far the parameters have moved in the subspace
  optimizer: Tree  # its state, of tables


class Heard(NamedTuple):
  """State of clients and server in the rounds of one hash."""

  table: Tree  # the last z that was sent, decoded


def subspace_sketching(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  hash_rounds: fields.Count = 20,
  server_optimizer: server_optimizers.ServerOptimizer = 'adam',
  schedule: optax.Schedule | None = None,
  codec: codecs.Codec | None = None,
  downlink_codec: codecs.Codec | None = None,
) -> Algorithm:
  r"""Move in the subspace of one sketch, and send where it has come to.

  For E rounds with one R, from parameters :math:`x_0`,

  .. math:: z \leftarrow z - \kappa\,\mathrm{ADA}(\tfrac1n \sum_c R \Delta_c),
    \quad x = x_0 + R^\top Q(z)

  The moments of ADA are tables; they and z are 0 at the start of an epoch. A
  client that was away receives the last table of each epoch that it missed,
  where `safl` sends it the table of every round, and errors of the downlink's
  codec Q do not add up within an epoch.

  Options:
    hash_rounds: E, the rounds of an epoch.

  Symbols: server_lr kappa; sketch R; server_optimizer ADA; downlink_codec Q.

  Departures: local steps are those of clients in the whole space, where the
  paper takes one gradient; ADA, codecs and unbiased sketches are ours.

  Source: Melas-Kyriazi, Wang, arXiv:2112.02656, Algorithm 3 (time-varying
  intrinsic compression).
  """
  client = t.sketch(sketch, hash_rounds=hash_rounds)
  tx = server_optimizers.server_step(hp, server_optimizer, schedule)
  down = error_feedback.broadcast(downlink_codec, sketch.zero_table)
  algorithm = federated(
    task.steps(hp),
    client,
    aggregation.mean_over_cohort(codec=codec),
    _move(sketch, hash_rounds, tx),
    *down,
    _change(sketch, hash_rounds),
    t.desketch(sketch, hash_rounds=hash_rounds),
  )
  return algorithm._replace(epoch=hash_rounds)


def _move(op, rounds, tx) -> chain.Link:
  """Server: mean table -> z."""

  def init(params):
    zero = op.zero_table(params)
    return Epoch(zero, tx.init(zero))

  def update(mean, state, params=None, *, keys, **_):
    first = keys.round_index % rounds == 0
    state = optax.tree.where(first, init(params), state)
    step, optimizer = tx.update(mean, state.optimizer, state.table)
    table = jax.tree.map(jnp.add, state.table, step)
    return table, Epoch(table, optimizer)

  return chain.Link(init, update, chain.SHARED)


def _change(op, rounds) -> chain.Link:
  """Clients and server: z as it was sent -> its change since the last round."""
  init = lambda params: Heard(op.zero_table(params))

  def update(table, state, params=None, *, keys, **_):
    first = keys.round_index % rounds == 0
    since = lambda new, old: new - jnp.where(first, 0, old)
    return jax.tree.map(since, table, state.table), Heard(table)

  return chain.Link(init, update, chain.SHARED)
