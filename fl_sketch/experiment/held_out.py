"""Held-out samples of clients, and local steps before evaluation on them."""

from collections.abc import Callable
from typing import Any

from fl_sketch import local as local_work
from fl_sketch.data import batches, partitions, ragged
from fl_sketch.experiment import published
from fl_sketch.experiment.config import Config
from fl_sketch.experiment.problem import Problem
from fl_sketch.local import optimizers
from fl_sketch.models import lora
from fl_sketch.reporting import metrics
from fl_sketch.rounds.algorithm import Hyper, LossFn, with_hyper
import jax
import jax.numpy as jnp
import numpy as np

_PERSONAL = 2**41  # a use of the seed that no round has


def split(
  c: Config, problem: Problem, partition: partitions.Partition
) -> tuple[partitions.Partition, partitions.Partition | None, Any]:
  """Splits a partition into what clients train on and what they hold out.

  That is a share of their samples, `client_holdout`; or, with `personal_steps`,
  what the clients of a store hold out: a partition of the arrays that come
  third, or None. Raises ValueError if no client holds a sample out.
  """
  if c.client_holdout:
    kept, held_out = ragged.hold_out(partition, c.client_holdout, c.seed)
    if not held_out.samples:
      raise c.refusal(
        f'{{client_holdout}} of {partition.largest} samples, the most that a '
        'client holds, rounds to 0; use a larger share.'
      )
    return kept, held_out, problem.data
  if c.personal_steps is None:
    return partition, None, None
  if problem.held_out is None:
    raise c.refusal(
      '{personal_steps} requires samples that clients hold out; set '
      'client_holdout > 0, or a store that has them.'
    )
  return partition, *problem.held_out


def personalize(c: Config, loss_fn: LossFn) -> Callable[..., Any] | None:
  """Builds (hp, params, batches, key) -> the client's own params, or None.

  By the local steps before its own evaluation; an optimizer begins anew.
  """
  if not c.personal_steps:
    return None
  if (optimizer := optimizers.of(c.local_optimizer)) is not None:
    optimizer = optimizer._replace(keep_state=False)
  options: dict[str, Any] = {'clip': c.client_clip, 'optimizer': optimizer}

  def own(hp, params, batches, key):
    if c.personal_lr is not None:
      hp = hp._replace(client_lr=jnp.float32(c.personal_lr))
    # Kernels that a server changes are no client's to train.
    trained, kernels = lora.split(params)
    loss = lora.beside(with_hyper(loss_fn, hp), kernels)
    task = local_work.Task(loss, c.personal_steps, c.weight_decay, **options)
    moved, _ = task.steps(hp)(trained, batches, key, None)
    return lora.join(kernels, jax.tree.map(jnp.subtract, trained, moved))

  return own


def personal_batches(
  c: Config, partition: partitions.Partition, ids: np.ndarray
) -> np.ndarray:
  """Draws int32[C, steps, batch] for `personalize`, the same at each round."""
  if c.batch_size == 0:
    return batches.full(partition, ids)
  assert c.personal_steps  # else nobody draws
  # Those of 'poisson' are drawn by a secret, which evaluations do not have.
  order = 'replace' if c.batch_order == 'poisson' else c.batch_order
  sizes = c.personal_steps, c.batch_size
  return batches.draw(partition, ids, c.seed, _PERSONAL, *sizes, order)


def check_metric(c: Config, problem: Problem, hyper: Hyper):
  """Refuses `keep_best` of a metric that no evaluation has, or publishes."""
  if c.keep_best is None:
    return
  batch = {k: x[0] for k, x in problem.test.items()}
  metrics_fn = with_hyper(problem.metrics_fn, hyper)
  sums = jax.eval_shape(metrics_fn, problem.params, batch)
  names = [f'test_{k}' for k in sums if k != 'count']
  one = dict.fromkeys(sums, np.ones(1))
  if c.client_holdout or c.personal_steps is not None:
    names += metrics.over_clients(one)
  if c.personal_steps:
    names += metrics.over_clients(one, 'personal')
  metric, whose = metrics.ranked_by(c.keep_best)[0], problem.test_of_clients
  if metric in names and published.is_left_out(c, whose, metric):
    raise c.refusal(
      '{keep_best}: training clients hold the test set, which '
      '{public_metrics} leaves out; remove keep_best, or use other test data.'
    )
  if metric not in names:
    raise c.refusal(f'{{keep_best}} is no metric; use one of {names}.')
