r"""Plays SAFL in NumPy, float64, and checks the lemmas of Chen et al. on it.

Chen, Li and Banerjee, arXiv:2411.06770, Algorithms 1 and 2 with AMSGrad,
section 3.1 and appendix B. `diagnostics.client_gradients` and
`diagnostics.projection` give `play` a loss and an operator of the library, with
the hash functions that `algorithms.make('safl', ...)` draws.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...common.statements import statement
from .constants import Run

# (local step, models f[..., clients, d]) -> their exact gradients.
Gradients = Callable[[int, np.ndarray], np.ndarray]
# (round, f[..., d]) -> R^T R of it.
Project = Callable[[int, np.ndarray], np.ndarray]


class Trajectory(NamedTuple):
  """A run of T rounds; the values of a round are those at its end.

  Attributes:
    params: f64[T + 1, d], x_0 to x_T.
    clean: f64[T, d], what the clients moved on average, without the noise.
    estimates: f64[T, d], R^T R of what they moved.
    momentum: f64[T, d], m_t.
    second: f64[T, d], the largest second moments so far.
  """

  params: np.ndarray
  clean: np.ndarray
  estimates: np.ndarray
  momentum: np.ndarray
  second: np.ndarray


def play(
  run: Run,
  gradients: Gradients,
  project: Project,
  start: np.ndarray,
  *,
  b2: float = 0.999,
  noise: Callable[[int, int], np.ndarray] | None = None,
  rate: Callable[[int], float] | None = None,
) -> Trajectory:
  """Plays SAFL with AMSGrad, without bias correction.

  >>> halves = lambda step, models: models
  >>> run = Run(1, 1, 2, 0.5, 0.1, 1.0, 1, 1, b1=0.0)
  >>> trajectory = play(run, halves, lambda r, x: x, np.ones(1), b2=0.0)
  >>> trajectory.params.ravel().round(4).tolist()
  [1.0, 0.9667, 0.9344]

  Args:
    run: its numbers.
    gradients: of the clients' losses.
    project: the operator of a round.
    start: f[d], x_0.
    b2: beta_2.
    noise: (round, local step) -> f[clients, d], added to the gradients.
    rate: round -> client_lr; None is that of `run`.
  """
  x = np.asarray(start, np.float64)
  m = v = largest = np.zeros_like(x)
  params, rows = [x], []
  for r in range(run.rounds):
    eta = run.client_lr if rate is None else rate(r)
    u, clean = np.repeat(x[None], run.clients, axis=0), 0.0
    for k in range(run.local_steps):
      exact = gradients(k, u)
      clean += eta * exact.mean(0)
      u = u - eta * (exact if noise is None else exact + noise(r, k))
    estimate = project(r, (x[None] - u).mean(0))
    m = run.b1 * m + (1 - run.b1) * estimate
    v = b2 * v + (1 - b2) * estimate**2
    largest = np.maximum(largest, v)
    x = x - run.server_lr * m / (np.sqrt(largest) + run.eps)
    params.append(x)
    rows.append((clean, estimate, m, largest))
  return Trajectory(np.stack(params), *map(np.stack, zip(*rows, strict=True)))


def auxiliary(params: np.ndarray, b1: float) -> np.ndarray:
  """z_t = x_t + b1 / (1 - b1) (x_t - x_{t-1}), f64[T + 1, d]; z_0 = x_0.

  >>> auxiliary(np.array([[0.0], [1.0]]), 0.5).tolist()
  [[0.0], [2.0]]
  """
  before = np.concatenate([params[:1], params[:-1]])
  return params + b1 / (1 - b1) * (params - before)


@statement('S4-Lem3.3', 'Lemma 3.3 = B.1, of z', printed='holds')
def auxiliary_step(run: Run, trajectory: Trajectory) -> np.ndarray:
  r"""z_{t+1} - z_t from estimates and moments, f64[T, d].

  .. math:: -\kappa \hat V_t^{-1/2} R^T R \Delta_t + \frac{\kappa b_1}{1 - b_1}
     (\hat V_{t-1}^{-1/2} - \hat V_t^{-1/2}) m_{t-1}

  >>> run = Run(1, 1, 2, 0.5, 0.1, 1.0, 1, 1, b1=0.5)
  >>> trajectory = play(run, lambda k, u: u, lambda r, x: x, np.ones(1))
  >>> z = auxiliary(trajectory.params, run.b1)
  >>> bool(np.allclose(np.diff(z, axis=0), auxiliary_step(run, trajectory)))
  True
  """
  now, before = inverse_roots(run, trajectory)
  lag = np.concatenate([np.zeros_like(now[:1]), trajectory.momentum[:-1]])
  pull = run.b1 / (1 - run.b1) * (before - now) * lag
  return run.server_lr * (pull - now * trajectory.estimates)


def inverse_roots(
  run: Run, trajectory: Trajectory
) -> tuple[np.ndarray, np.ndarray]:
  """The diagonals of V_t^-1/2 and of V_{t-1}^-1/2, f64[T, d] each.

  >>> run = Run(1, 1, 1, 0.5, 0.1, 1.0, 1, 1)
  >>> trajectory = play(run, lambda k, u: u, lambda r, x: x, np.ones(1), b2=0.0)
  >>> [x.round(3).tolist() for x in inverse_roots(run, trajectory)]
  [[[0.667]], [[1.0]]]
  """
  now = 1 / (np.sqrt(trajectory.second) + run.eps)
  return now, np.concatenate([np.full_like(now[:1], 1 / run.eps), now[:-1]])


class Monitored(NamedTuple):
  """The quantities that the lemmas bound, the largest of all rounds.

  Attributes:
    projection: of |<V_t^-1/2 m_t, v_j>|, Lemma 3.4.
    preconditioner: of ||g||^2 / (g^T V_{t-1}^-1/2 g), Lemma 3.5.
    martingale: of the absolute partial sums, Lemma 3.6.
    gradient_squared: of ||grad L(x_t)||^2, Theorem 4.4.
    mean: of ||grad L(x_t)||^2 over all rounds, not its largest.
  """

  projection: float
  preconditioner: float
  martingale: float
  gradient_squared: float
  mean: float


def monitor(
  run: Run,
  trajectory: Trajectory,
  gradients: np.ndarray,
  basis: np.ndarray | None = None,
) -> Monitored:
  """Measures the quantities of the lemmas on a run.

  >>> run = Run(1, 1, 2, 0.5, 0.1, 1.0, 1, 1)
  >>> trajectory = play(run, lambda k, u: u, lambda r, x: x, np.ones(1))
  >>> monitor(run, trajectory, trajectory.params[:-1]).gradient_squared
  1.0

  Args:
    run: its numbers.
    trajectory: of `play`.
    gradients: f[T, d], of L at x_0 to x_{T-1}.
    basis: f[d, d], a v_j a column; None is the coordinate axes.
  """
  now, before = inverse_roots(run, trajectory)
  step = now * trajectory.momentum
  along = step if basis is None else step @ basis
  squares = np.square(gradients)
  errors = gradients * before * (trajectory.estimates - trajectory.clean)
  norms, weighted = squares.sum(1), (squares * before).sum(1)
  return Monitored(
    projection=float(np.abs(along).max()),
    preconditioner=float((norms / np.maximum(weighted, 1e-300)).max()),
    martingale=float(np.abs(errors.sum(1).cumsum()).max()),
    gradient_squared=float(norms.max()),
    mean=float(norms.mean()),
  )


@statement(
  'S4-Lem3.3-descent', 'Lemma 3.3 = B.1, of the loss', corrected='holds'
)
def descent_slack(
  run: Run,
  trajectory: Trajectory,
  losses: np.ndarray,
  gradients: np.ndarray,
  curvature: np.ndarray,
) -> np.ndarray:
  r"""Slack of Lemma 3.3 over L(z_{t+1}) - L(z_t), f64[T] >= 0.

  With u = z_{t+1} - z_t it is at most :math:`\langle \nabla L(x_t), u \rangle +
  \|z_t - x_t\|_A \|u\|_A + \|u\|_A^2 / 2`, where :math:`-A \preceq \nabla^2 L
  \preceq A`: the printed lemma leaves out what it calls less important terms,
  without which it fails.

  >>> run = Run(1, 1, 2, 0.5, 0.1, 1.0, 1, 1)
  >>> path = play(run, lambda k, u: u, lambda r, x: x, np.ones(1))
  >>> z, x = auxiliary(path.params, run.b1).ravel(), path.params[:-1]
  >>> slack = descent_slack(run, path, z**2 / 2, x, np.ones(1))
  >>> bool((slack > -1e-12).all())
  True

  Args:
    run: its numbers.
    trajectory: of `play`.
    losses: f[T + 1], of L at z_0 to z_T (`auxiliary`).
    gradients: f[T, d], of L at x_0 to x_{T-1}.
    curvature: f[d], the diagonal A.
  """
  z = auxiliary(trajectory.params, run.b1)
  u, away = np.diff(z, axis=0), (z - trajectory.params)[:-1]
  length = lambda x: np.sqrt((curvature * x**2).sum(1))
  bound = (gradients * u).sum(1) + length(away) * length(u) + length(u) ** 2 / 2
  return bound - np.diff(losses)
