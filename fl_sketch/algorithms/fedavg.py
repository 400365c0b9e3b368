"""The dense algorithms: FedSGD and FedAvg, with any server optimizer."""

from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, robust as robust_lib, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
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
  return federated(
    task.steps(hp),
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
  return federated(
    task.gradient(hp),
    aggregation.mean_over_cohort(),
    t.broadcast(),
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )
