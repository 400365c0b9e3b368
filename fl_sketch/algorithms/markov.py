"""EF21 and CD-Adam: estimates on both sides; MARINA: changes of gradients."""

from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import (
  check_codec,
  decoded_mean,
  decoder,
  markov,
)
from fl_sketch.rounds.keys import codec_key, coin
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


def ef21(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  population: int,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""EF21: error feedback by estimates of the clients' gradients.

  :math:`g_i \leftarrow g_i + C(\nabla f_i - g_i)` and :math:`w \leftarrow w -
  \gamma \frac1N \sum_i g_i`, of which the server keeps the sum: an absent
  client's :math:`g_i` stays.

  Options:
    codec: a contraction.

  Symbols: server_lr gamma; codec C; population n.

  Departures: estimates begin at 0. Absent clients as in EF21-PP (Fatkhullin et
  al., arXiv:2110.03294). The server sends d floats; the paper's has SGD.

  Source: Richtarik, Sokolov, Fatkhullin, NeurIPS 2021, arXiv:2106.05203,
  Algorithm 2.
  """
  return federated(
    task.gradient(hp),
    markov(codec),
    aggregation.mean_over_cohort(decode=decoder(codec), denominator=population),
    t.broadcast(),
    optax.trace(1.0),
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )


def cd_adam(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  population: int,
  b1: float = 0.9,
  b2: float = 0.99,
  eps: float = 1e-8,
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""CD-Adam: compression both ways, then AMSGrad on the shared estimate.

  :math:`\hat g_i \leftarrow \hat g_i + C(\nabla f_i - \hat g_i)` up,
  :math:`\tilde g \leftarrow \tilde g + C(\frac1N \sum_i \hat g_i - \tilde g)`
  down, and AMSGrad on :math:`\tilde g` with both biases corrected
  (`server_optimizers.corrected_amsgrad`), by server and clients alike.

  Options:
    codec: C, a contraction.

  Symbols: server_lr alpha; b1, b2, eps beta_1, beta_2, nu; population n.

  Departures: absent clients as in `ef21`. The authors' code adds weight decay
  to :math:`\tilde g`, and divides the rate by 10 at 1/2 and 3/4 of the rounds.

  Source: Wang, Lin, Chen, AISTATS 2022, arXiv:2111.00705; follows the authors'
  code, github.com/jinghuichen/CD-Adam, main.py.
  """
  amsgrad = server_optimizers.corrected_amsgrad(b1, b2, eps)
  link = markov(codec)
  decode = lambda payload, params, *, keys, **_: codec.decode(
    codec_key(keys.round), payload, params
  )

  def change_of_copy(mean, copy, params=None, *, keys, **_):
    shared = keys._replace(client=keys.round)
    return link.update_fn(mean, copy, params, keys=shared)

  return federated(
    task.gradient(hp),
    link,
    aggregation.mean_over_cohort(decode=decoder(codec), denominator=population),
    optax.trace(1.0),
    chain.Link(link.init_fn, change_of_copy, chain.SHARED),
    t.broadcast(),
    t.stateless(decode),
    optax.trace(1.0),
    server_optimizers.server_step(hp, amsgrad, schedule),
  )


class MarinaState(NamedTuple):
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

  With probability p all clients send :math:`\nabla f_i(x^+)`, else independent
  :math:`Q_i(\nabla f_i(x^+) - \nabla f_i(x))` on the same batches, and :math:`g
  \leftarrow g + \frac1n \sum_i Q_i`; :math:`x \leftarrow x - \gamma g`.

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
    return MarinaState(jnp.int32(0), params, zeros, comms.bill())

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
    return gradient, MarinaState(state.count + 1, params, gradient, bill)

  return federated(
    gradients,
    t.per_client(t.stateless(encode)),
    chain.exchange(init, update),
    t.broadcast(),
    server_optimizers.server_step(hp, server_optimizer, schedule),
    correction=lambda protocol: chain.state_of(protocol, MarinaState).previous,
    update_template=lambda params: (params, params),
  )
