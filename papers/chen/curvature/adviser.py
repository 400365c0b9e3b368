"""Recommends a learning rate for sketched training from the Hessian."""

from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.models import losses
from fl_sketch.utils import checks
from fl_sketch.utils.types import Params, Tree
import jax
import numpy as np

from . import spectrum


class Advice(NamedTuple):
  """The recommendation of `advise`; `str` puts it into words."""

  learning_rate: float  # server_lr * client_lr at most
  pessimistic: float  # the rule 1 / (local_steps (1 + alpha) L) for any Hessian
  lambda_max: float  # L, the largest |eigenvalue|
  trace: spectrum.Estimate  # of |H|, the sum of all |eigenvalues|
  intrinsic_dimension: float  # trace over lambda_max, of |H| both
  size: int  # b, floats in a table; then d and K
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
  params: Params,
  batches: Tree,
  sketch: int | sketches.Sketch,
  *,
  key: jax.Array,
  local_steps: int = 1,
  steps: int = 32,
  probes: int = 4,
) -> Advice:
  r"""Estimates the largest stable learning rate of sketched descent.

  .. math:: \eta K \le 1 / (\lambda_{\max} + \tfrac{a}{2 b} \mathrm{tr}(H))

  with the coordinate-wise constant a of the operator. For embeddings with b
  much below d, a is 2 and the rate 1 / (L (1 + I / b)), I being the intrinsic
  dimension of Chen et al., arXiv:2411.06770, Definition 3.1. Where 1 / (L (1 +
  alpha)) is larger (Song et al., arXiv:2210.08371, Theorem 4.2), or a unknown,
  it is taken instead. |Eigenvalues| count where H is indefinite. The rule is
  local: H changes in training, at first mostly upwards.

  Args:
    loss_fn: (params, batch) -> f32[].
    params: the point.
    batches: leaves [batches, batch, ...], see `spectrum`.
    sketch: the operator; or b, for alpha = d / b and a = 2.
    key: key[], of the probes.
    local_steps: K, local steps of a round.
    steps: of Lanczos, at most d.
    probes: of the trace.

  Raises:
    ValueError: b > d, H is 0 or not finite, or the operator states no alpha.
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
  rates = max(rate, pessimistic) / local_steps, pessimistic / local_steps
  return Advice(*rates, largest, trace, dimension, b, d, local_steps)


def _promises(sketch, params, d):
  """b, alpha, and a or None: of the operator, or of any that has b numbers."""
  if isinstance(sketch, int):
    b = checks.count('sketch', sketch)
    alpha, a = d / b, 2.0
  else:
    promises = sketch.properties
    b = promises.floats(params)
    if promises.alpha is None:
      raise ValueError(f'The alpha of {promises.name} is not known.')
    a = promises.coordinate_wise
    alpha, a = promises.alpha(params), a and a(params)
  if b > d:
    raise ValueError(f'A sketch of {b=} must be <= {d=}.')
  return b, alpha, a
