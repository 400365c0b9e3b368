"""The pseudo-Hessian: how gradients depend on the data, and its spectrum.

For a loss F(w, x) of d parameters and m unknown inputs, J = d grad_w F / dx is
f32[d, m]; with a sketch R, read R J f32[b, m]. The pseudo-Hessian of Song et
al. is J^T (Definition 7.1), the pseudo-kernel J J^T, of rank at most min(d, m).

Functions take loss_fn, (params, batch) -> f32[], its params and a batch {'x':
f32[n, ...], ...}. The m numbers under 'x' are the unknowns; labels and all else
are known. `sketch` and `key` are an operator and its hash key. Results have the
dtype of the inputs: float64 under `jax.enable_x64`.

Source: Song et al., arXiv:2210.08371, section 7.2 and appendix J.
"""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.models import losses
from fl_sketch.utils.types import Params
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np


class Spectrum(NamedTuple):
  """The singular values of J, or of R J, at one point."""

  # f64[m], the largest first, zeros after min(equations, m). Those below sqrt(m
  # eps) of the largest are rounding, for the eps of the dtype: they are roots
  # of eigenvalues of J^T J.
  singular_values: np.ndarray
  equations: int  # d, or the real numbers of a table: the rows of the matrix
  # How many are above rounding. Below m, inputs that fit the gradient fill a
  # surface through the true ones.
  rank: int

  @property
  def recovery(self) -> float:
    """The least of m: the data move by at most |noise| / this, to first order.

    It is 0 where there are fewer equations than unknowns.
    """
    return float(self.singular_values[-1])

  @property
  def decrease(self) -> float:
    """Least of as many as equations: theta1 gamma1 of `leakage.pl_decrease`.

    It is 0 where there are fewer unknowns than equations.
    """
    few = self.equations <= self.singular_values.size
    return float(self.singular_values[self.equations - 1]) if few else 0.0


def gradient_of_inputs(
  loss_fn: losses.LossFn,
  params: Params,
  batch: losses.Batch,
  sketch: sketches.Sketch | None = None,
  key: jax.Array | None = None,
) -> Callable[[jax.Array], jax.Array]:
  """Returns the map x -> grad_w F(w, x), or R of it, as f32[equations].

  >>> loss_fn = lambda params, batch: (params * batch['x']).sum() ** 2 / 2
  >>> f = gradient_of_inputs(loss_fn, jnp.ones(2), {'x': jnp.ones(2)})
  >>> f(jnp.array([1.0, 2.0]))
  Array([3., 6.], dtype=float32)

  Raises:
    TypeError: batch['x'] is not of a float type.
    ValueError: a sketch without a key.
  """
  if not jnp.issubdtype(jnp.result_type(batch['x']), jnp.floating):
    raise TypeError(f"batch['x'] must be floats, not {batch['x'].dtype}.")
  if sketch is not None and key is None:
    raise ValueError('A sketch requires a key.')

  def f(x):
    out = jax.grad(loss_fn)(params, {**batch, 'x': x})
    if sketch is not None and key is not None:
      out = sketch.sketch(key, out)
    flat = ravel_pytree(out)[0]
    if jnp.iscomplexobj(flat):
      flat = jnp.concatenate([flat.real, flat.imag])
    return flat

  return f


def spectrum(
  loss_fn: losses.LossFn,
  params: Params,
  batch: losses.Batch,
  sketch: sketches.Sketch | None = None,
  key: jax.Array | None = None,
) -> Spectrum:
  """Computes the singular values of J or R J by the m x m matrix J^T J.

  Takes m products with J and J^T, one after another, and memory for m^2 + d.

  >>> loss_fn = lambda params, batch: (params * batch['x']).sum() ** 2 / 2
  >>> spectrum(loss_fn, jnp.ones(1), {'x': jnp.array([2.0])})
  Spectrum(singular_values=array([4.]), equations=1, rank=1)
  """
  f = gradient_of_inputs(loss_fn, params, batch, sketch, key)
  x = jnp.asarray(batch['x'])
  gram = np.asarray(jax.jit(lambda x: _gram(f, x))(x))
  equations = jax.eval_shape(f, x).size
  noise = np.finfo(gram.dtype).eps * len(gram)
  gram = gram.astype(np.float64)
  values = np.linalg.eigvalsh((gram + gram.T) / 2)[::-1]
  rank = int((values > noise * max(values[0], 0)).sum())
  values = np.sqrt(np.maximum(values, 0))
  values[equations:] = 0
  return Spectrum(values, equations, min(rank, equations))


def _gram(f, x):
  _, times = jax.linearize(f, x)
  transposed = jax.linear_transpose(times, x)
  basis = jnp.eye(x.size, dtype=x.dtype).reshape(-1, *x.shape)
  rows = jax.lax.map(lambda v: transposed(times(v))[0], basis)
  return rows.reshape(x.size, x.size)
