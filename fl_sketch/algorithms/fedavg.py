"""FedAvg: McMahan et al., AISTATS 2017, arXiv:1602.05629, Algorithm 1."""

from fl_sketch import local as local_work
from fl_sketch import transforms as t
from fl_sketch.algorithms import base
import optax


def fedavg(local: local_work.Local, hp: base.Hyper) -> base.Algorithm:
  r"""Federated averaging, :math:`w \leftarrow w - \eta_g \bar\Delta`.

  With ``server_lr = 1`` the server takes the mean of the returned parameters,
  as in the paper. Up and down: d floats.
  """
  return base.federated(
    local,
    t.mean_over_cohort(),
    t.broadcast(),
    optax.scale_by_learning_rate(hp.server_lr),
  )
