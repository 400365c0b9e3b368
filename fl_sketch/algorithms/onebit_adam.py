"""1-bit Adam: dense Adam as warm-up, then signs of the momentum, both ways."""

from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


class State(NamedTuple):
  """1-bit Adam's state between rounds."""

  count: jax.Array  # int32[], rounds done
  momentum: Tree  # m, the same on clients and server
  client_error: comms.PerClient  # residual of the clients' signs
  server_error: Tree  # residual of the server's signs
  bill: comms.Bill


class Moments(NamedTuple):
  """State of the step: rounds done, m and v."""

  count: jax.Array
  momentum: Tree
  variance: Tree


def onebit_adam(
  task: Task,
  hp: Hyper,
  *,
  warmup: fields.Count,
  b1: float = 0.9,
  b2: float = 0.999,
  eps: float = 1e-8,
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Adam with its second moment frozen, and one bit a coordinate.

  For ``warmup`` rounds mean gradients and Adam. Then a client sends
  :math:`C(\beta_1 m + (1 - \beta_1) g_i + \delta_i)` with :math:`C(x) =
  \mathrm{sign}(x) \|x\|_2 / \sqrt d`, the server sends C of the mean and its
  own error, which is the new m, and v stays: :math:`x \leftarrow x - \eta m /
  (\sqrt v + \epsilon)`.

  Options:
    warmup: dense rounds; v must have settled.

  Symbols: server_lr gamma; warmup T_w; b1, b2, eps beta_1, beta_2, eta.

  Departures: no bias correction, as in the authors' code. A coordinate with
  v = 0 after the warm-up stays, since signs are never 0.

  Source: Tang et al., ICML 2021, arXiv:2102.02888, Algorithm 1.
  """
  codec = codecs.sign('l2')

  def init(params):
    zeros = optax.tree.zeros_like(params)
    error = comms.PerClient(zeros)
    return State(jnp.int32(0), zeros, error, zeros, comms.bill())

  def update(grads, state, params=None, *, keys, comm, weight, **_):
    def dense():
      mean, up = comm.stacked_mean(grads, weight)
      mean = comm.announce(mean)
      momentum = jax.tree.map(_decay(b1), state.momentum, mean)
      bill = comms.bill(up, comms.nbytes(mean))
      return mean, state._replace(momentum=momentum, bill=bill)

    def signs():
      add = lambda m, g, e: b1 * m[None] + (1 - b1) * g + e
      error = state.client_error.value
      target = jax.tree.map(add, state.momentum, grads, error)
      payload = jax.vmap(codec.encode)(keys.client, target)  # it draws nothing
      read = lambda key, signs: codec.decode(key, signs, params)
      decoded = jax.vmap(read)(keys.client, payload)
      mean, up = comm.stacked_mean(payload, weight, decoded, read)
      server_target = jax.tree.map(jnp.add, mean, state.server_error)
      message = comm.announce(codec.encode(keys.round, server_target))
      momentum = codec.decode(keys.round, message, params)
      error = jax.tree.map(jnp.subtract, target, decoded)
      return momentum, state._replace(
        momentum=momentum, client_error=comms.PerClient(error),
        server_error=jax.tree.map(jnp.subtract, server_target, momentum),
        bill=comms.bill(up, comms.nbytes(message)),
      )  # fmt: skip

    message, new = comm.cond(state.count < warmup, dense, signs)
    return message, new._replace(count=state.count + 1)

  return federated(
    task.gradient(hp),
    chain.exchange(init, update, broadcasts=True),
    _frozen_adam(warmup, b1, b2, eps),
    server_optimizers.server_step(hp, schedule=schedule),
  )


def _decay(decay):
  return lambda old, new: decay * old + (1 - decay) * new


def _frozen_adam(warmup, b1, b2, eps) -> chain.Link:

  def init(params):
    zeros = optax.tree.zeros_like(params)
    return Moments(jnp.int32(0), zeros, zeros)

  def update(mean, state, params=None, **_):
    warm = state.count < warmup
    momentum = jax.tree.map(_decay(b1), state.momentum, mean)
    momentum = optax.tree.where(warm, momentum, mean)
    square = jax.tree.map(jnp.square, mean)
    mixed = jax.tree.map(_decay(b2), state.variance, square)
    variance = optax.tree.where(warm, mixed, state.variance)
    direction = lambda m, v: jnp.where(v > 0, m / (jnp.sqrt(v) + eps), 0)
    out = jax.tree.map(direction, momentum, variance)
    return out, Moments(state.count + 1, momentum, variance)

  return chain.Link(init, update, chain.SHARED)
