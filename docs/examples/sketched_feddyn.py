"""FedDyn whose clients send sketches of their updates."""

from typing import Any, NamedTuple

from fl_sketch import algorithms
from fl_sketch.rounds import chain, comms, federated, state_of, transforms as t
import jax
import jax.numpy as jnp
import optax

from . import new


class State(NamedTuple):
  """The linear terms of the clients' losses, and the bytes of a round."""

  clients: comms.PerClient  # g_i, what each client's gradient is held to be
  server: Any  # h, the mean of all g_i
  bill: comms.Bill


@algorithms.register(work='task', hyper=('alpha',))
def sketched_feddyn(task, hp, *, sketch, population, alpha=0.1):
  """Minimises f_i(u) - <g_i, u> + alpha / 2 |u - w|^2, with g_i from tables."""

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return State(comms.PerClient(zeros), zeros, comms.bill())

  def update(tables, state, params, *, keys, comm, weight, **extra):
    read = lambda table: sketch.desketch(keys.round, table, params)
    mean, up = comm.stacked_mean(tables, weight)
    step, share = read(mean), comm.total(weight) / population
    # Estimates from tables have an error; a smaller gain averages it out.
    gain = alpha / (1 + sketch.properties.alpha(params))
    moved = t.over_lanes(lambda _, x: read(x), tables, keys=keys, **extra)
    add = lambda scale: lambda x, y: x + scale * y
    clients = jax.tree.map(add(gain), state.clients.value, moved)
    server = jax.tree.map(add(gain * share), state.server, step)
    step = jax.tree.map(add(1 / alpha), step, server)
    return step, State(comms.PerClient(clients), server, comms.bill(up))

  def correction(protocol):
    return jax.tree.map(jnp.negative, state_of(protocol, State).clients)

  return federated(
    task.steps(hp, proximal=alpha),
    t.sketch(sketch),
    chain.exchange(init, update),
    t.broadcast(),
    optax.scale_by_learning_rate(hp.server_lr),
    correction=correction,
  )


def get_config():
  """Twenty clients with two digits each."""
  c = new()
  c.population = c.cohort = 20
  c.partition, c.classes = 'classes_per_client', 2
  c.algorithm, c.options.alpha = 'sketched_feddyn', 0.1
  c.sketch.kind, c.sketch.size = 'block_cyclic', 301
  c.rounds, c.client_lr, c.server_lr = 60, 0.1, 0.5
  return c
