"""Check that labels, and losses of the user's own, suit a model."""

from collections.abc import Callable, Mapping
import functools
from typing import Any

from fl_sketch.models import losses
from fl_sketch.utils.types import Params
import jax
import jax.numpy as jnp
import numpy as np


def check_labels(
  loss: str, outputs: jax.ShapeDtypeStruct, *parts: Mapping[str, np.ndarray]
):
  """Check labels, of clients and of the test, against outputs of one sample."""
  if loss not in losses.OF_LABELS:
    return
  if 'y' not in parts[0]:
    raise ValueError(f"arrays {list(parts[0])} lack labels 'y'; rename some.")
  labels = [arrays['y'] for arrays in parts]
  y, shape, is_sequence = labels[0], outputs.shape, loss == 'tokens'
  if loss in ('cross_entropy', 'tokens'):
    axes = 1 + is_sequence
    is_integer = np.issubdtype(y.dtype, np.integer)
    if not (is_integer and y.ndim == axes == outputs.ndim - 1):
      raise ValueError(
        f"labels 'y' {y.dtype}{y.shape} and outputs {shape} do not suit "
        f'{loss=}, which takes integers with {axes} axes, and logits with one '
        "more, of classes; set another model or loss ('regression' for "
        'numbers).'
      )
  elif y.shape[1:] != shape[1:]:
    raise ValueError(
      f"labels 'y' have shape {y.shape[1:]} per sample, outputs of the model "
      f'{shape[1:]}; reshape one of them.'
    )
  if loss == 'regression':
    return
  top = 1 if loss == 'multilabel' else shape[-1] - 1
  for y in labels:
    # In sequences any label below 0 is padding; a NaN is in no range.
    wrong = y[~((y <= top) & ((y >= 0) | is_sequence))]
    if wrong.size:
      raise ValueError(
        f"labels 'y' such as {wrong[0]} must be in 0 to {top}, the outputs of "
        'the model.'
      )


def check_kind(
  kind: losses.Kind, apply: Callable[..., Any], params: Params,
  data: Mapping[str, np.ndarray],
):  # fmt: skip
  """Check a function of outputs and batch; its scalars must be means.

  Padding makes weights of samples unequal, so `losses.kind_of` computes scalars
  for each sample alone.
  """
  last = len(next(iter(data.values()))) - 1
  places = np.linspace(0, last, 64).astype(int)
  batch = {k: jnp.asarray(x[places]) for k, x in data.items()}
  # With zeros in the last layer, all samples may have one loss.
  move = lambda x: x + 0.1 * jax.random.normal(jax.random.key(0), x.shape)
  params = jax.tree.map(move, params)

  def values(kind, params, batch):
    return kind(apply(params, losses.inputs(batch), None), batch)

  try:
    shapes = jax.eval_shape(functools.partial(values, kind), params, batch)
  except Exception as e:  # of all types: the function is the user's
    raise ValueError(
      'a loss takes (outputs, batch), and this one fails on them; pass lambda '
      "outputs, batch: f(outputs, batch['y'])."
    ) from e
  if all(x.ndim for x in jax.tree.leaves(shapes)):
    return
  both = kind, losses.kind_of(kind)
  found = [jax.jit(values, static_argnums=0)(k, params, batch) for k in both]
  for x, each in zip(*map(jax.tree.leaves, found), strict=True):
    if not np.allclose(x.mean(), each.mean(), 1e-4, 1e-6, equal_nan=True):
      raise ValueError(
        'The loss returns a scalar that is not the mean over the samples of a '
        'batch; return one value per sample, f32[batch].'
      )
