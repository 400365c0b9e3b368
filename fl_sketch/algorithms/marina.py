"""MARINA: compressed differences of gradients, and sometimes full gradients."""

from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import check_codec, decoded_mean
from fl_sketch.rounds.keys import codec_key, coin
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


class State(NamedTuple):
  """MARINA's state between rounds."""

  count: jax.Array  # int32[], rounds done
  previous: Tree  # the parameters of the previous round
  gradient: Tree  # the estimate g
  bill: comms.Bill


def marina(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  sync_probability: fields.Part,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""A gradient estimate, updated by compressed changes of the gradient.

  With probability p all clients send :math:`\nabla f_i(x^+)`, else
  :math:`Q_i(\nabla f_i(x^+) - \nabla f_i(x))` on the same batches, and :math:`g
  \leftarrow g + \frac1n \sum_i Q_i`; :math:`x \leftarrow x - \gamma g`. The
  coin is the same for all, the :math:`Q_i` are independent.

  Options:
    codec: unbiased, else a ValueError.
    sync_probability: about the share of d that the codec sends.

  Symbols: server_lr gamma; sync_probability p; codec Q.

  Departures: only the clients of a round send, whole gradients too; an absent
  one's change is taken to be the others' mean. The first round sends whole
  gradients. The server sends g, d floats; the paper's has SGD.

  Source: Gorbunov et al., ICML 2021, arXiv:2102.07845, Algorithm 1, and 3 on
  batches; checked against Flower's baseline `dasha`.
  """
  if codec.omega is None:
    raise ValueError(f'marina requires an unbiased codec, not {codec}.')
  local = task.gradient(hp)

  def gradients(params, batches, key, previous):
    new, metrics = local(params, batches, key, None)
    old, _ = local(previous, batches, key, None)
    return (new, old), metrics

  def encode(gradients, _, *, keys, **__):
    new, old = gradients
    change = jax.tree.map(jnp.subtract, new, old)
    return new, codec.encode(codec_key(keys.client), change)

  def init(params):
    check_codec(codec, params)
    zeros = optax.tree.zeros_like(params)
    return State(jnp.int32(0), params, zeros, comms.bill())

  def update(payload, state, params=None, *, keys, comm, **extra):
    whole, change = payload

    def synchronise():
      mean, up = comm.stacked_mean(whole, extra['weight'])
      return mean, comms.bill(up)

    def add_change():
      options = {'keys': keys, 'comm': comm, **extra}
      _, mean, up = decoded_mean(codec, change, params, **options)
      return jax.tree.map(jnp.add, state.gradient, mean), comms.bill(up)

    heads = coin(keys, sync_probability) | (state.count == 0)
    gradient, bill = comm.cond(heads, synchronise, add_change)
    return gradient, State(state.count + 1, params, gradient, bill)

  return federated(
    gradients,
    t.per_client(t.stateless(encode)),
    chain.exchange(init, update),
    t.broadcast(),
    server_optimizers.server_step(hp, server_optimizer, schedule),
    correction=lambda protocol: chain.state_of(protocol, State).previous,
    update_template=lambda params: (params, params),
  )
