"""Scores of the presence of a canary in broadcasts: high if it seems present.

Broadcasts are f[runs, rounds, numbers], scores f64[runs]; the contribution of
the canary is f[rounds, numbers], as a round without noise shows it.
"""

from typing import Any

from fl_sketch.accounting import events, types
from fl_sketch.accounting.correlation import Correlation
from fl_sketch.privacy.auditing import noise_law
import numpy as np
from scipy import special, stats

_RIDGE = 1e-9  # of a covariance, relative


def learned_filter(noise: np.ndarray, canary: np.ndarray) -> np.ndarray:
  r"""Return the weights of the best linear statistic, f64[rounds, numbers].

  :math:`\hat A^{-1} v \hat B^{-1}` for a contribution v, with the covariances
  over rounds and over numbers of noise f[runs, rounds, numbers]. Score other
  runs than these.
  """
  noise = np.nan_to_num(np.asarray(noise, np.float64))
  noise = noise / max(np.sqrt(np.mean(noise**2)), np.finfo(float).tiny)

  def inverse(axis):
    x = np.moveaxis(noise, axis, -1).reshape(-1, noise.shape[axis])
    return np.linalg.inv(x.T @ x / len(x) + _RIDGE * np.eye(x.shape[1]))

  return inverse(1) @ canary.astype(np.float64) @ inverse(2)


def matched_filter(
  sent: np.ndarray,
  canary: np.ndarray,
  mechanism: types.GaussianMechanism,
  steps: int = 1,
  correlation: Correlation | None = None,
) -> np.ndarray:
  """Return the optimal score for the claimed noise.

  It sums over rounds the log-likelihood ratio of mixtures of Gaussians, whose
  weights are the probabilities of the sampling coins of each step.
  """
  canary = canary.astype(np.float64)
  # In rounds without the canary the coordinate is 0; any divisor will do.
  square = np.square(canary).sum(-1)
  square = np.where(square > 0, square, square.max())
  white = (noise_law.whitened(x, correlation) for x in (sent, canary))
  along = steps * np.einsum('itn,tn->it', *white) / square
  fixed = mechanism.sampling is types.Sampling.FIXED_WITHOUT_REPLACEMENT
  q = mechanism.sampling_probability
  q = events.probability_of(mechanism) if fixed else q
  variance = mechanism.noise_multiplier**2 * steps
  return log_ratio(along, mechanism, variance, q, steps).sum(1)


def log_ratio(
  along: np.ndarray,
  mechanism: types.GaussianMechanism,
  variance: float,
  q: float,
  steps: int = 1,
) -> np.ndarray:
  """Return the log-likelihood ratio of canary present to absent, elementwise.

  Coordinates `along` are in units of its contribution, which it sends with
  probability q in each of the steps.
  """
  counts = np.arange(steps + 1)
  weights = stats.binom.pmf(counts, steps, q)

  def log_mixture(once: float) -> Any:
    sent = counts * once
    exponent = sent * (along[..., None] - sent / 2) / variance
    return special.logsumexp(exponent, axis=-1, b=weights)

  return log_mixture(1.0) - log_mixture(absence(mechanism)[1])


def absence(mechanism: types.GaussianMechanism) -> tuple[bool, float]:
  """Return (whether the left-out canary is absent, what it sends else)."""
  replaced = mechanism.adjacency is types.Adjacency.REPLACE_ONE
  away = mechanism.adjacency is types.Adjacency.ADD_OR_REMOVE_ONE
  return away, -1.0 if replaced else 0.0
