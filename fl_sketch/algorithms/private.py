"""User-level DP: DP-FedAvg, DP-NormFedAvg; example-level: private sketching."""

from fl_sketch import sketches
from fl_sketch.algorithms import iterative_sketching as song, server_optimizers
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
import optax


def dp_fedavg(
  task: Task,
  hp: Hyper,
  *,
  privacy: aggregation.PrivateMean,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
) -> Algorithm:
  r"""FedAvg with clipped updates and Gaussian noise: user-level DP.

  :math:`a = \frac1r (\sum_{i \in S} u_i \min(1, C / \|u_i\|) + z C \xi)` with
  :math:`u_i = (w - w_i) / \eta`, the sum of a client's gradients, and
  :math:`w \leftarrow w - \beta a` with :math:`\beta = \eta_g \eta`.

  Options:
    clip_norm: bounds :math:`u_i`, which grows with the local steps.
    privacy: central, local or distributed DP by its ``trust``; its ``bound``
      may follow a quantile.
    server_optimizer: 'momentum' in the paper's experiments.

  Symbols: client_lr eta_k; server_lr beta_k / eta_k; local_steps E, on all
  samples; rounds K; expected_cohort r; clip_norm C; noise_multiplier z = r
  sigma / C.

  Departures: the noise is drawn once, on the sum; the paper's clients draw
  N(0, r sigma^2 I) each. A server that so sees who takes part amplifies
  nothing: in the paper's settings, epsilon is six to eight times as large. The
  sum is divided by the expected r. The paper's sigma has an unspecified
  constant: take z from the accountant. The unit of privacy is one client.

  Source: Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094, Algorithm 1.
  """
  return federated(
    task.steps(hp),
    t.per_client(optax.scale(1 / hp.client_lr)),
    aggregation.mean_over_cohort(privacy=privacy),
    t.broadcast(),
    server_optimizers.server_step(hp, server_optimizer),
    optax.scale(hp.client_lr),
  )


def dp_normfedavg(
  task: Task,
  hp: Hyper,
  *,
  privacy: aggregation.PrivateMean,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
) -> Algorithm:
  r"""DP-FedAvg with every update scaled to norm C, short ones up.

  :math:`a = \frac1r (\sum_{i \in S} C u_i / \|u_i\| + z C \xi)`: the same
  sensitivity, hence the same epsilon, and more signal where updates are short.

  Options:
    clip_norm: the norm of every contribution.
    privacy: its ``bound`` is set to 'normalize'.

  Symbols: those of `dp_fedavg`, as all else.

  Departures: those of `dp_fedavg`; an update of 0, undefined there, counts 0.

  Source: Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094, Algorithm 2.
  """
  privacy = privacy.normalizing()
  return dp_fedavg(task, hp, privacy=privacy, server_optimizer=server_optimizer)


def private_iterative_sketching(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  local_steps: int,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
) -> Algorithm:
  r"""Iterative sketching with noise in every local step: example-level DP.

  Each client protects each of its samples against server and peers (local DP):
  :math:`u \leftarrow u - \eta \frac1B (\sum_{z \in B_k} [\nabla f(u; z)]_C +
  z C \xi)`. The sketch of the result is post-processing.

  Options:
    local: work of your own must have the guarantee of `local.private_sgd`, and
      draw noise from its key.
    clip_norm: bounds the gradient of a sample.
    local_steps: K; every one of them is a release.

  Symbols: those of `iterative_sketching`; clip_norm l_c; noise_multiplier
  z = B sigma / l_c; batch_size B.

  Departures: the paper assumes l_c-Lipschitz losses and takes l_c for the
  sensitivity of a mean of gradients; we clip the gradient of every sample,
  which makes it l_c / B, and divide by the expected batch. Its theorem drops
  factors: use the accountant, with K T releases, whichever clients are sampled.

  Source: Song, Wang, Yu, Zhang, ICML 2023, Algorithms 2 and 3.
  """
  return song.iterative_sketching(
    task, hp, Channel(sketch), server_optimizer=server_optimizer
  )._replace(local=task.private_steps(hp), releases=local_steps)
