"""The two workloads that federated simulators are compared on.

lenet: LeNet-5 (61,706 parameters), 50 clients, 25 a round, 5 SGD steps of batch
32 over the client's 160 images. logreg: logistic regression (7,850 parameters),
3,000 clients, 600 a round, 20 full-batch gradient steps on 20 samples. FedAvg
with equal weights. The data are noise, the same for every contestant, so that
the norm of the parameters after 5 rounds shows whether the work is equal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import models, rounds, runs
from fl_sketch.runs import config, custom, sampler
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

PARITY_ROUNDS = 5


class Workload(NamedTuple):
  """A workload; `norm`: of the parameters after `PARITY_ROUNDS`."""

  model: str
  shape: tuple[int, ...]
  samples: int
  norm: float
  fields: dict[str, Any]


WORKLOADS = {
  'lenet': Workload(
    model='lenet5', shape=(28, 28, 1), samples=160, norm=15.31181,
    fields=dict(population=50, cohort=25, local_steps=5, batch_size=32),
  ),
  'logreg': Workload(
    model='linear', shape=(784,), samples=20, norm=3.03203,
    fields=dict(population=3000, cohort=600, local_steps=20, batch_size=0),
  ),
}  # fmt: skip

_SRHT = {'sketch': {'kind': 'block_srht', 'size': 19712}}
_CYCLIC = {'kind': 'block_cyclic'}
# What a variant changes of FedAvg.
VARIANTS = {
  'lenet': {
    'fedavg': {}, 'block_cyclic': {'sketch': _CYCLIC | {'size': 5142}},
    'block_srht': _SRHT,
    'one_bit': _SRHT | {'codec': {'kind': 'eden', 'rotate': False}},
  },
  'logreg': {
    'fedavg': {}, 'gram': {'local_work': 'gram'},
    'block_cyclic': {'sketch': _CYCLIC | {'size': 654}},
  },
}  # fmt: skip


def build(name: str, variant: str, total: int) -> runs.Experiment:
  """Build the experiment of one variant of a workload, of `total` rounds."""
  work = WORKLOADS[name]
  changes = VARIANTS[name][variant]
  algorithm = 'iterative_sketching' if 'sketch' in changes else 'fedavg'
  c = config.Config(
    model=work.model, algorithm=algorithm, client_lr=0.05, batch_order='cycle',
    rounds=total, eval_every=total, checkpoint_every=total,
    **work.fields, **changes,
  )  # fmt: skip
  rng, count = np.random.default_rng(0), c.population * work.samples
  x = rng.standard_normal((count, *work.shape), dtype=np.float32) * 0.3
  y = rng.integers(0, 10, count).astype(np.int32)
  exp = classify(c, models.make(work.model, 10), x, y, _parameters)

  def sample(round_index, secret=None):
    """Cohorts that all compared simulators use."""
    del secret  # nothing is private
    rng = np.random.default_rng(1000 + round_index)
    ids = rng.choice(c.population, c.cohort, replace=False).astype(np.int32)
    weight = np.ones(c.cohort, np.float32)
    return sampler.with_batches(c, exp.partition, ids, weight, round_index)

  return exp._replace(sample=sample)


def classify(
  c: config.Config,
  module: nn.Module,
  x: np.ndarray,
  y: np.ndarray,
  params: Callable[[Any], Any] = lambda drawn: drawn,
  loss: str = 'cross_entropy',
) -> runs.Experiment:
  """Build the classification of samples that clients hold equally many of.

  `params`: from those that `module` draws to those of the first round. `loss`:
  'tokens' if `y` has a label for each token.
  """
  parts = zip(np.split(x, c.population), np.split(y, c.population), strict=True)
  split = [{'x': images, 'y': labels} for images, labels in parts]
  problem = custom.problem(module, split, test=split[0], loss=loss)
  problem = problem._replace(params=params(problem.params))
  assert problem.partition is not None
  return runs.assemble(c, problem, problem.partition)


def _parameters(like):
  """Draw kernels in the order of the layers; biases are zero."""
  rng = np.random.default_rng(7)

  def draw(path, leaf):
    if path[-1].key == 'bias':
      return jnp.zeros(leaf.shape)
    scale = np.sqrt(np.prod(leaf.shape[:-1]))
    return jnp.float32(rng.standard_normal(leaf.shape) / scale)

  return jax.tree_util.tree_map_with_path(draw, like)


def norm(state: rounds.FedState) -> float:
  """L2 norm of the parameters, in float64."""
  leaves = jax.tree.leaves(jax.device_get(state.params))
  return float(np.sqrt(sum(np.sum(x.astype(np.float64) ** 2) for x in leaves)))
