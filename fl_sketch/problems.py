"""Data, model and losses: what there is to learn, before clients share it."""

import math
from typing import Any
from typing import NamedTuple

from fl_sketch import losses
from fl_sketch import models
from fl_sketch.config import Config
from fl_sketch.data import sources
from fl_sketch.data import synthetic
import jax
import jax.numpy as jnp
import numpy as np

EVAL_BATCH = 500


class Problem(NamedTuple):
  """A learning problem before it is spread over clients."""

  data: dict[str, np.ndarray]
  test: dict[str, np.ndarray]
  params: Any
  loss_fn: losses.LossFn
  metrics_fn: losses.MetricsFn
  labels: np.ndarray | None
  scale: dict[str, float]  # mean and std of the inputs


def load(c: Config, data_dir: str | None) -> Problem:
  """The problem that a config names; see `experiment.build`."""
  if c.dataset == 'quadratics':
    return _quadratics(c)
  dataset = sources.load(c.dataset, data_dir)
  raw = {'mean': 0.0, 'std': 1.0}
  scale = _scale(dataset.train['x']) if c.standardize else raw
  options = {'widths': tuple(c.widths)} if c.model == 'mlp' else {}
  module = models.make(c.model, dataset.num_classes, **options)
  params = models.init_params(
    module, jax.random.key(c.seed), dataset.train['x'].shape[1:]
  )
  return Problem(
    data=dataset.train,
    test=_evaluation_batches(dataset.test),
    params=params,
    loss_fn=losses.classification(
      module, label_smoothing=c.label_smoothing, **scale
    ),
    metrics_fn=losses.classification_metrics(module, **scale),
    labels=dataset.train['y'],
    scale=scale,
  )


def _scale(pixels):
  """Mean and deviation of uint8 pixels / 255, from exact integer sums."""
  total = squares = 0
  for part in np.array_split(pixels.ravel(), 64):  # squares take memory
    total += int(part.sum(dtype=np.uint64))
    squares += int(np.square(part, dtype=np.uint32).sum(dtype=np.uint64))
  mean = total / pixels.size / 255
  variance = squares / pixels.size / 255**2 - mean**2
  return {'mean': mean, 'std': variance**0.5}


def _quadratics(c: Config) -> Problem:
  problem = synthetic.quadratics(c.seed, population=c.population)
  return Problem(
    data=problem.data,
    test=_evaluation_batches(problem.data),
    params={'w': jnp.asarray(problem.start(c.seed, c.start_scale))},
    loss_fn=losses.quadratic(),
    metrics_fn=losses.quadratic_metrics,
    labels=None,
    scale={},
  )


def _evaluation_batches(arrays):
  """Leaves [n, ...] -> [batches, EVAL_BATCH, ...] with a mask."""
  n = len(next(iter(arrays.values())))
  size = min(n, EVAL_BATCH)
  count = math.ceil(n / size)
  pad = lambda x: np.concatenate([x, np.repeat(x[:1], count * size - n, 0)])
  mask = np.arange(count * size) < n
  return {
    k: pad(x).reshape((count, size, *x.shape[1:]))
    for k, x in (arrays | {'mask': mask}).items()
  }
