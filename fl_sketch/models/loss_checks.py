"""Check that labels, and losses of the user's own, suit a model."""

from collections.abc import Callable, Mapping

from fl_sketch.models import losses
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import numpy as np


def check(
  loss: str | losses.Kind,
  outputs: Tree,
  *parts: Mapping[str, np.ndarray],
  holder: Callable[[np.ndarray], str | None] | None = None,
):
  """Check a loss and labels of clients and test against outputs of a sample.

  `holder` names the client of the first of the samples that are marked.
  """
  if loss not in losses.OF_LABELS:
    kind = loss if callable(loss) else losses.REGISTRY.entry(loss).factory
    return _check_own(kind, outputs, parts[0])
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
        'more, of classes; set another model or loss.'
      )
  elif y.shape[1:] != shape[1:]:
    raise ValueError(
      f"labels 'y' {y.shape[1:]} and outputs {shape[1:]} per sample differ."
    )
  if loss == 'regression':
    return
  top = 1 if loss == 'multilabel' else shape[-1] - 1
  for i, y in enumerate(labels):
    # In sequences any label below 0 is padding; a NaN is in no range.
    wrong = ~((y <= top) & ((y >= 0) | is_sequence))
    if wrong.any():
      marks = np.asarray(wrong.reshape(len(y), -1).any(1))
      who = holder(marks) if holder and i == 0 else None
      raise ValueError(
        f"{f'{who}: ' if who else ''}labels 'y' such as {y[wrong][0]} must be "
        f'in 0 to {top}, the outputs of the model.'
      )


def _check_own(kind: losses.Kind, outputs, data: Mapping[str, np.ndarray]):
  """Check a function of outputs and batch; a scalar must be a mean."""
  places = np.linspace(0, len(next(iter(data.values()))) - 1, 16).astype(int)
  batch = {k: jnp.asarray(x[places]) for k, x in data.items()}
  # Random ones: at initial parameters all samples may have one loss.
  draw = lambda x: jax.random.uniform(jax.random.key(0), (16, *x.shape[1:]))
  arguments = jax.tree.map(draw, outputs), batch
  try:
    shapes = jax.eval_shape(kind, *arguments)
  except Exception as e:  # of all types: the function is the user's
    raise ValueError(
      'a loss takes (outputs, batch), and this one fails on them; pass lambda '
      "outputs, batch: f(outputs, batch['y'])."
    ) from e
  if all(x.ndim for x in jax.tree.leaves(shapes)):
    return
  both = (jax.tree.leaves(f(*arguments)) for f in (kind, losses.kind_of(kind)))
  for x, each in zip(*both, strict=True):
    if not np.allclose(x.mean(), each.mean(), 1e-4, 1e-6, equal_nan=True):
      raise ValueError(
        'The loss returns a scalar that is not the mean over the samples of a '
        'batch; return one value per sample, f32[batch].'
      )
