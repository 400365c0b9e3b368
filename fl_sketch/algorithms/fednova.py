"""FedNova: the mean of directions, for clients of unlike numbers of steps."""

from fl_sketch import local as local_work
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
import jax
import jax.numpy as jnp
import optax


def fednova(task: Task, hp: Hyper) -> Algorithm:
  r"""Averages updates divided by the client's number of steps.

  :math:`w \leftarrow w - \eta_g \tau \sum_i p_i \Delta_i / \tau_i` with
  :math:`\tau = \sum_i p_i \tau_i`, the mean number of steps, and the weights
  p_i of the participants. FedAvg minimises another function where clients make
  unlike numbers of steps: one in which the i-th loss counts :math:`\tau_i`
  times. A client makes fewer steps where its samples do not fill all batches,
  as with ``batch_order='mask'``.

  Args:
    task: loss and local steps of a client.
    hp: hyperparameters.

  Symbols: client_lr eta; server_lr eta_g, 1 in the paper; :math:`\tau_i` steps
  of client i.

  Departures: steps of SGD alone. Beside its direction a client sends one float,
  its number of steps.

  Source: Wang, Liu, Liang, Joshi, Poor, NeurIPS 2020, arXiv:2007.07481,
  equation 9 and section 5, with the first choice of :math:`\tau_{eff}`.
  """
  task.own_loss()  # raises if the steps are given: it could not count them
  steps = task.steps(hp)

  def direction(params, batches, key, drift):
    moved, metrics = steps(params, batches, key, drift)
    made = local_work.steps_made(batches, task.local_steps)
    mean = jax.tree.map(lambda x: x / jnp.maximum(made, 1), moved)
    return {'direction': mean, 'steps': made}, metrics

  times = lambda m, _, **__: jax.tree.map(
    lambda x: m['steps'] * x, m['direction']
  )
  return federated(
    direction,
    aggregation.mean_over_cohort(),
    t.stateless(times),
    t.broadcast(),
    optax.scale_by_learning_rate(hp.server_lr),
    moved=lambda params: {'direction': params, 'steps': jnp.float32(0)},
  )
