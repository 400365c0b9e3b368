"""Das et al.: heterogeneity, constants of a problem, lemmas of local descent.

Lemmas return the right side of an inequality about E steps of gradient descent
w_0, ..., w_E with step size eta on a convex L-smooth f: u = (w_0 - w_E) / eta
is the sum of the gradients on the way. Arrays broadcast. ValueError where a
number is not finite.

Source: Das, Hashemi, Sanghavi and Dhillon, arXiv:2106.07094.
"""

from collections.abc import Callable, Sequence
import math

from fl_sketch.utils import checks
import numpy as np
import numpy.typing as npt
from scipy import optimize

from ...common import privacy_bounds as bounds
from ...common.conditions import Count, NonNegative, Numbers, Positive, Squares
from ...common.statements import statement

rho = statement('S1-Def5', 'Definition 5', printed='order')(bounds.das_rho)
gaussian_sigma = statement('S1-Def2', 'Definition 2', printed='wrong')(
  bounds.gaussian_mechanism_sigma
)
sigma_squared = statement('S1-Thm1', 'Theorem 1', printed='wrong')(
  bounds.das_sigma_squared
)


@statement('S1-Def1', 'Definition 1', printed='holds')
def heterogeneity_gaps(
  clients: Sequence[Callable[[npt.NDArray], tuple[float, npt.NDArray]]],
  w_star: npt.NDArray,
) -> npt.NDArray:
  """Return Delta_i* = f_i(w*) - min f_i >= 0, f64[clients], by L-BFGS.

  clients: w -> (f_i(w), its gradient), f_i convex with a minimum; w_star
  f64[d] minimises their mean. Raises ValueError where no minimum is found.

  >>> bowl = lambda c: lambda w: ((w - c) @ (w - c) / 2, w - c)
  >>> heterogeneity_gaps([bowl(-1.0), bowl(1.0)], np.zeros(1)).tolist()
  [0.5, 0.5]
  """
  return np.array([f(w_star)[0] - _minimum(f, w_star) for f in clients])


def _minimum(f, start):
  how = {'gtol': 1e-9, 'ftol': 0, 'maxiter': 10_000}
  end = optimize.minimize(f, start, jac=True, method='L-BFGS-B', options=how)
  steepest = float(np.abs(end.jac).max())
  if steepest > 1e-6:
    raise ValueError(f'This is no minimum: a gradient is {steepest:.2g}.')
  return end.fun


@statement('S1-Def3', 'Definition 3', printed='holds')
def lipschitz(gradients: npt.ArrayLike) -> float:
  """Return the largest norm of gradients [..., d]: G is at least that.

  >>> lipschitz([[3.0, 4.0], [1.0, 0.0]])
  5.0
  """
  return float(np.linalg.norm(gradients, axis=-1).max())


@statement('S1-Def4', 'Definition 4', printed='holds')
def smoothness(points: npt.ArrayLike, gradients: npt.ArrayLike) -> float:
  """Return max |g_a - g_b| / |w_a - w_b| over pairs: L is at least that.

  Of distinct points [count >= 2, d] and one function's gradients there.

  >>> smoothness([[0.0], [1.0], [3.0]], [[0.0], [2.0], [3.0]])
  2.0
  """
  w, g = np.asarray(points, float), np.asarray(gradients, float)
  checks.at_least('len(points)', len(w), 2)
  a, b = np.triu_indices(len(w), 1)
  apart = np.linalg.norm(w[a] - w[b], axis=1)
  checks.positive('distance of points', float(apart.min()))
  ratio = np.linalg.norm(g[a] - g[b], axis=1) / apart
  return checks.real('smoothness', float(ratio.max()))


@statement('S1-Asm1', 'Assumption 1 (i)', printed='holds')
def curvature(
  gradients: npt.ArrayLike, following: npt.ArrayLike, *, client_lr: Positive
) -> float:
  r"""Return min |g(w - eta g(w)) - g(w)| / (eta |g(w)|): lambda at most that.

  On a quadratic it is at least the least eigenvalue. At most L. Of gradients
  [..., d], none of them 0, and the `following` ones after a step from there.

  No function has a lambda > 0 on R^d and bounded gradients, part (ii): each
  step backwards lengthens the gradient by a fixed factor. Take both constants
  over the region that runs visit.

  >>> curvature([[2.0, 0.0]], [[1.0, 0.0]], client_lr=0.5)
  1.0
  """
  g, after = np.asarray(gradients, float), np.asarray(following, float)
  norm = np.linalg.norm(g, axis=-1)
  checks.positive('norm of a gradient', float(norm.min()))
  moved = np.linalg.norm(after - g, axis=-1) / norm
  return checks.real('curvature', float(moved.min()) / client_lr)


