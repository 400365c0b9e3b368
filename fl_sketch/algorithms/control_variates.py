"""SCAFFOLD and FedCOMGATE: local steps corrected for heterogeneous clients."""

from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import compress, decoded_mean
from fl_sketch.utils import fields
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import optax


class Variates(NamedTuple):
  """Control variates between rounds."""

  # c_i of SCAFFOLD, delta_j of FedCOMGATE, c_j of FedSKETCHGATE, g_i of FedDyn
  client: comms.PerClient
  server: Tree  # c of SCAFFOLD; h of FedDyn; () of those that have none
  bill: comms.Bill


def zero_variates(params: Params) -> Variates:
  """Variates of clients and server before the first round."""
  zeros = optax.tree.zeros_like(params)
  return Variates(comms.PerClient(zeros), zeros, comms.bill())


def client_variates(params: Params) -> Variates:
  """Variates of clients alone before the first round."""
  return zero_variates(params)._replace(server=())


def less_variate(protocol: Tree) -> comms.PerClient:
  """The correction of local steps by minus the variate of the client."""
  return jax.tree.map(jnp.negative, chain.state_of(protocol, Variates).client)


def scaffold(
  task: Task, hp: Hyper, *, local_steps: int, population: int
) -> Algorithm:
  r"""Local steps along :math:`g_i - c_i + c`, with both variates sent.

  :math:`c_i^+ = c_i - c + \Delta_i / (K \eta_l)`, :math:`c \leftarrow c +
  \frac1N \sum_{i \in S} (c_i^+ - c_i)` and :math:`x \leftarrow x - \eta_g
  \bar\Delta`. A client sends :math:`\Delta_i` and :math:`c_i^+ - c_i`, and
  receives :math:`\bar\Delta` and c.

  Symbols: client_lr eta_l; server_lr eta_g; local_steps K; population N.

  Departures: option II of the paper, which reuses the local gradients.

  Source: Karimireddy et al., ICML 2020, arXiv:1910.06378, Algorithm 1.
  """

  def update(moved, state, params=None, *, comm, weight, **_):
    factor = 1 / (local_steps * hp.client_lr)
    less = lambda m, c: factor * m - c[None]
    change = jax.tree.map(less, moved, state.server)
    # The mean is over participants, the sum of changes over the population.
    (mean, mean_change), up = comm.stacked_mean((moved, change), weight)
    share = comm.total(weight) / population
    server = jax.tree.map(lambda c, d: c + share * d, state.server, mean_change)
    client = jax.tree.map(jnp.add, state.client.value, change)
    message = comm.announce({'moved': mean, 'variate': server})
    bill = comms.bill(up, comms.nbytes(message))
    return message, Variates(comms.PerClient(client), message['variate'], bill)

  def correction(protocol):
    diff = lambda c, c_i: c[None] - c_i
    state = chain.state_of(protocol, Variates)
    return comms.PerClient(jax.tree.map(diff, state.server, state.client.value))

  return federated(
    task.steps(hp),
    chain.exchange(zero_variates, update, broadcasts=True),
    t.stateless(lambda message, _, **__: message['moved']),
    optax.scale_by_learning_rate(hp.server_lr),
    correction=correction,
  )


def fedcomgate(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  local_steps: int,
  control_gain: fields.Positive | None = None,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""FedCOM with gradient tracking: local steps along :math:`g_j - \delta_j`.

  :math:`\delta_j \leftarrow \delta_j + \frac\beta{\eta\tau}(Q_j(\Delta_j) -
  \frac1n \sum_i Q_i(\Delta_i))` and :math:`w \leftarrow w - \gamma \frac1n
  \sum_i Q_i(\Delta_i)`. All clients take part in every round, with equal
  weights.

  Options:
    codec: Q, unbiased, else a ValueError.
    control_gain: beta; None is 1 / (1 + omega) of the codec.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; control_gain beta.

  Departures: the paper sends :math:`\Delta_j / \eta`, hence its factor 1 / tau.
  Its gain is 1, where the error of :math:`\delta_j` grows if omega > 1; ours is
  that of DIANA (Mishchenko et al., arXiv:1901.09269). Its server has SGD.

  Source: Haddadpour et al., AISTATS 2021, arXiv:2007.01154, Algorithm 2.
  """
  omega = codec.omega
  if omega is None:
    raise ValueError(f'fedcomgate requires an unbiased codec, got {codec=}.')

  def update(payload, state, params=None, *, comm, **extra):
    gain = 1 / (1 + omega(params)) if control_gain is None else control_gain
    factor = gain / (local_steps * hp.client_lr)
    decoded, mean, up = decoded_mean(codec, payload, params, comm=comm, **extra)
    mean = comm.announce(mean)
    bill = comms.bill(up, comms.nbytes(mean))
    track = lambda d, q, m: d + factor * (q - m[None])
    client = jax.tree.map(track, state.client.value, decoded, mean)
    return mean, Variates(comms.PerClient(client), (), bill)

  return federated(
    task.steps(hp),
    compress(codec),
    chain.exchange(client_variates, update, broadcasts=True),
    server_optimizers.server_step(hp, server_optimizer, schedule),
    correction=less_variate,
    full_participation=True,
  )
