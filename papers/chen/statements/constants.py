"""The terms of Chen et al.'s bounds: a run, factors, a schedule.

Chen, Li and Banerjee, arXiv:2411.06770, sections 3 and 4; symbols as in
`Constants`, G the gradient_bound and delta the probability of failure. The
printed bounds hold for a `size` above which their distortions fall below 1; the
corrected ones take the tail of the operator's family from `tails`.
"""

from collections.abc import Callable, Iterable
import math
from typing import Annotated, Any, NamedTuple

from fl_sketch.utils import checks

from ...common import conditions, tails
from ...common.conditions import Count, Form, Fraction, NonNegative, Positive
from ...common.evaluation import formula
from ...common.statements import statement

SQUARE = 1 + math.log(2)  # E||xi||^2 <= SQUARE sigma^2 in Assumption 3


class Constants(NamedTuple):
  r"""SAFL with AMSGrad on the server, and the loss's constants in its bounds.

  The corrected bounds ask for a diagonal A with :math:`-A \preceq \nabla^2 L(x)
  \preceq A`, tr A = L `intrinsic_dimension` and no entry above L: the
  preconditioner is diagonal as well, and depends on the sketch. The noise of a
  gradient has Pr[its length >= t] <= 2 exp(-t^2 / noise^2).
  """

  dimension: Count
  size: Count
  rounds: Count
  client_lr: Positive
  server_lr: Positive
  eps: Positive
  smoothness: Positive
  intrinsic_dimension: conditions.AtLeastOne
  clients: Count = 1
  local_steps: Count = 1
  b1: conditions.Share = 0.9
  noise: NonNegative = 0.0
  family: Annotated[str, conditions.choice(tails.FAMILIES)] = 'gaussian'

  def check(self) -> None:
    """Raises ValueError if the intrinsic dimension is above the dimension."""
    trace = self.intrinsic_dimension
    checks.at_most('intrinsic_dimension', trace, self.dimension)

  def moved(self, gradient: float) -> float:
    """Bounds a client's pseudo-gradient: eta K G."""
    return self.client_lr * self.local_steps * gradient

  def longest(self, gradient: float, delta: float) -> float:
    """A bound on all C K T stochastic gradients, with probability 1 - delta."""
    count = self.clients * self.local_steps * self.rounds
    return gradient + self.noise * math.sqrt(math.log(2 * count / delta))

  def entry(self, delta: float) -> float:
    """1 + `tails.tail` at every coordinate in every round, of unit vectors."""
    each = delta / (self.dimension * self.rounds)
    return 1 + tails.tail(self.family, self.dimension, self.size, each)


@statement('S4-Def3.1', 'Definition 3.1', printed='holds')
def intrinsic_dimension(eigenvalues: Iterable[float]) -> float:
  """I, the sum of |eigenvalues| over the largest.

  >>> intrinsic_dimension([4.0, -2.0, 1.0, 0.0])
  1.75
  """
  sizes = [abs(checks.real('eigenvalue', x)) for x in eigenvalues]
  checks.count('number of eigenvalues', len(sizes))
  return sum(sizes) / checks.positive('largest eigenvalue', max(sizes))


@statement('S4-Asm3', 'Assumption 3', printed='holds')
def sub_gaussian_scale(norms: Iterable[float]) -> float:
  """The least sigma with share(norm >= t) <= 2 exp(-t^2 / sigma^2) for all t.

  An estimate from samples of ||noise of a gradient||.

  >>> round(sub_gaussian_scale([1.0, 1.0, 1.0]), 3)
  1.201
  """
  ordered = sorted(checks.at_least('norm', x, 0) for x in norms)
  n = checks.count('number of norms', len(ordered))
  return max(
    x / math.sqrt(math.log(2 * n / (n - i))) for i, x in enumerate(ordered)
  )


@formula
def distortion(
  run: Constants, delta: Fraction, *, d: int = 1, rounds: int = 0
) -> float:
  """The printed log(C K d^i T^j / delta)^1.5 / sqrt(b), i `d`, j `rounds`.

  J2 of Corollary 1 is that of i = 1 and j = 2.

  >>> resnet = Constants(42_000_000, 400_000, 100, 0.1, 0.1, 1e-3, 1, 1, 5)
  >>> round(distortion(resnet, 0.01, d=2, rounds=2), 3)
  0.568
  """
  log = math.log(run.clients * run.local_steps / delta)
  log += d * math.log(run.dimension) + rounds * math.log(run.rounds)
  return log**1.5 / math.sqrt(run.size)


@statement('S4-Lem3.4', 'Lemma 3.4 = B.2', printed='wrong', corrected='holds')
def projection(
  run: Constants,
  gradient_bound: NonNegative,
  *,
  delta: Fraction,
  spread: conditions.AtLeastOne = 1.0,
  form: Form = 'corrected',
) -> float:
  r"""Bounds every :math:`|\langle \hat V_t^{-1/2} m_t, v_j \rangle|`.

  Printed (1 + log(C K d / delta)^1.5 / sqrt(b)) eta K G / epsilon, for the
  eigenvectors v_j of the Hessian of that round, without the gradients' noise,
  and as if V_t and v_j were independent of the sketch. Corrected: (1 + tail)
  eta K (G + noise) `spread` / epsilon for fixed v_j, `spread` being the largest
  l1 norm of one: 1 for coordinate axes, at most sqrt(d).

  >>> run = Constants(2**20, 2**16, 100, 0.1, 0.1, 1e-2, 1, 2)
  >>> round(projection(run, 1.0, delta=0.1, form='printed'), 2)
  12.54
  """
  g = gradient_bound
  if form == 'printed':
    return (1 + distortion(run, delta)) * run.moved(g) / run.eps
  largest = run.entry(delta / 2) * run.moved(run.longest(g, delta / 2))
  return largest * spread / run.eps