@statement('S1-Lem1', 'Lemma 1', printed='holds')
def distance_bound(
  distance_squared: Squares,
  gradient_squares: Squares,
  gap: Squares,
  *,
  client_lr: Positive,
  smoothness: Positive,
  local_steps: Count,
) -> Numbers:
  """Return |w_0 - w*|^2 - eta sum_t |g_t|^2 / (2 L) + 2 eta E Delta*.

  At least |w_E - w*|^2 for any w*, if eta <= 1 / (2 L). gradient_squares is
  the sum over the steps.

  >>> spec = {'client_lr': 0.5, 'smoothness': 1.0, 'local_steps': 1}
  >>> distance_bound(4.0, 4.0, 0.0, **spec)  # f = w^2 / 2 from 2 ends at 1
  3.0
  """
  eta = checks.at_most('client_lr', client_lr, 1 / (2 * smoothness))
  spread = 2 * eta * local_steps * gap
  return distance_squared - eta / (2 * smoothness) * gradient_squares + spread


@statement('S1-Lem2', 'Lemma 2', printed='holds')
def drift_bounds(
  suboptimality: Squares,
  *,
  client_lr: Positive,
  smoothness: Positive,
  local_steps: Count,
) -> tuple[Numbers, Numbers]:
  """Return 2 eta^2 L E^2 (f(w_0) - min f), and 2 L E^2 (f(w_0) - min f).

  At least |w_0 - w_E|^2, and |u|^2, if eta <= 2 / L.

  >>> drift_bounds(2.0, client_lr=0.5, smoothness=1.0, local_steps=1)
  (1.0, 4.0)
  """
  eta = checks.at_most('client_lr', client_lr, 2 / smoothness)
  norm = 2 * smoothness * local_steps**2 * suboptimality
  return eta**2 * norm, norm


@statement('S1-Lem3', 'Lemma 3', corrected='holds')
def next_gradient_bound(
  gradient_square: Squares,
  difference_square: Squares,
  *,
  client_lr: Positive,
  smoothness: Positive,
) -> Numbers:
  """Return |g_t|^2 - (2 / (eta L) - 1) |g_{t+1} - g_t|^2 >= |g_{t+1}|^2.

  The paper asks for smoothness only; the bound requires a convex f too.

  >>> next_gradient_bound(4.0, 1.0, client_lr=0.5, smoothness=1.0)
  1.0
  """
  factor = 2 / (client_lr * smoothness) - 1
  return gradient_square - factor * difference_square


@statement('S1-Lem4', 'Lemma 4', printed='holds')
def lipschitz_drift_bound(
  gradient_norm: Squares,
  steps: Squares,
  *,
  client_lr: Positive,
  smoothness: Positive,
  local_steps: Count,
) -> Numbers:
  """Return 2 eta t |g_0| >= |w_0 - w_t| for t <= E, eta <= 1 / (2 L E).

  >>> spec = {'client_lr': 0.5, 'smoothness': 1.0, 'local_steps': 1}
  >>> lipschitz_drift_bound(2.0, 1, **spec)
  2.0
  """
  checks.at_most('steps', float(np.max(steps)), local_steps)
  most = 1 / (2 * smoothness * local_steps)
  eta = checks.at_most('client_lr', client_lr, most)
  return 2 * eta * steps * gradient_norm


@statement('S1-Eq65', 'equation (65)', printed='holds')
def least_update_norm(
  gradient_norm: Squares,
  *,
  client_lr: Positive,
  smoothness: Positive,
  local_steps: Count,
) -> Numbers:
  """Return sqrt(7 / 32) E |g_0| <= |u|, if eta L E <= 1/4.

  >>> spec = {'client_lr': 0.125, 'smoothness': 1.0, 'local_steps': 1}
  >>> round(least_update_norm(2.0, **spec), 4)
  0.9354
  """
  most = 1 / (4 * smoothness * local_steps) * (1 + 1e-9)
  checks.at_most('client_lr', client_lr, most)
  return math.sqrt(7 / 32) * local_steps * gradient_norm


@statement('S1-Fact1', 'Fact 1', printed='holds')
def gradient_square_bound(
  suboptimality: Squares, *, smoothness: Positive
) -> Numbers:
  """Return 2 L (f(w) - min f) >= |g(w)|^2.

  >>> gradient_square_bound(2.0, smoothness=1.0)
  4.0
  """
  return 2 * smoothness * suboptimality


@statement('S1-Fact2', 'Fact 2', printed='holds')
def sum_square_bound(vectors: npt.ArrayLike) -> npt.NDArray:
  """Return n sum_i |x_i|^2 >= |sum_i x_i|^2 for vectors [..., n, d].

  >>> float(sum_square_bound([[1.0], [3.0]]))
  20.0
  """
  x = np.asarray(vectors, float)
  return x.shape[-2] * (x**2).sum((-2, -1))


@statement('S1-Fact3', 'Fact 3', printed='holds')
def geometric_sum_bound(x: NonNegative, count: Count) -> float:
  """Return m (1 - 11 (m - 1) x / 24) >= (1 - (1 - x)^m) / x, m x <= 1/4.

  >>> geometric_sum_bound(0.1, 2) >= 1 + 0.9
  True
  """
  checks.at_most('x', x, 1 / (4 * count))
  return count * (1 - 11 * (count - 1) * x / 24)
