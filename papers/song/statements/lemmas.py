"""Constants, averages and lemmas of the proofs of Song et al.

Song, Wang, Yu and Zhang, arXiv:2210.08371, section 4 and appendix F. Arrays are
of NumPy. Names are those of `song`.
"""

from typing import Annotated, NamedTuple

from fl_sketch.utils import checks
import numpy as np

from ...common import conditions
from ...common.conditions import Count, Finite, Form, Numbers, Positive, Squares
from ...common.evaluation import formula
from ...common.statements import statement
from . import convergence

# By operator, a of the printed alpha = a d / b.
_PRINTED = {
  'gaussian': 3, 'srht': 2, 'ams': 2, 'count_sketch': 3, 'sparse_embedding': 2,
}  # fmt: skip
_ADDED = {'gaussian': 1, 'ams': -1, 'count_sketch': -1, 'sparse_embedding': -1}
OPERATORS = tuple(_PRINTED)
Operator = Annotated[str, conditions.choice(OPERATORS)]


@statement('S0-Thm4.2', 'Theorem 4.2', printed='holds', corrected='holds')
@statement('S0-Tab1', 'Table 1', printed='holds', corrected='holds')
def alpha(
  operator: Operator, dimension: Count, size: Count, *, form: Form = 'corrected'
) -> float:
  """The constant of E||R^T R x||^2 <= (1 + alpha) ||x||^2, R of [size, d].

  Printed 2 d / b or 3 d / b, b being the size; exact (d + 1) / b for
  'gaussian', d / b - 1 for 'srht' where d is a power of two, else
  (d - 1) (n - b) / (b (n - 1)), padded to n; (d - 1) / b for the others.

  >>> alpha('srht', 128, 16), alpha('srht', 128, 16, form='printed')
  (7.0, 16.0)
  """
  d, b = dimension, size
  checks.at_most('size', b, d)
  if form == 'printed':
    return _PRINTED[operator] * d / b
  if operator != 'srht':
    return (d + _ADDED[operator]) / b
  n = max(2, 1 << (d - 1).bit_length())
  return (d - 1) * (n - b) / (b * (n - 1))


@statement('S0-Asm3.1', 'Assumption 3.1', printed='holds')
def quadratic_constants(hessians: Finite) -> tuple[float, float]:
  """(mu, L) of clients whose losses are quadratic, f[clients, d, d].

  >>> quadratic_constants(np.array([[[1.0]], [[3.0]]]))
  (1.0, 3.0)
  """
  values = np.linalg.eigvalsh(hessians)
  least, largest = float(values.min()), float(np.abs(values).max())
  rounding = 8 * values.shape[-1] * float(np.finfo(values.dtype).eps)
  checks.at_most('minus the least eigenvalue', -least, rounding * largest)
  return max(least, 0.0), largest


@statement('S0-DefF1-sigma', 'sigma of Definition F.1', printed='holds')
def heterogeneity(gradients: np.ndarray) -> float:
  """sigma^2, the mean of ||grad f_c(w*)||^2 from f[clients, d]; 0 if alike.

  w* is the optimum of f, the mean of the f_c.

  >>> heterogeneity(np.array([[3.0, 0.0], [-3.0, 0.0]]))
  9.0
  """
  return float(np.square(gradients).sum(-1).mean())


class Averages(NamedTuple):
  """Definition F.1, of models f[..., clients, d]."""

  model: np.ndarray  # f[..., d], ubar, the clients' mean
  offset: np.ndarray  # f[..., d], r = ubar - w*
  gradient: np.ndarray  # f[..., d], gbar, the mean of g_c = grad f_c(u_c)
  variance: np.ndarray  # f[...], V, the mean of ||u_c - ubar||^2


@statement('S0-DefF1', 'Definition F.1', printed='holds')
def averages(
  models: np.ndarray, gradients: np.ndarray, optimum: np.ndarray
) -> Averages:
  """The clients' averages, from f[..., clients, d] twice and f[d].

  >>> averages(np.array([[1.0], [3.0]]), np.ones((2, 1)), np.zeros(1)).variance
  np.float64(1.0)
  """
  model = models.mean(-2)
  away = models - model[..., None, :]
  variance = np.square(away).sum(-1).mean(-1)
  return Averages(model, model - optimum, gradients.mean(-2), variance)


