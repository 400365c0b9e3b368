"""DeComFL and FedKSeed: clients send slopes of their loss, no gradient."""

from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.local.zeroth_order import combine, zeroth_order
from fl_sketch.rounds import aggregation, keys as keys_lib, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, RoundLocal, federated
from fl_sketch.sketches import hashing
from fl_sketch.utils import fields
import jax.numpy as jnp
import optax


def decomfl(
  task: Task,
  hp: Hyper,
  *,
  local_steps: fields.Count,
  directions: fields.Count = 10,
  mu: fields.Positive = 1e-3,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Zeroth-order steps along directions of a round, which all clients share.

  Of K steps with P directions each, :math:`z_{kp}` of the round's seeds, a
  client sends the slopes :math:`g_{kp}` of `local.zeroth_order`, and the server
  their mean; :math:`w \leftarrow w - \eta_g \frac{\eta}{P} \sum_{k,p}
  \bar g_{kp} z_{kp}`: K P floats both ways. Absent clients replay rounds later.

  Options:
    local_steps: K.
    directions: P.
    mu: of the points at which the loss is evaluated; a hyperparameter.

  Symbols: client_lr eta; server_lr 1; directions P; mu mu.

  Departures: central differences, as in the authors' code; the printed lines
  have forward ones. Seeds follow from the round, and are not sent. A task with
  weight decay raises ValueError.

  Source: Li, Ying, Liu, Dong, Yang, ICLR 2025, arXiv:2405.15861, Algorithms 1
  to 3; checked against the authors' code, github.com/ZidongLiu/DeComFL.
  """
  count = local_steps * directions

  def seeds(keys):
    drawn = hashing.seeds(keys.round, count, hashing.ENTRY)
    return drawn.reshape(local_steps, directions, 2)

  def rebuild(slopes, params, *, keys, **_):
    round_seeds = seeds(keys).reshape(count, 2)
    weights = hp.client_lr / directions * slopes.ravel()
    return combine(optax.tree.zeros_like(params), round_seeds, weights)

  return federated(
    _steps(task, hp, seeds, mu),
    aggregation.mean_over_cohort(),
    t.broadcast(),
    t.stateless(rebuild),
    server_optimizers.server_step(hp, server_optimizer, schedule),
    update_template=lambda params: jnp.zeros((local_steps, directions)),
  )


def fedkseed(
  task: Task,
  hp: Hyper,
  *,
  local_steps: fields.Count,
  pool: fields.Count = 4096,
  mu: fields.Positive = 5e-4,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Zeroth-order steps along directions of a pool of seeds, fixed for a run.

  In each of :math:`\tau` steps a client draws one of K seeds, and sends its
  slopes g of `local.zeroth_order`. With :math:`a_j` the sum of those of seed j,
  :math:`w \leftarrow w - \eta_g \eta \sum_j \bar a_j z_j`: :math:`\tau` floats
  up and K floats down, whatever the model.

  Options:
    local_steps: tau.
    pool: K.
    mu: as of `decomfl`.

  Symbols: client_lr eta; server_lr 1; pool K; local_steps tau; mu epsilon.

  Departures: a client's seeds follow from its key, so that it sends slopes
  alone. The server sends the sums of a round; the paper sends those of all
  rounds. No FedKSeed-Pro, and no weight decay, as in `decomfl`.

  Source: Qin, Chen, Qian, Ding, Li, Deng, ICML 2024, arXiv:2312.06353,
  Algorithm 1; checked against a copy of the authors' code.
  """
  all_seeds = lambda keys: hashing.seeds(keys.run, pool, hashing.ENTRY)

  def drawn(keys):
    key = keys_lib.local_key(keys)
    words = hashing.seeds(key, local_steps, hashing.SAMPLE)[:, 0]
    return hashing.bucket(words, pool)

  decode = lambda keys, slopes, _: (
    jnp.zeros(pool).at[drawn(keys)].add(slopes.ravel())
  )
  rebuild = lambda sums, params, *, keys, **_: combine(
    optax.tree.zeros_like(params), all_seeds(keys), hp.client_lr * sums
  )
  seeds = lambda keys: all_seeds(keys)[drawn(keys)][:, None]
  return federated(
    _steps(task, hp, seeds, mu),
    aggregation.mean_over_cohort(decode=decode),
    t.broadcast(),
    t.stateless(rebuild),
    server_optimizers.server_step(hp, server_optimizer, schedule),
    update_template=lambda params: jnp.zeros((local_steps, 1)),
  )


def _steps(task: Task, hp: Hyper, seeds, mu) -> RoundLocal:
  if task.weight_decay:
    raise ValueError(
      f'weight_decay={task.weight_decay} is not supported by slopes; set 0.'
    )
  return zeroth_order(task.loss_fn, hp.client_lr, seeds, mu=mu)
