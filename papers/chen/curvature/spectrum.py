"""Estimates the Hessian's spectrum by stochastic Lanczos quadrature.

Functions take a loss, (params, batch) -> f32[], its parameters, and batches: a
tree with leaves [batches, batch, ...]. The Hessian H is that of the mean over
all rows that a 'mask' leaves, differentiated one batch at a time, without
weight decay, which would add to every eigenvalue.

m steps hold at most m + 5 vectors of d numbers, and cost m products and 8 m^2 d
operations. The basis is orthogonalised in full, twice: otherwise eigenvalues
that have been found come again.
"""

from collections.abc import Callable, Mapping
import functools
from typing import NamedTuple

from fl_sketch.models import losses
from fl_sketch.utils import checks
from fl_sketch.utils.types import Params, Tree
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
from scipy import linalg


class Estimate(NamedTuple):
  """A mean over random probes, and its standard error (NaN for one probe)."""

  value: float
  error: float


class PowerLaw(NamedTuple):
  """A fit of eigenvalue = c rank^-exponent, and its R^2 on log-log axes."""

  exponent: float
  r_squared: float


class Spectrum(NamedTuple):
  """A Gauss quadrature of the eigenvalue density for each of a few probes."""

  nodes: np.ndarray  # f64[probes, steps], ascending: estimates of eigenvalues
  # f64[probes, steps], the share of all eigenvalues near each node; a probe's
  # sum to 1.
  weights: np.ndarray
  # f64[probes, steps]: an eigenvalue lies within the error of its node (|Hx -
  # node x| of its Ritz vector x), up to rounding.
  errors: np.ndarray
  dimension: int  # number of eigenvalues

  def trace_of(self, f: Callable[[np.ndarray], np.ndarray]) -> Estimate:
    """Tr f(H), the sum of f over all eigenvalues, with f elementwise.

    Unbiased for polynomials f of degree below 2 steps.
    """
    values = self.dimension * (self.weights * f(self.nodes)).sum(1)
    count = len(values)
    error = np.std(values, ddof=1) / count**0.5 if count > 1 else np.nan
    return Estimate(float(values.mean()), float(error))

  @property
  def largest(self) -> float:
    """The largest eigenvalue, from below."""
    return float(self.nodes.max())

  @property
  def smallest(self) -> float:
    """The smallest eigenvalue, from above."""
    return float(self.nodes.min())

  @property
  def intrinsic_dimension(self) -> float:
    """Sum of |eigenvalue| over the largest: Chen et al., Definition 3.1."""
    radius = max(self.largest, -self.smallest)
    if not radius:
      raise ValueError('All eigenvalues are 0.')
    return self.trace_of(np.abs).value / radius

  def density(self, grid: np.ndarray, width: float) -> np.ndarray:
    """The share of eigenvalues per unit, by a Gaussian kernel of this width."""
    checks.positive('width', width)
    away = (grid[:, None] - self.nodes.reshape(1, -1)) / width
    kernel = np.exp(-(away**2) / 2) / (width * np.sqrt(2 * np.pi))
    return kernel @ self.weights.ravel() / len(self.weights)

  def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest nodes of the first probe and their errors, f64[k] each."""
    steps = self.nodes.shape[1]
    if checks.count('k', k) > steps:
      raise ValueError(f'{k=} must be <= {steps=}.')
    largest = slice(-1, -k - 1, -1)
    return self.nodes[0][largest], self.errors[0][largest]


def slq(
  loss_fn: losses.LossFn,
  params: Params,
  batches: Tree,
  key: jax.Array,
  *,
  steps: int,
  probes: int = 1,
) -> Spectrum:
  """Stochastic Lanczos quadrature of the Hessian (Ubaru, Chen, Saad, 2017).

  Each probe starts in a random direction of key[] and takes `steps` products.
  A probe that has exhausted its directions continues in a new orthogonal one
  with weight 0, so that multiple eigenvalues are found more than once.

  With all d steps the ends are L and mu of a quadratic (Song et al.,
  arXiv:2210.08371, Assumption 3.1; Das et al., arXiv:2106.07094, Definition 4);
  otherwise the largest |eigenvalue| bounds L from below. Each `loss_fn` is
  compiled once.

  Raises:
    ValueError: steps > d, or the Hessian is not finite.
  """
  d = sum(x.size for x in jax.tree.leaves(params))
  if checks.count('steps', steps) > d:
    raise ValueError(f'{steps=} must be <= {d=}.')
  keys = jax.random.split(key, checks.count('probes', probes))
  estimates = _tridiagonal(loss_fn, params, batches, keys, steps)
  estimates = [np.float64(x) for x in estimates]
  if not np.isfinite(estimates).all():
    raise ValueError('The Hessian is not finite.')
  parts = [_quadrature(*one) for one in zip(*estimates, strict=True)]
  nodes, weights, errors = map(np.stack, zip(*parts, strict=True))
  return Spectrum(nodes, weights, errors, d)


def power_law(eigenvalues: np.ndarray) -> PowerLaw:
  """Fits log eigenvalue = log c - exponent log rank by least squares.

  >>> power_law(5 * np.arange(1.0, 21) ** -1.5).exponent.round(6)
  np.float64(1.5)

  They are f64[k], positive, at least 3, in any order; rank 1 is the largest.
  """
  values = np.sort(np.asarray(eigenvalues, np.float64))[::-1]
  if len(values) < 3 or not values[-1] > 0:
    raise ValueError(f'At least 3 eigenvalues must be > 0, not {values}.')
  x, y = np.log(np.arange(1, len(values) + 1)), np.log(values)
  x, y = x - x.mean(), y - y.mean()
  slope = x @ y / (x @ x)
  unexplained, total = np.sum((y - slope * x) ** 2), y @ y
  return PowerLaw(-slope, 1 - unexplained / total if total else 1.0)


def hessian_vector_product(
  loss_fn: losses.LossFn, params: Params, batches: Tree
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


def _mean_over_rows(one: Callable[[Tree], Tree], batches: Tree) -> Tree:
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


# TF32 and the like would cost the basis its orthogonality.
@functools.partial(jax.jit, static_argnames=('loss_fn', 'steps'))
@jax.default_matmul_precision('highest')
def _tridiagonal(loss_fn, params, batches, keys, steps):
  """T of each probe: its diagonal and what is beside it, f32[probes, steps].

  The last number beside the diagonal is the norm of the residual.
  """
  product = hessian_vector_product(loss_fn, params, batches)
  flat, unravel = ravel_pytree(params)
  flat_product = lambda v: ravel_pytree(product(unravel(v)))[0]
  return jax.lax.map(lambda key: _lanczos(flat_product, key, flat, steps), keys)


def _lanczos(product, key, like, steps):
  def orthogonal(v, basis):
    for _ in range(2):  # twice is enough: Kahan, in Parlett (1980)
      v = v - (basis @ v) @ basis
    return v

  def random(i):
    return _normal(jax.random.fold_in(key, i), like)

  def step(i, carry):
    basis, diagonal, beside, v, scale = carry
    basis = basis.at[i].set(v)
    w = product(v)
    alpha = v @ w
    w = orthogonal(w, basis)
    beta = jnp.linalg.norm(w)
    scale = jnp.maximum(scale, jnp.abs(alpha) + beta)
    # What rounding leaves of 0: these directions span an invariant subspace.
    done = beta <= 8 * jnp.finfo(like.dtype).eps * scale
    w = jax.lax.cond(done, lambda: orthogonal(random(i + 1), basis), lambda: w)
    beside = beside.at[i].set(jnp.where(done, 0, beta))
    diagonal = diagonal.at[i].set(alpha)
    return basis, diagonal, beside, w / jnp.linalg.norm(w), scale

  numbers, first = jnp.zeros(steps, like.dtype), random(0)
  basis = jnp.zeros((steps, like.size), like.dtype)
  start = basis, numbers, numbers, first / jnp.linalg.norm(first), numbers[0]
  return jax.lax.fori_loop(0, steps, step, start)[1:3]


def _normal(key, like):
  """Draws normal numbers in blocks: all at once take six times their memory."""
  count, block = like.size, 2**12
  keys = jax.random.split(key, -(-count // block))
  draw = lambda key: jax.random.normal(key, (block,), like.dtype)
  return jax.lax.map(draw, keys).ravel()[:count]


def _quadrature(diagonal, beside):
  """Nodes, weights and errors of a Gauss quadrature from its Jacobi matrix."""
  nodes, vectors = linalg.eigh_tridiagonal(diagonal, beside[:-1])
  return nodes, vectors[0] ** 2, beside[-1] * np.abs(vectors[-1])