@statement('S0-LemF2', 'Lemma F.2', printed='holds')
def unified_update(
  model: np.ndarray,
  gradient: np.ndarray,
  *,
  client_lr: float,
  lost: Numbers = 0.0,
) -> np.ndarray:
  """The next ubar, ubar - eta gbar + eta 1{k = 0} lost, for server_lr = 1.

  lost = (I - R^T R) (sum of the round's gbar) where the next is the first of a
  round; elsewhere nothing is.

  >>> unified_update(np.ones(2), np.ones(2), client_lr=0.5)
  array([0.5, 0.5])
  """
  return model - client_lr * gradient + client_lr * lost


@statement('S0-LemF3', 'Lemma F.3', printed='holds')
def mean_gradient_squared(
  variance: Squares, gap: Finite, *, smoothness: Positive
) -> Numbers:
  """||gbar||^2 <= 2 L^2 V + 4 L gap; gap = f(ubar) - f*.

  >>> mean_gradient_squared(0.5, 2.0, smoothness=1.0)
  9.0
  """
  return 2 * smoothness**2 * variance + 4 * smoothness * gap


@statement('S0-LemF4', 'Lemma F.4', printed='holds')
def inner_product(
  variance: Squares,
  gap: Finite,
  offset_squared: Squares,
  *,
  smoothness: Positive,
  strong_convexity: float = 0.0,
) -> Numbers:
  """<r, gbar> >= gap - (L / 2) V + (mu / 2) ||r||^2; r = ubar - w*.

  >>> inner_product(1.0, 2.0, 4.0, smoothness=1.0, strong_convexity=0.5)
  2.5
  """
  convex = _convexity(strong_convexity, smoothness) / 2 * offset_squared
  return gap - smoothness / 2 * variance + convex


@statement('S0-LemF5', 'Lemma F.5', printed='holds')
def drift(
  gaps: Finite,
  *,
  client_lr: Positive,
  smoothness: Positive,
  heterogeneity: conditions.NonNegative,
  local_steps: Count,
) -> Numbers:
  """A round's sum of V <= 8 eta^2 L K^2 gaps + 4 eta^2 K^3 sigma^2.

  gaps is the sum of f(ubar) - f* over its local steps; f_c are convex.

  >>> number = {'smoothness': 1.0, 'heterogeneity': 2.0, 'local_steps': 1}
  >>> drift(1.0, client_lr=0.125, **number)
  0.25
  """
  eta = convergence.check_step(
    'F5', client_lr, smoothness=smoothness, local_steps=local_steps
  )
  own = 4 * eta**2 * local_steps**3 * heterogeneity
  return 8 * eta**2 * smoothness * local_steps**2 * gaps + own


@statement('S0-LemF6', 'Lemma F.6', printed='holds')
def recursion(
  variance: Squares,
  gap: Finite,
  offset_squared: Squares,
  *,
  client_lr: Positive,
  smoothness: Positive,
  strong_convexity: float = 0.0,
  sketched: Finite = 0.0,
) -> Numbers:
  """E||r'||^2 <= (1 - mu eta) ||r||^2 + 1.5 eta L V - eta gap + sketched.

  For the next step's r'. Where it is the first of a round, sketched is
  `sketching_error` of the round that ends; elsewhere 0.

  >>> recursion(0.0, 1.0, 1.0, client_lr=0.25, smoothness=1.0)
  0.75
  """
  eta = convergence.check_step('F6', client_lr, smoothness=smoothness)
  shrunk = 1 - _convexity(strong_convexity, smoothness) * eta
  shrunk = shrunk * offset_squared
  return shrunk + 1.5 * eta * smoothness * variance - eta * gap + sketched


@formula
def sketching_error(
  variances: Squares,
  gaps: Finite,
  *,
  client_lr: Positive,
  alpha: conditions.NonNegative,
  smoothness: Positive,
  local_steps: Count,
) -> Numbers:
  """eta^2 alpha K (2 L^2 variances + 4 L gaps), sums over a round's steps.

  It bounds E||eta (I - R^T R) (sum of gbar)||^2, the last term of Lemma F.6.

  >>> number = {'alpha': 3.0, 'smoothness': 1.0, 'local_steps': 1}
  >>> sketching_error(0.0, 1.0, client_lr=0.25, **number)
  0.75
  """
  squares = mean_gradient_squared(variances, gaps, smoothness=smoothness)
  return client_lr**2 * alpha * local_steps * squares


def _convexity(strong_convexity, smoothness):
  """The strong convexity, which may be 0."""
  return strong_convexity and convergence.check_convexity(
    strong_convexity, smoothness
  )
