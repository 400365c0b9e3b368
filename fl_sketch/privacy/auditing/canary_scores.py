"""Scores of the presence of a canary in broadcasts: high if it seems there.

Broadcasts are f[runs, rounds, numbers], scores f64[runs]; the contribution of
the canary is f[rounds, numbers], as a round without noise shows it.
"""

from typing import Any

from fl_sketch.privacy.accounting import events, types
from fl_sketch.privacy.accounting.correlation import Correlation
from fl_sketch.privacy.auditing import noise_law
import numpy as np
from scipy import special, stats

_RIDGE = 1e-9  # of a covariance, relative


def learned_filter(noise: np.ndarray, canary: np.ndarray) -> np.ndarray:
  r"""Returns the best linear statistic against the noise that is there.

  Weights :math:`\hat A^{-1} v \hat B^{-1}`, f64[rounds, numbers], of a
  contribution v, with the covariances over rounds and over numbers of noise
  f[runs, rounds, numbers]. The runs are others than those that it scores.
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
  """Optimal score if the noise is as claimed, of rounds of so many steps.

  Sums over rounds the log-likelihood ratio of mixtures of Gaussians, whose
  weights are the probabilities of the sampling coins.
  """
  canary = canary.astype(np.float64)
  # Of a round without the canary, whose coordinate is 0, that of another.
  square = np.square(canary).sum(-1)
  square = np.where(square > 0, square, square.max())
  white = (noise_law.whitened(x, correlation) for x in (sent, canary))
  along = steps * np.einsum('itn,tn->it', *white) / square
  fixed = mechanism.sampling is types.Sampling.FIXED_WITHOUT_REPLACEMENT
  q = mechanism.sampling_probability
  q = events.probability_of(mechanism) if fixed else q
  variance = mechanism.noise_multiplier**2 * steps
  return log_ratio(along, mechanism, variance, q, steps).sum(1)


def last_bits(sent: np.ndarray, canary: np.ndarray) -> np.ndarray:
  """Score of the last bits: none that the canary's float32 sum rounds away.

  The noise of a sum of floats that is close to zero keeps bits that are lost
  when it is added to something: Mironov, CCS 2012. It counts numbers that are
  shorter than half of the contribution, and no multiple of half its last bit.
  """
  bits = np.spacing(np.abs(canary.astype(np.float32))).astype(np.float64) / 2
  short = np.abs(sent) < np.abs(canary.astype(np.float64)) / 2
  return -(short & ((sent / bits) % 1 != 0)).sum((1, 2)).astype(np.float64)


def log_ratio(
  along: np.ndarray,
  mechanism: types.GaussianMechanism,
  variance: float,
  q: float,
  steps: int = 1,
) -> np.ndarray:
  """Log-likelihood ratio of canary present to absent, of each coordinate.

  In units of its contribution, sent with probability q in each of the steps.
  """
  counts = np.arange(steps + 1)
  weights = stats.binom.pmf(counts, steps, q)

  def log_mixture(once) -> Any:
    sent = counts * once
    exponent = sent * (along[..., None] - sent / 2) / variance
    return special.logsumexp(exponent, axis=-1, b=weights)

  return log_mixture(1.0) - log_mixture(absence(mechanism)[1])


def absence(mechanism: types.GaussianMechanism) -> tuple[bool, float]:
  """Describes the world without the canary: (is it absent, what it sends)."""
  replaced = mechanism.adjacency is types.Adjacency.REPLACE_ONE
  away = mechanism.adjacency is types.Adjacency.ADD_OR_REMOVE_ONE
  return away, -1.0 if replaced else 0.0
