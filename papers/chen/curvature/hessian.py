"""Hessian-vector products, one batch at a time.

Functions take a loss, (params, batch) -> f32[] (`losses`), its parameters, and
batches: a tree, or a bare array, with leaves [batches, batch, ...]. The Hessian
H is that of the mean over all rows that a 'mask' leaves; the loss is
differentiated one batch at a time. Weight decay is not part of a loss: its
factor adds to every eigenvalue.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fl_sketch.models import losses
import jax
import jax.numpy as jnp
import numpy as np

Tree = Any


class Estimate(NamedTuple):
  """A mean over random probes, and its standard error (NaN for one probe)."""

  value: float
  error: float


def estimate(values: Any) -> Estimate:
  """The mean of independent draws f[probes], and its standard error.

  >>> estimate([1.0, 3.0])
  Estimate(value=2.0, error=1.0)
  """
  values = np.asarray(values, np.float64)
  count = len(values)
  error = np.std(values, ddof=1) / count**0.5 if count > 1 else np.nan
  return Estimate(float(values.mean()), float(error))


def hessian_vector_product(
  loss_fn: losses.LossFn, params: Tree, batches: Any
) -> Callable[[Tree], Tree]:
  """Returns v -> H v, for trees v like `params`: jvp of grad.

  No program ever holds the gradient of more than one batch.

  >>> loss_fn = lambda params, batch: jnp.mean(batch['x'] * params**3)
  >>> product = hessian_vector_product(
  ...   loss_fn, jnp.float32(2), {'x': jnp.array([[1.0, 2.0], [3.0, 6.0]])}
  ... )
  >>> product(jnp.float32(1))  # 6 w mean(x)
  Array(36., dtype=float32)
  """

  def product(v):
    def one(batch):
      return jax.jvp(lambda p: jax.grad(loss_fn)(p, batch), (params,), (v,))[1]

    return _mean_over_rows(one, batches)

  return product


def _mean_over_rows(one: Callable[[Any], Tree], batches: Any) -> Tree:
  """The mean of one(batch) over batches, weighted by unmasked rows."""

  def weighted(batch):
    rows = jnp.float32(len(jax.tree.leaves(batch)[0]))
    if isinstance(batch, Mapping) and 'mask' in batch:
      rows = batch['mask'].astype(jnp.float32).sum()
    return jax.tree.map(lambda x: x * rows.astype(x.dtype), one(batch)), rows

  def add(total, batch):
    return jax.tree.map(jnp.add, total, weighted(batch)), None

  shape = jax.eval_shape(weighted, jax.tree.map(lambda x: x[0], batches))
  zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shape)
  (total, rows), _ = jax.lax.scan(add, zero, batches)
  rows = jnp.where(rows > 0, rows, 1)
  return jax.tree.map(lambda x: x / rows.astype(x.dtype), total)
