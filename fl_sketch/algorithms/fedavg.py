"""FedSGD and FedAvg, and its variants FedProx, FedDyn and FedNova."""

from fl_sketch.algorithms import control_variates as cv, server_optimizers
from fl_sketch.local import Task, steps_made
from fl_sketch.rounds import (
  aggregation,
  chain,
  comms,
  robust as robust_lib,
  transforms as t,
)
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import optax


def fedavg(
  task: Task,
  hp: Hyper,
  *,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
  robust: robust_lib.Rule | None = None,
) -> Algorithm:
  r"""Federated averaging (FedAvg, FedOpt), with any server optimizer.

  :math:`w \leftarrow w - \eta_g\,\mathrm{ADA}(\frac1n \sum_c \Delta_c)`. With
  'adam', 'yogi' and 'adagrad' it is FedAdam, FedYogi and FedAdagrad.

  Options:
    server_optimizer: ADA, as of `server_step`.

  Symbols: client_lr eta_l; server_lr eta_g; eps tau; b1, b2 beta_1, beta_2.

  Departures: the adaptive three are printed without bias correction and with
  v_0 = tau^2. optax corrects the bias of Adam and Yogi, starts Yogi's moments
  at 1e-6 and the other two's at 0, and puts Adagrad's eps inside the root.

  Source: McMahan et al., AISTATS 2017, arXiv:1602.05629, Algorithm 1; Reddi et
  al., ICLR 2021, arXiv:2003.00295, Algorithm 2.
  """
  work = task.steps(hp)
  return _averaged(hp, work, server_optimizer, schedule, robust)


def _averaged(hp, work, server_optimizer, schedule, robust=None) -> Algorithm:
  return federated(
    work,
    aggregation.mean_over_cohort(robust=robust),
    t.broadcast(),
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )


def fedsgd(
  task: Task,
  hp: Hyper,
  *,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Federated SGD, :math:`w \leftarrow w - \eta \frac1n \sum_c \nabla f_c(w)`.

  Symbols: server_lr eta; client_lr is not read.

  Departures: none.

  Source: McMahan et al., AISTATS 2017, arXiv:1602.05629, section 2.
  """
  return _averaged(hp, task.gradient(hp), server_optimizer, schedule)


def fedprox(
  task: Task,
  hp: Hyper,
  *,
  mu: fields.NonNegative = 0.01,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""FedAvg whose clients minimise :math:`f_i(u) + \frac\mu2 \|u - w\|^2`.

  Options:
    mu: 0 is FedAvg.

  Symbols: client_lr eta; mu mu.

  Departures: K steps of SGD in place of a gamma-inexact minimiser.

  Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, MLSys 2020,
  arXiv:1812.06127, Algorithm 2.
  """
  return _averaged(hp, task.steps(hp, proximal=mu), server_optimizer, schedule)


def feddyn(
  task: Task, hp: Hyper, *, population: int, alpha: fields.Positive = 0.1
) -> Algorithm:
  r"""Local losses whose linear term makes the optimum a fixed point.

  A client minimises :math:`f_i(u) - \langle g_i, u \rangle + \frac\alpha2 \|u -
  w\|^2`; then :math:`g_i \leftarrow g_i + \alpha \Delta_i`, :math:`h
  \leftarrow h + \alpha \frac1N \sum_{i \in S} \Delta_i` and :math:`w \leftarrow
  w - \eta_g (\bar\Delta + h / \alpha)`.

  Options:
    alpha: of the proximal term.

  Symbols: client_lr of the local solver; alpha alpha; population m; g_i
  :math:`\nabla L_i(\theta_i)`; h h.

  Departures: K steps of SGD, not the minimiser. The server sends d floats.

  Source: Acar, Zhao, Matas, Mattina, Whatmough, Saligrama, ICLR 2021,
  arXiv:2111.04263, Algorithm 1.
  """

  def update(moved, state, params=None, *, comm, weight, **_):
    mean, up = comm.stacked_mean(moved, weight)
    share = comm.total(weight) / population
    add = lambda scale: lambda g, x: g + scale * x
    client = jax.tree.map(add(alpha), state.client.value, moved)
    server = jax.tree.map(add(alpha * share), state.server, mean)
    step = jax.tree.map(add(1 / alpha), mean, server)
    return step, cv.Variates(comms.PerClient(client), server, comms.bill(up))

  return federated(
    task.steps(hp, proximal=alpha),
    chain.exchange(cv.zero_variates, update),
    t.broadcast(),
    optax.scale_by_learning_rate(hp.server_lr),
    correction=cv.less_variate,
  )


def fednova(task: Task, hp: Hyper) -> Algorithm:
  r"""Average the updates of clients, each divided by its number of steps.

  :math:`w \leftarrow w - \eta_g \tau \sum_i p_i \Delta_i / \tau_i` with
  :math:`\tau = \sum_i p_i \tau_i`, the mean number of steps, and the weights
  p_i of the participants. A client makes fewer steps if its samples do not fill
  all batches.

  Symbols: client_lr eta; server_lr eta_g, 1 in the paper; :math:`\tau_i` steps.

  Departures: steps of SGD alone. A client sends its number of steps, a float.

  Source: Wang, Liu, Liang, Joshi, Poor, NeurIPS 2020, arXiv:2007.07481,
  equation 9 and section 5, with the first choice of :math:`\tau_{eff}`.
  """
  steps = task.steps(hp)

  def direction(params, batches, key, correction):
    moved, metrics = steps(params, batches, key, correction)
    made = steps_made(batches, task.local_steps)
    mean = jax.tree.map(lambda x: x / jnp.maximum(made, 1), moved)
    return {'direction': mean, 'steps': made}, metrics

  times = lambda m, _, **__: optax.tree.scale(m['steps'], m['direction'])
  return federated(
    direction,
    aggregation.mean_over_cohort(),
    t.stateless(times),
    t.broadcast(),
    optax.scale_by_learning_rate(hp.server_lr),
    update_template=lambda x: {'direction': x, 'steps': jnp.float32(0)},
  )
