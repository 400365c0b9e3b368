r"""The lemmas of Chen et al. on the steps of a run of SAFL.

Chen, Li and Banerjee, arXiv:2411.06770, Algorithms 1 and 2 with AMSGrad,
section 3.1 and appendix B.
"""

from typing import NamedTuple

import numpy as np

from ...common.statements import statement
from .constants import Constants


class Trajectory(NamedTuple):
  """A run of T rounds; the values of a round are those at its end."""

  params: np.ndarray  # f64[T + 1, d], x_0 to x_T
  # f64[T, d], what the clients moved on average, without the noise.
  clean: np.ndarray
  estimates: np.ndarray  # f64[T, d], R^T R of what they moved
  momentum: np.ndarray  # f64[T, d], m_t
  second: np.ndarray  # f64[T, d], the largest second moments so far


def auxiliary(params: np.ndarray, b1: float) -> np.ndarray:
  """z_t = x_t + b1 / (1 - b1) (x_t - x_{t-1}), f64[T + 1, d]; z_0 = x_0.

  >>> auxiliary(np.array([[0.0], [1.0]]), 0.5).tolist()
  [[0.0], [2.0]]
  """
  before = np.concatenate([params[:1], params[:-1]])
  return params + b1 / (1 - b1) * (params - before)


@statement('S4-Lem3.3', 'Lemma 3.3 = B.1, of z', printed='holds')
def auxiliary_step(run: Constants, trajectory: Trajectory) -> np.ndarray:
  r"""z_{t+1} - z_t from estimates and moments, f64[T, d].

  .. math:: -\kappa \hat V_t^{-1/2} R^T R \Delta_t + \frac{\kappa b_1}{1 - b_1}
     (\hat V_{t-1}^{-1/2} - \hat V_t^{-1/2}) m_{t-1}

  >>> run = Constants(1, 1, 1, 0.5, 0.1, 1.0, 1, 1, b1=0.5)
  >>> one = np.ones((1, 1))
  >>> x = np.array([[1.0], [29 / 30]])
  >>> auxiliary_step(run, Trajectory(x, one, one, one / 2, one / 4)).round(4)
  array([[-0.0667]])
  """
  now, before = inverse_roots(run, trajectory)
  lag = np.concatenate([np.zeros_like(now[:1]), trajectory.momentum[:-1]])
  pull = run.b1 / (1 - run.b1) * (before - now) * lag
  return run.server_lr * (pull - now * trajectory.estimates)


def inverse_roots(
  run: Constants, trajectory: Trajectory
) -> tuple[np.ndarray, np.ndarray]:
  """The diagonals of V_t^-1/2 and of V_{t-1}^-1/2, f64[T, d] each."""
  now = 1 / (np.sqrt(trajectory.second) + run.eps)
  return now, np.concatenate([np.full_like(now[:1], 1 / run.eps), now[:-1]])


@statement(
  'S4-Lem3.3-descent', 'Lemma 3.3 = B.1, of the loss', corrected='holds'
)
def descent_slack(
  run: Constants,
  trajectory: Trajectory,
  losses: np.ndarray,
  gradients: np.ndarray,
  curvature: np.ndarray,
) -> np.ndarray:
  r"""Slack of Lemma 3.3 over L(z_{t+1}) - L(z_t), f64[T] >= 0.

  With u = z_{t+1} - z_t it is at most :math:`\langle \nabla L(x_t), u \rangle +
  \|z_t - x_t\|_A \|u\|_A + \|u\|_A^2 / 2`, where :math:`-A \preceq \nabla^2 L
  \preceq A`; the printed lemma leaves out the second-order terms and fails.
  Losses are f[T + 1], of L at z_0 to z_T (`auxiliary`), gradients f[T, d] at
  x_0 to x_{T-1}; the curvature f[d] is the diagonal A.
  """
  z = auxiliary(trajectory.params, run.b1)
  u, away = np.diff(z, axis=0), (z - trajectory.params)[:-1]
  length = lambda x: np.sqrt((curvature * x**2).sum(1))
  bound = (gradients * u).sum(1) + length(away) * length(u) + length(u) ** 2 / 2
  return bound - np.diff(losses)
