"""EF21 and CD-Adam: Markov compression, by estimates on both sides."""

from fl_sketch import codecs
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import decoder, markov
from fl_sketch.rounds.keys import codec_key
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
