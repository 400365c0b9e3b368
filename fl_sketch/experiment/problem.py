"""Loads the data, model and losses of a config, before partitioning."""

import math
from typing import Any, NamedTuple

from fl_sketch import models
from fl_sketch.data import (
  pixels,
  ragged,
  simulated,
  sources,
  store,
  synthetic,
  text,
)
from fl_sketch.experiment import fields
from fl_sketch.experiment.config import Config
from fl_sketch.models import losses, pretrained
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
  partition: ragged.Partition | None = None  # where the data set defines it


def load(c: Config, data_dir: str | None, draw: bool = True) -> Problem:
  """Loads the problem of a config; see `experiment.build`."""
  if c.dataset == 'quadratics':
    return _quadratics(c)
  dataset = _dataset(c, data_dir)
  is_store = isinstance(dataset, store.Store)
  scale = {'mean': 0.0, 'std': 1.0}
  if c.standardize and dataset.train['x'].dtype == np.uint8:
    sums = pixels.Pixels()
    scale = dataset.scale if is_store else sums.plus(dataset.train['x']).scale
  module = models.make(c.model, dataset.num_classes, **_model_options(c))
  x = dataset.train['x']
  _check_tokens(c, dataset, module)
  tokens = x.dtype if c.dataset in text.NAMES else jnp.float32
  init = lambda: models.init_params(
    module, jax.random.key(c.seed), x.shape[1:], tokens
  )
  # To draw them a program is compiled.
  params = init() if draw or c.pretrained else jax.eval_shape(init)
  if c.pretrained is not None:
    params = pretrained.load(c.pretrained, module, params)
  return Problem(
    data=dataset.train,
    test=evaluation_batches(dataset.test),
    params=params,
    loss_fn=losses.classification(
      module, label_smoothing=c.label_smoothing, **scale
    ),
    # Of the float32 model, whichever way it was trained.
    metrics_fn=losses.classification_metrics(
      module.clone(dtype='float32'), **scale
    ),
    labels=dataset.train['y'],
    scale=scale,
    partition=dataset.partition if is_store else None,
  )


def _check_tokens(c: Config, dataset, module):
  # Looked up in a table, a number past its end is silently its last row's.
  if c.dataset not in text.NAMES:
    return
  top = max(int(part['x'].max()) for part in (dataset.train, dataset.test))
  if top >= module.vocab_size:
    raise ValueError(f'Expected vocab_size={module.vocab_size} > token {top}.')


def _model_options(c: Config) -> dict[str, Any]:
  options: dict[str, Any] = {'dtype': c.compute_dtype}
  if c.model == 'mlp':
    options['widths'] = tuple(c.widths)
  if c.dataset in text.NAMES and c.pretrained is None:  # no more than there is
    options['max_length'] = c.text_length or text.LENGTH
    if c.tokenizer is None:
      options['vocab_size'] = c.vocabulary or text.VOCABULARY
  return options | dict(c.model_options or {})


def _dataset(c: Config, data_dir: str | None) -> sources.Dataset | store.Store:
  if c.dataset == 'simulated':
    return simulated.load(c.population)
  if c.store is not None:
    return store.open(c.store)
  if c.dataset in text.NAMES:
    dataset = text.load(
      c.dataset,
      data_dir,
      length=c.text_length,
      vocabulary=c.vocabulary,
      tokenizer=c.tokenizer,
    )
  else:
    dataset = sources.load(c.dataset, data_dir)
  return dataset._replace(
    train=_sliced('train_slice', c.train_slice, dataset.train),
    test=_sliced('test_slice', c.test_slice, dataset.test),
  )


def _sliced(name, bounds, arrays):
  if bounds is None:
    return arrays
  samples, part = len(arrays['y']), fields.slice_of(bounds)
  if (part.stop or samples) > samples or (part.start or 0) >= samples:
    raise ValueError(f'Expected {name}={bounds!r} in {samples} samples.')
  return {k: x[part] for k, x in arrays.items()}


def _quadratics(c: Config) -> Problem:
  problem = synthetic.quadratics(c.seed, population=c.population)
  return Problem(
    data=problem.data,
    test=evaluation_batches(problem.data),
    params={'w': jnp.asarray(problem.start(c.seed, c.start_scale))},
    loss_fn=losses.quadratic(),
    metrics_fn=losses.quadratic_metrics,
    labels=None,
    scale={},
  )


def evaluation_batches(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Leaves [n, ...] -> [batches, EVAL_BATCH, ...] with a mask.

  >>> evaluation_batches({'y': np.zeros(501)})['mask'].sum(1).tolist()
  [500, 1]
  """
  n = len(next(iter(arrays.values())))
  size = min(n, EVAL_BATCH)
  count = math.ceil(n / size)
  pad = lambda x: np.concatenate([x, np.repeat(x[:1], count * size - n, 0)])
  padded = {k: pad(x) for k, x in arrays.items()}
  padded['mask'] = np.arange(count * size) < n
  return {k: x.reshape((count, size, *x.shape[1:])) for k, x in padded.items()}
