"""Losses and metrics of a batch, as pure functions of parameters.

A batch is a dict of arrays [batch, ...], e.g. 'x' and 'y'. Rows whose 'mask',
bool or f32[batch], is 0 are padding, of finite numbers. A loss is a mean over
the batch; metrics are sums, with 'count', which add up over batches, clients
and shards ('perplexity': of losses; the exponential of the mean is reported).

A kind of loss is a function (outputs, batch) -> {'loss': f32[batch], ...}; its
other values are metrics. It may return the loss alone, or means over the batch.
With 'terms', f32[batch], its values are sums of so many terms of a sample, as
of its tokens, and means are over terms.
"""

from collections.abc import Callable, Mapping, Sequence
import inspect
import math
from typing import Any

from fl_sketch.models.model import as_model
from fl_sketch.utils import registry
from fl_sketch.utils.types import Batch, Params, Tree
import jax
import jax.numpy as jnp
import optax

REGISTRY = registry.Registry('loss', leading=2)
names, register, describe = REGISTRY.names, REGISTRY.register, REGISTRY.describe
Kind = Callable[[jax.Array, Batch], Mapping[str, jax.Array]]
LossFn = Callable[..., jax.Array]  # (params, batch), and a key if it draws
MetricsFn = Callable[[Params, Batch], dict[str, jax.Array]]
Scale = float | Sequence[float]


def softmax_cross_entropy(
  logits: jax.Array, labels: jax.Array, label_smoothing: float = 0.0
) -> jax.Array:
  """Return the softmax cross-entropy of each row, f32[batch].

  Of logits f32[batch, classes] and labels i32[batch] or f32[batch, classes];
  the share `label_smoothing` of a label is spread over all classes.
  """
  if labels.ndim < logits.ndim:
    if not label_smoothing:
      return optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    labels = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  targets = optax.smooth_labels(labels, label_smoothing)
  return optax.softmax_cross_entropy(logits, targets)


