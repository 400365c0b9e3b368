"""Losses and metrics of a batch, as pure functions of parameters.

A batch is a dict of arrays with the samples leading, e.g. {'x': u8 or f32
[batch, ...], 'y': i32[batch]}. It may have a 'mask': bool or f32[batch]; rows
with mask 0 are padding. They weigh nothing, but should hold finite numbers.

A loss is a mean over the batch, as the local steps need it. Metrics are sums,
with 'count', so that they add up over batches, clients and shards.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

Batch = Mapping[str, Any]
LossFn = Callable[[Any, Batch], jax.Array]
MetricsFn = Callable[[Any, Batch], dict[str, jax.Array]]
Scale = float | Sequence[float]


def row_mask(batch: Batch, like: jax.Array) -> jax.Array:
  """The mask of a batch in the dtype of `like`; ones without a mask.

  Args:
    batch: with or without 'mask'.
    like: f32[batch].
  """
  if 'mask' not in batch:
    return jnp.ones_like(like)
  return batch['mask'].astype(like.dtype)


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
  """Sum of mask x values without the rows of mask 0, f32[]."""
  return jnp.sum(jnp.where(mask > 0, mask * values, 0))


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
  """Weighted mean over the rows, f32[]; 0 if all are masked.

  >>> masked_mean(jnp.array([1.0, 3.0, 9.0]), jnp.array([1.0, 1.0, 0.0]))
  Array(2., dtype=float32)
  """
  total = mask.sum()
  return masked_sum(values, mask) / jnp.where(total > 0, total, 1)


def preprocess(x: jax.Array, mean: Scale = 0.0, std: Scale = 1.0) -> jax.Array:
  """Normalises uint8 images: (x / 255 - mean) / std.

  What is not uint8 passes as it is: it has been scaled already.

  >>> preprocess(jnp.array([[0, 255]], jnp.uint8), mean=0.5, std=0.5)
  Array([[-1.,  1.]], dtype=float32)

  Args:
    x: u8[batch, ..., channels], or anything else.
    mean: of x / 255: one number or one per channel.
    std: likewise.
  """
  if x.dtype != jnp.uint8:
    return x
  trailing = (1,) * (x.ndim - 1) + (-1,)
  offset, scale = (
    jnp.asarray(s, jnp.float32).reshape(trailing) for s in (mean, std)
  )
  return (x.astype(jnp.float32) / 255 - offset) / scale


def classification(
  module: nn.Module,
  *,
  label_smoothing: float = 0.0,
  mean: Scale = 0.0,
  std: Scale = 1.0,
) -> LossFn:
  """Mean softmax cross-entropy of the module's logits.

  Args:
    module: from x to f32[batch, classes].
    label_smoothing: share of each label that is spread over all classes.
    mean: see `preprocess`.
    std: see `preprocess`.

  Returns:
    (params, batch) -> f32[].
  """
  if not 0 <= label_smoothing < 1:
    raise ValueError(f'Expected 0 <= {label_smoothing=} < 1.')

  def loss_fn(params, batch):
    logits = _logits(module, params, batch['x'], mean, std)
    values = cross_entropy(logits, batch['y'], label_smoothing)
    return masked_mean(values, row_mask(batch, values))

  return loss_fn


def outputs(
  module: nn.Module, *, mean: Scale = 0.0, std: Scale = 1.0
) -> Callable[[Any, jax.Array], Any]:
  """Builds (params, x) -> the module's outputs.

  Args:
    module: of one argument.
    mean: see `preprocess`.
    std: see `preprocess`.
  """
  return lambda params, x: _logits(module, params, x, mean, std)


def _logits(module, params, x, mean, std) -> Any:
  return module.apply({'params': params}, preprocess(x, mean, std))


def cross_entropy(
  logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0
) -> jax.Array:
  """Softmax cross-entropy of each row.

  Args:
    logits: f32[batch, classes].
    labels: i32[batch], or f32[batch, classes]: a share for every class.
    label_smoothing: share of each label that is spread over all classes.

  Returns:
    f32[batch].
  """
  hard = labels.ndim < logits.ndim
  if hard and not label_smoothing:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
  if hard:
    labels = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  targets = optax.smooth_labels(labels, label_smoothing)
  return optax.softmax_cross_entropy(logits, targets)


def classification_metrics(
  module: nn.Module, *, mean: Scale = 0.0, std: Scale = 1.0
) -> MetricsFn:
  """Sums of the cross-entropy, without label smoothing, and of correct labels.

  Args:
    module: from x to f32[batch, classes].
    mean: see `preprocess`.
    std: see `preprocess`.

  Returns:
    (params, batch) -> {'loss', 'accuracy', 'count'}, each an f32[] summed over
    the samples: divide the first two by the last.
  """

  def metrics_fn(params, batch):
    logits = _logits(module, params, batch['x'], mean, std)
    values = cross_entropy(logits, batch['y'])
    mask = row_mask(batch, values)
    right = (logits.argmax(-1) == batch['y']).astype(values.dtype)
    return {
      'loss': masked_sum(values, mask),
      'accuracy': masked_sum(right, mask),
      'count': mask.sum(),
    }

  return metrics_fn


def quadratic() -> LossFn:
  r"""Mean over the batch of :math:`\frac12 \|A_i^T (w - w_i)\|_2^2`.

  Returns:
    (params, batch) -> f32[], for params {'w': f32[d]} and batches {'factor':
    f32[batch, d, rank], 'optimum': f32[batch, d]}.
  """

  def loss_fn(params, batch):
    values = _quadratic_values(params, batch)
    return masked_mean(values, row_mask(batch, values))

  return loss_fn


def quadratic_metrics(params: Any, batch: Batch) -> dict[str, jax.Array]:
  """The loss of `quadratic` as a sum: {'loss': f32[], 'count': f32[]}.

  It has no options, so it is itself what `classification_metrics` returns.

  >>> batch = {'factor': jnp.ones((2, 1, 1)), 'optimum': jnp.zeros((2, 1))}
  >>> sums = quadratic_metrics({'w': jnp.ones(1)}, batch)
  >>> float(sums['loss']), float(sums['count'])
  (1.0, 2.0)

  Args:
    params: {'w': f32[d]}.
    batch: see `quadratic`.
  """
  values = _quadratic_values(params, batch)
  mask = row_mask(batch, values)
  return {'loss': masked_sum(values, mask), 'count': mask.sum()}


def _quadratic_values(params, batch):
  away = params['w'][None] - batch['optimum']
  return jnp.square(jnp.einsum('bd,bdr->br', away, batch['factor'])).sum(-1) / 2
