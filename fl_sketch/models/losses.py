"""Losses and metrics of a batch, as pure functions of parameters.

A batch is a dict of arrays [batch, ...], e.g. 'x' and 'y'. It may have a
'mask', bool or f32[batch]: rows with mask 0 are padding, of finite numbers.

A loss is a mean over the batch. Metrics are sums, with 'count', and add up over
batches, clients and shards; 'perplexity' is a sum of losses, the exponential of
whose mean is reported.
"""

from collections.abc import Callable, Sequence
import inspect
from typing import Any

from fl_sketch.models import kinds
from fl_sketch.models.model import as_model
from fl_sketch.utils import registry
from fl_sketch.utils.types import Batch, Params, Tree
import jax
import jax.numpy as jnp

# Of losses by name, functions of outputs and a batch as those of `kinds`.
REGISTRY = registry.Registry('loss', leading=2)
register, describe = REGISTRY.register, REGISTRY.describe
names = REGISTRY.names
for _kind in (
  kinds.cross_entropy, kinds.tokens, kinds.multilabel, kinds.regression,
):  # fmt: skip
  register(_kind)
OF_LABELS = names()  # whose labels and outputs are known to suit each other
softmax_cross_entropy = kinds.softmax_cross_entropy
LossFn = Callable[..., jax.Array]  # (params, batch), and a key if it draws
MetricsFn = Callable[[Params, Batch], dict[str, jax.Array]]
Scale = float | Sequence[float]


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

  Other dtypes pass unchanged. `mean` and `std` are of x / 255, one number or
  one per channel.

  >>> preprocess(jnp.array([[0, 255]], jnp.uint8), mean=0.5, std=0.5)
  Array([[-1.,  1.]], dtype=float32)
  """
  if x.dtype != jnp.uint8:
    return x
  trailing = (1,) * (x.ndim - 1) + (-1,)
  of_channels = lambda s: jnp.asarray(s, jnp.float32).reshape(trailing)
  offset, scale = of_channels(mean), of_channels(std)
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
  """Build the mean cross-entropy of a model: `kinds.softmax_cross_entropy`."""
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
  model: Any, kind: str | kinds.Kind, *, mean: Scale = 0.0, std: Scale = 1.0
) -> tuple[LossFn, MetricsFn]:
  """Build the loss and the metrics of a model.

  The model is of any library, see `as_model`; `mean` and `std` are of
  `preprocess`; the kind is one of `names()`, or a function as those of `kinds`.
  Returns (params, batch, key=None) -> f32[], which draws nothing without a key;
  and (params, batch) -> sums and 'count'.
  """
  apply, values = as_model(model).apply, kind_of(kind)

  def values_fn(params, batch, key):
    return values(apply(params, inputs(batch, mean, std), key), batch)

  return of_values(values_fn)


def kind_of(kind: str | kinds.Kind) -> kinds.Kind:
  """Return the function of a loss that is given by name, or as it is."""
  return kind if callable(kind) else REGISTRY.entry(kind).factory


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


def quadratic() -> LossFn:
  r"""Build the mean over a batch of :math:`\frac12 \|A_i^T (w - w_i)\|_2^2`.

  Of params {'w': f32[d]} and batches {'factor': f32[batch, d, rank], 'optimum':
  f32[batch, d]}.
  """
  loss_fn, _ = of_values(_quadratic_values)
  return lambda params, batch: loss_fn(params, batch)


def quadratic_metrics(params: Params, batch: Batch) -> dict[str, jax.Array]:
  """Return sums of the loss of `quadratic`: {'loss': f32[], 'count': f32[]}."""
  return of_values(_quadratic_values)[1](params, batch)


def _quadratic_values(params, batch):
  away = params['w'][None] - batch['optimum']
  products = jnp.einsum('bd,bdr->br', away, batch['factor'])
  return {'loss': jnp.square(products).sum(-1) / 2}
