"""Losses by kind: of outputs and a batch, the values of each sample.

A kind is a function (outputs, batch) -> {'loss': f32[batch], ...}, whose other
values are metrics. With 'terms', f32[batch], its values are sums of so many
terms of a sample, as of its tokens, and means are over terms.
"""

from collections.abc import Callable, Mapping
import math

from fl_sketch.utils.types import Batch
import jax
import jax.numpy as jnp
import optax

Kind = Callable[[jax.Array, Batch], Mapping[str, jax.Array]]


def softmax_cross_entropy(
  logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0
) -> jax.Array:
  """Return the softmax cross-entropy of each row, f32[batch].

  Of logits f32[batch, classes] and labels i32[batch] or f32[batch, classes];
  the share `label_smoothing` of a label is spread over all classes.
  """
  hard = labels.ndim < logits.ndim
  if hard and not label_smoothing:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
  if hard:
    labels = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  targets = optax.smooth_labels(labels, label_smoothing)
  return optax.softmax_cross_entropy(logits, targets)


def cross_entropy(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return cross-entropy and accuracy of one label a sample.

  Of logits f32[batch, classes] and 'y', i32[batch].
  """
  values = softmax_cross_entropy(logits, batch['y'])
  right = (logits.argmax(-1) == batch['y']).astype(values.dtype)
  return {'loss': values, 'accuracy': right}


def tokens(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return cross-entropy and accuracy of a label a token.

  Of logits f32[batch, length, classes] and 'y', i32[batch, length], below 0
  for padding; 'token_mask', bool[batch, length], may exclude more. Means are
  over tokens; 'bits' is the loss in bits per token.
  """
  y = _of_shape(logits.shape[:-1], batch['y'])
  real = (y >= 0) & (batch.get('token_mask', y >= 0) > 0)
  values = softmax_cross_entropy(logits, jnp.where(real, y, 0))
  total = lambda x: jnp.where(real, x, 0).astype(values.dtype).sum(-1)
  loss, right = total(values), total(logits.argmax(-1) == y)
  return {
    'loss': loss, 'bits': loss / math.log(2), 'perplexity': loss,
    'accuracy': right, 'terms': total(1),
  }  # fmt: skip


def multilabel(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return sigmoid cross-entropy and accuracy of several labels a sample.

  Of logits f32[batch, labels], above 0 where a label is predicted, and 'y',
  [batch, labels], from 0 to 1. 'exact_match' is whether all labels are right.
  """
  y = _of_shape(logits.shape, batch['y']).astype(logits.dtype)
  right = ((logits > 0) == (y > 0.5)).astype(logits.dtype)
  return {
    'loss': optax.sigmoid_binary_cross_entropy(logits, y).mean(-1),
    'accuracy': right.mean(-1),
    'exact_match': right.min(-1),
  }


def regression(outputs: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return the mean squared error of outputs f32[batch, ...], as 'y'."""
  away = outputs - _of_shape(outputs.shape, batch['y'])
  return {'loss': jnp.square(away).reshape(len(away), -1).mean(-1)}


def _of_shape(shape, y):
  """The labels, checked: another shape would be broadcast."""
  if y.shape != shape:
    raise ValueError(f"'y' has shape {y.shape}, not {shape}.")
  return y