@register
def cross_entropy(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return cross-entropy and accuracy; f32[batch, classes], 'y' i32[batch]."""
  values = softmax_cross_entropy(logits, batch['y'])
  correct = (logits.argmax(-1) == batch['y']).astype(values.dtype)
  return {'loss': values, 'accuracy': correct}


@register
def tokens(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return cross-entropy and accuracy of sequences with a label for each token.

  Of logits f32[batch, length, classes] and 'y', i32[batch, length], below 0
  for padding; 'token_mask', bool[batch, length], may exclude more. Means are
  over tokens; 'bits' is the loss in bits per token.
  """
  y = _of_shape(logits.shape[:-1], batch['y'])
  real = (y >= 0) & (batch.get('token_mask', y >= 0) > 0)
  values = softmax_cross_entropy(logits, jnp.where(real, y, 0))
  total = lambda x: jnp.where(real, x, 0).astype(values.dtype).sum(-1)
  loss, correct = total(values), total(logits.argmax(-1) == y)
  return {
    'loss': loss, 'bits': loss / math.log(2), 'perplexity': loss,
    'accuracy': correct, 'terms': total(1),
  }  # fmt: skip


@register
def multilabel(logits: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return sigmoid cross-entropy and accuracy of several labels a sample.

  Of logits f32[batch, labels], above 0 where a label is predicted, and 'y',
  [batch, labels], from 0 to 1. 'exact_match' is whether all labels are right.
  """
  y = _of_shape(logits.shape, batch['y']).astype(logits.dtype)
  correct = ((logits > 0) == (y > 0.5)).astype(logits.dtype)
  return {
    'loss': optax.sigmoid_binary_cross_entropy(logits, y).mean(-1),
    'accuracy': correct.mean(-1),
    'exact_match': correct.min(-1),
  }


@register
def regression(outputs: jax.Array, batch: Batch) -> dict[str, jax.Array]:
  """Return the mean squared error of outputs f32[batch, ...], as 'y'."""
  difference = outputs - _of_shape(outputs.shape, batch['y'])
  return {'loss': jnp.square(difference).reshape(len(difference), -1).mean(-1)}


def _of_shape(shape, y):
  # Another shape would be broadcast.
  if y.shape != shape:
    raise ValueError(f"'y' has shape {y.shape}, not {shape}.")
  return y


OF_LABELS = names()  # whose labels and outputs are known to suit each other


def row_mask(batch: Batch, like: jax.Array) -> jax.Array:
  """Return the mask of a batch, f32[batch] as `like`; ones without a mask."""
  if 'mask' not in batch:
    return jnp.ones_like(like)
  return batch['mask'].astype(like.dtype)


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
  """Return the sum of mask x values over the rows of mask > 0, f32[]."""
  return jnp.sum(jnp.where(mask > 0, mask * values, 0))


def preprocess(x: jax.Array, mean: Scale = 0.0, std: Scale = 1.0) -> jax.Array:
  """Normalise uint8 images, u8[batch, ..., channels]: (x / 255 - mean) / std.

  Other dtypes pass unchanged; `mean` and `std` may have a number per channel.

  >>> preprocess(jnp.array([[0, 255]], jnp.uint8), mean=0.5, std=0.5)
  Array([[-1.,  1.]], dtype=float32)
  """
  if x.dtype != jnp.uint8:
    return x
  trailing = (1,) * (x.ndim - 1) + (-1,)
  offset, scale = (jnp.float32(s).reshape(trailing) for s in (mean, std))
  return (x.astype(jnp.float32) / 255 - offset) / scale


def inputs(batch: Batch, mean: Scale = 0.0, std: Scale = 1.0) -> Tree:
  """Return `preprocess` of 'x', or else of all but 'y' and 'mask'."""
  rest = {k: x for k, x in batch.items() if k not in ('y', 'mask')}
  return jax.tree.map(lambda x: preprocess(x, mean, std), rest.get('x', rest))


def takes_key(loss_fn: Callable[..., Any]) -> bool:
  """Return whether a loss has an argument `key`, by which it draws dropout."""
  return 'key' in inspect.signature(loss_fn).parameters


def keyed(fn: Callable[..., Any]) -> Callable[..., Any]:
  """Return fn as a function (params, batch, key), whether it draws or not."""
  if takes_key(fn):
    return lambda params, batch, key: fn(params, batch, key=key)
  return lambda params, batch, key: fn(params, batch)


def classification(
  model: Any,
  *,
  label_smoothing: float = 0.0,
  mean: Scale = 0.0,
  std: Scale = 1.0,
) -> LossFn:
  """Build the mean cross-entropy of a model: `softmax_cross_entropy`."""
  if not 0 <= label_smoothing < 1:
    raise ValueError(f'{label_smoothing=} must be >= 0 and < 1.')

  def kind(logits, batch):
    return {'loss': softmax_cross_entropy(logits, batch['y'], label_smoothing)}

  return make(model, kind, mean=mean, std=std)[0]


def outputs(
  model: Any, *, mean: Scale = 0.0, std: Scale = 1.0
) -> Callable[[Params, Tree], Tree]:
  """Build (params, x) -> the outputs of a model in evaluation, see `make`."""
  apply = as_model(model).apply
  return lambda params, x: apply(params, inputs({'x': x}, mean, std), None)


def make(
  model: Any, kind: str | Kind, *, mean: Scale = 0.0, std: Scale = 1.0
) -> tuple[LossFn, MetricsFn]:
  """Build the loss and the metrics of a model.

  The model is of any library, see `as_model`; `mean` and `std` are of
  `preprocess`; the kind is one of `names()`, or such a function.
  Returns (params, batch, key=None) -> f32[], which draws nothing without a key,
  and (params, batch) -> sums and 'count'.
  """
  apply, values = as_model(model).apply, kind_of(kind)

  def values_fn(params, batch, key):
    return values(apply(params, inputs(batch, mean, std), key), batch)

  return of_values(values_fn)


def kind_of(kind: str | Kind) -> Kind:
  """Return the function of a loss, by name or as it is, with values of samples.

  Where it returns scalars, means over a batch, it is called for each sample.
  """
  fn = kind if callable(kind) else REGISTRY.entry(kind).factory
  named = lambda x: dict(x) if isinstance(x, Mapping) else {'loss': x}

  def alone(*sample):
    values = named(fn(*jax.tree.map(lambda x: x[None], sample)))
    return {k: jnp.reshape(x, jnp.shape(x)[1:]) for k, x in values.items()}

  def values_fn(outputs, batch):
    values = named(fn(outputs, batch))
    if all(jnp.ndim(x) for x in jax.tree.leaves(values)):
      return values
    batch = {k: x for k, x in batch.items() if k != 'mask'}
    return jax.vmap(alone)(outputs, batch)

  return values_fn


def of_values(values_fn: Callable[..., Any]) -> tuple[LossFn, MetricsFn]:
  """Build the loss and the metrics that `make` returns.

  `values_fn` is (params, batch) -> values of each sample, as of a kind; it may
  draw by an argument `key`, which is None in evaluation.
  """
  with_key = keyed(values_fn)

  def sums(params, batch, key):
    values = dict(with_key(params, batch, key))
    mask = row_mask(batch, values['loss'])
    terms = values.pop('terms', None)
    count = mask.sum() if terms is None else masked_sum(terms, mask)
    return {k: masked_sum(v, mask) for k, v in values.items()}, count

  def loss_fn(params, batch, key=None):
    total, count = sums(params, batch, key)
    return total['loss'] / jnp.where(count > 0, count, 1)

  def metrics_fn(params, batch):
    total, count = sums(params, batch, None)
    return total | {'count': count}

  return loss_fn, metrics_fn


def quadratic() -> tuple[LossFn, MetricsFn]:
  r"""Build loss and metrics of samples :math:`\frac12 \|A_i^T (w - w_i)\|_2^2`.

  Of params {'w': f32[d]} and batches {'factor': f32[batch, d, rank], 'optimum':
  f32[batch, d]}.
  """

  def values(params, batch):
    difference = params['w'][None] - batch['optimum']
    products = jnp.einsum('bd,bdr->br', difference, batch['factor'])
    return {'loss': jnp.square(products).sum(-1) / 2}

  loss_fn, metrics_fn = of_values(values)
  return lambda params, batch: loss_fn(params, batch), metrics_fn
