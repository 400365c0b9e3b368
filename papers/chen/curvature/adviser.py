"""Recommends a learning rate for sketched training from the Hessian."""

import functools
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.models import losses
from fl_sketch.utils import checks
import jax
from jax.flatten_util import ravel_pytree
import numpy as np

from . import hessian, spectrum

# Operators of which `sketched_curvature` is exact.
_EXACT = ('ams', 'count_sketch')


class Advice(NamedTuple):
  """The recommendation of `advise`; `str` puts it into words.

  Attributes:
    learning_rate: server_lr * client_lr at most.
    pessimistic: the rule 1 / (local_steps (1 + alpha) L) for any Hessian.
    descent: the learning rate of steepest expected descent in a single round
      at these parameters: below it the loss falls in expectation, but later
      rounds may ask for less. None where no exact second moment is known.
    lambda_max: L, the largest |eigenvalue|.
    trace: of |H|, the sum of all |eigenvalues|.
    intrinsic_dimension: trace over lambda_max, of |H| both.
    size: b, floats in a table; then d and K.
  """

  learning_rate: float
  pessimistic: float
  descent: float | None
  lambda_max: float
  trace: hessian.Estimate
  intrinsic_dimension: float
  size: int
  dimension: int
  local_steps: int

  def __str__(self):
    steps = f', {self.local_steps} local steps' if self.local_steps > 1 else ''
    return (
      f'Take server_lr * client_lr <= {self.learning_rate:.3g}{steps}: the '
      f'largest curvature is {self.lambda_max:.3g}, the intrinsic dimension '
      f'{self.intrinsic_dimension:.3g} of {self.dimension:,}, and a table has '
      f'{self.size:,} floats. Without the spectrum it would be '
      f'{self.pessimistic:.3g}.'
    )


def advise(
  loss_fn: losses.LossFn,
  params: Any,
  batches: Any,
  sketch: int | sketches.Sketch,
  *,
  key: jax.Array,
  local_steps: int = 1,
  steps: int = 32,
  probes: int = 4,
) -> Advice:
  r"""Estimates the largest stable learning rate of sketched descent.

  .. math:: \eta K \le 1 / (\lambda_{\max} + \tfrac{a}{2 b} \mathrm{tr}(H))

  with the coordinate-wise constant a of the operator, which is 2 for embeddings
  of b much below d: that is 1 / (L (1 + I / b)), I the intrinsic dimension of
  Chen et al., arXiv:2411.06770, Definition 3.1. The rule of Song et al.,
  arXiv:2210.08371, Theorem 4.2, has 1 / (L (1 + alpha)), alpha of the order of
  d / b; where that is larger, or a unknown, it is taken instead. On a quadratic
  E y'Hy <= (lambda_max (1 + 1 / b) + tr(H) / b) ||g||^2 for y = R'R g, H >= 0
  and, for one, a CountSketch (`sketched_curvature`): the loss falls in
  expectation up to twice the rate, the 1 / b apart.

  Where H is indefinite its |eigenvalues| count, in lambda_max as in the trace.
  The rule is local: H changes as training goes on, at first mostly upwards.

  Args:
    loss_fn: (params, batch) -> f32[].
    params: where.
    batches: leaves [batches, batch, ...], see `hessian`.
    sketch: the operator; or b, for alpha = d / b and a = 2.
    key: key[], of the probes.
    local_steps: K, local steps of a round.
    steps: of Lanczos, d at most.
    probes: of the trace.

  Raises:
    ValueError: b > d, the Hessian is 0 or not finite, or the operator states
      no alpha.
  """
  checks.count('local_steps', local_steps)
  d = sum(x.size for x in jax.tree.leaves(params))
  b, alpha, a = _promises(sketch, params, d)
  estimate = spectrum.slq(
    loss_fn, params, batches, key, steps=min(steps, d), probes=probes
  )
  dimension = estimate.intrinsic_dimension  # refuses a Hessian of 0
  largest = max(estimate.largest, -estimate.smallest)
  trace = estimate.trace_of(np.abs)
  pessimistic = 1 / ((1 + alpha) * largest)
  rate = 0.0 if a is None else 1 / (largest + a / 2 * trace.value / b)
  descent = None
  if not isinstance(sketch, int) and _is_exact(sketch):
    terms = _at_gradient(loss_fn, params, batches, key, probes)
    square, curvature, diagonal = map(float, terms)
    signed = estimate.trace_of(lambda x: x).value
    bend = sketched_curvature(curvature, square, signed, diagonal, b)
    descent = square / bend / local_steps if bend > 0 else None
  return Advice(
    learning_rate=max(rate, pessimistic) / local_steps,
    pessimistic=pessimistic / local_steps,
    descent=descent,
    lambda_max=largest,
    trace=trace,
    intrinsic_dimension=dimension,
    size=b,
    dimension=d,
    local_steps=local_steps,
  )


def sketched_curvature(
  curvature: float, square: float, trace: float, diagonal: float, size: int
) -> float:
  r"""Returns E y'Hy for y = R'R g, with R a CountSketch or AMS of `size` rows.

  .. math:: g^T H g + (\mathrm{tr}(H) \|g\|^2 + g^T H g
     - 2 \sum_i H_{ii} g_i^2) / b

  Exact for any symmetric H: entries of R'R off its diagonal are uncorrelated,
  with mean 0 and variance 1 / b, and those on it are 1. A Count Sketch of
  several rows, read by their mean, counts all its buckets in b. The arguments
  are g'Hg, ||g||^2, tr H, the sum of H_ii g_i^2, and b.

  >>> sketched_curvature(3.0, 1.0, 4.0, 3.0, 1)  # H = diag(3, 1), g = e_1
  4.0
  """
  return curvature + (trace * square + curvature - 2 * diagonal) / size


def _promises(sketch, params, d):
  """b, alpha, and a or None: of the operator, or of any that has b numbers."""
  if isinstance(sketch, int):
    b = checks.count('sketch', sketch)
    alpha, a = d / b, 2.0
  else:
    promises = sketches.properties(sketch)
    b = promises.floats(params)
    if promises.alpha is None:
      raise ValueError(f'Expected an alpha of {promises.name}.')
    a = promises.coordinate_wise
    alpha, a = promises.alpha(params), a and a(params)
  if b > d:
    raise ValueError(f'Expected a sketch of {b=} <= {d=}.')
  return b, alpha, a


def _is_exact(sketch):
  promises = sketches.properties(sketch)
  return promises.linear and promises.name in _EXACT


@functools.partial(jax.jit, static_argnames=('loss_fn', 'probes'))
def _at_gradient(loss_fn, params, batches, key, probes):
  """||g||^2, g'Hg and an unbiased estimate of the sum of H_ii g_i^2."""
  product = hessian.hessian_vector_product(loss_fn, params, batches)
  flat, unravel = ravel_pytree(hessian.mean_gradient(loss_fn, params, batches))
  flat_product = lambda v: ravel_pytree(product(unravel(v)))[0]

  def one(key):
    z = jax.random.rademacher(key, flat.shape, flat.dtype)
    return (z * flat**2) @ flat_product(z)

  diagonal = jax.lax.map(one, jax.random.split(key, probes)).mean()
  return flat @ flat, flat @ flat_product(flat), diagonal