@statement('S4-Lem3.5', 'Lemma 3.5', printed='wrong', corrected='holds')
def preconditioner(
  run: Constants,
  gradient_bound: NonNegative,
  *,
  delta: Fraction,
  form: Form = 'corrected',
) -> float:
  r"""M of :math:`g^T \hat V_t^{-1/2} g \ge \|g\|^2 / M`, for every g and t.

  Printed sqrt(1 + log(C K d^2 T^2 / delta)^1.5 / sqrt(b)) eta K G + epsilon,
  the inverse of J1: of a mean of squares, where Algorithm 2 squares the mean,
  and without the noise. Corrected: (1 + tail) eta K (G + noise) + epsilon.

  >>> run = Constants(2**20, 2**16, 100, 0.1, 0.1, 1e-2, 1, 2)
  >>> round(preconditioner(run, 1.0, delta=0.1, form='printed'), 3)
  0.15
  """
  if form == 'corrected':
    return run.eps * (1 + projection(run, gradient_bound, delta=delta))
  factor = math.sqrt(1 + distortion(run, delta, d=2, rounds=2))
  return factor * run.moved(gradient_bound) + run.eps


@statement('S4-Lem3.6', 'Lemma 3.6', printed='wrong', corrected='holds')
def martingale(
  run: Constants,
  gradient_bound: NonNegative,
  *,
  delta: Fraction,
  nu: Positive = 1.0,
  form: Form = 'corrected',
) -> float:
  r"""Bounds the sum over rounds of the errors by sketches and gradient noise.

  The terms are :math:`\langle \nabla L(x_t), \hat V_{t-1}^{-1/2} (R^T R
  \Delta_t - \bar\Delta_t) \rangle`; Delta_t is the clients' mean update, bar
  Delta_t the same without noise. Printed nu eta K sqrt(T) (l G^2 + sigma
  sqrt(log(2 T / delta))) / epsilon with l = log(C K T d / delta)^1.5 / sqrt(b),
  up to a probability of exp(-Omega(nu^2)): the second term lacks G. The print
  sums absolute values of the terms, which grow like T; this is the absolute
  value of their sum, as in its proof. Corrected, at every t <= T, by
  Kolmogorov's inequality: sqrt(variance / delta).

  >>> run = Constants(2**20, 2**16, 100, 0.1, 0.1, 1e-2, 1, 2)
  >>> round(martingale(run, 1.0, delta=0.1), 2)
  1.75
  """
  g = gradient_bound
  steps = run.moved(math.sqrt(run.rounds)) / run.eps
  if form == 'corrected':
    return steps * g * deviation_of_round(run, g) / math.sqrt(delta)
  sketched = distortion(run, delta, rounds=1) * g**2
  noise = run.noise * math.sqrt(math.log(2 * run.rounds / delta))
  return nu * steps * (sketched + noise)


def deviation_of_round(run: Constants, gradient: float) -> float:
  """The root of E<R^T R D_t - bar D_t, h>^2 at most, of a unit h, over eta K.

  a / b times the mean square of what was sketched, and that of the noise.

  >>> deviation_of_round(Constants(4, 2, 1, 0.1, 0.1, 1.0, 1.0, 1.0), 3.0)
  3.0
  """
  noise = run.noise * math.sqrt(SQUARE / (run.local_steps * run.clients))
  a = tails.coordinate_wise(run.family, run.dimension, run.size)
  return math.sqrt(a / run.size * (gradient + noise) ** 2 + noise**2)


@statement('S4-LemB4', 'Lemma B.4', printed='holds')
def momentum_factor(b1: conditions.Share) -> float:
  """J of Lemma B.4: |m_t| <= J c eta_t if |update| <= c eta_t in every round.

  (1 - b1) / (1 - b1 sqrt(1 + 1 / T0)), with T0 = ceil(1 / (1 - b1^2)), under
  `client_schedule`.

  >>> round(momentum_factor(0.9), 3)
  3.586
  """
  return (1 - b1) / (1 - b1 * math.sqrt(1 + 1 / first_round(b1)))


def first_round(b1: float) -> int:
  """T0 = ceil(1 / (1 - b1^2)) of Theorem B.3.

  >>> first_round(0.9)
  6
  """
  return math.ceil(1 / (1 - conditions.zero_or_fraction('b1', b1) ** 2))


def client_schedule(local_steps: int, b1: float = 0.9) -> Callable[[Any], Any]:
  """The schedule of Theorem B.3: round r = 0, 1, ... has eta of t = r + 1.

  eta_t = 1 / (sqrt(t + T0) K), of an int or int32[]. `rounds.run_round` takes
  ``lambda hp, r: hp._replace(client_lr=rate(r))``.

  >>> rate = client_schedule(local_steps=5)
  >>> round(rate(2), 4)
  0.0667
  """
  steps = checks.count('local_steps', local_steps)
  offset = first_round(b1) + 1
  return lambda r: 1 / (steps * (r + offset) ** 0.5)
