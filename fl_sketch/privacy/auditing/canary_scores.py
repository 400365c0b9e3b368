"""Log-likelihood ratios that score the presence of a canary in broadcasts."""

from typing import NamedTuple

from fl_sketch.privacy.accounting import correlation as correlation_lib, types
from fl_sketch.privacy.auditing import noise_law
import numpy as np
from scipy import special, stats

_NO_NOISE = 1e-9  # relative variance that float32 leaves where there is none
_RARE = 1e-12  # cohorts less likely than this are left out
_RIDGE = 1e-9  # of a covariance, relative


class Observation(NamedTuple):
  """Broadcasts reduced to statistics, f64[runs, rounds]."""

  # Coordinate along one clipped contribution, both whitened, in units of it.
  along: np.ndarray
  across: np.ndarray  # squared norm of the rest, in units of its square
  # How many numbers have bits that no float32 sum with the contribution has:
  # shorter than half of it, and no multiple of half its last bit.
  fine: np.ndarray
  learned: np.ndarray  # sums of the broadcasts with `learned_filter`


class Prior(NamedTuple):
  """The prior knowledge of an attacker about a round."""

  mechanism: types.GaussianMechanism  # claimed
  other: float  # what every other unit contributes, in units of the canary
  honest: float  # participants whose shares of noise add up to all of it
  numbers: int  # of one broadcast
  steps: int = 1  # of the mechanism in one round


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


def look(
  sent: np.ndarray,
  canary: np.ndarray,
  weights: np.ndarray,
  steps: int,
  correlation: correlation_lib.Correlation | None = None,
) -> Observation:
  """Reduces broadcasts f[runs, rounds, numbers] to what scores need.

  The canary's contribution is f[rounds, numbers], without noise, of ``steps``
  of the mechanism; weights are of `learned_filter`.
  """
  bits = np.spacing(np.abs(canary.astype(np.float32))).astype(np.float64) / 2
  canary = canary.astype(np.float64)
  short = np.abs(sent) < np.abs(canary[None]) / 2
  fine = (short & ((sent / bits[None]) % 1 != 0)).sum(-1)
  sums = np.einsum('itn,tn->i', sent, weights)
  # Of a round without the canary, whose coordinate is 0, that of another.
  square = np.square(canary).sum(-1)
  square = np.where(square > 0, square, square.max())[None]
  white = lambda x: noise_law.whitened(x, correlation)
  sent, canary = white(sent), white(canary)
  along = np.einsum('itn,tn->it', sent, canary) / square
  rest = sent - along[:, :, None] * canary[None]
  across = np.square(rest).sum(-1) / square
  return Observation(steps * along, steps**2 * across, fine, sums)


def absence(mechanism: types.GaussianMechanism) -> tuple[bool, float]:
  """Describes the world without the canary: (is it absent, what it sends)."""
  replaced = mechanism.adjacency is types.Adjacency.REPLACE_ONE
  away = mechanism.adjacency is types.Adjacency.ADD_OR_REMOVE_ONE
  return away, -1.0 if replaced else 0.0


def matched_filter(observed: Observation, prior: Prior) -> np.ndarray:
  """Optimal score of `along` if the noise is as claimed: f64[runs].

  Sums over rounds the log-likelihood ratio of mixtures of Gaussians, whose
  weights are the probabilities of the sampling coins.
  """
  across = np.zeros_like(observed.along)
  return _log_ratio(observed.along, across, 1, prior, np.ones_like)


def last_bits(observed: Observation) -> np.ndarray:
  """Score of the last bits: none that the canary's float32 sum rounds away.

  The noise of a sum of floats that is close to zero keeps bits that are lost
  when it is added to something: Mironov, CCS 2012. f64[runs]; low if the canary
  cannot be there.
  """
  return -observed.fine.sum(1).astype(np.float64)


def noise_size(observed: Observation, prior: Prior) -> np.ndarray:
  """Score of both statistics if every participant adds a share of the noise.

  The energy across then reveals the number of participants, and thereby the
  sum of what they sent.
  """
  share = lambda n: np.maximum(n / prior.honest, _NO_NOISE)
  numbers = observed.along, observed.across, prior.numbers
  return _log_ratio(*numbers, prior, share)


def _log_ratio(along, across, numbers, prior, relative_variance):
  """Log-likelihood ratio of canary present to absent, over all rounds."""
  canary, others, log_weight = _cohorts(prior)
  away, replacement = absence(prior.mechanism)
  variance = prior.mechanism.noise_multiplier**2 * prior.steps

  def log_density(y, energy, sent, participants):
    ratio = relative_variance(participants)
    off = (y[:, None] - (canary * sent + others * prior.other)[None]) ** 2
    exponent = (off + energy[:, None]) / (2 * variance * ratio[None])
    logs = log_weight - numbers / 2 * np.log(ratio)
    return special.logsumexp(logs[None] - exponent, axis=1)

  everyone = canary + others
  present = others if away else everyone
  total: np.ndarray = np.zeros(len(along))
  for y, energy in zip(along.T, across.T, strict=True):
    total += log_density(y, energy, 1.0, everyone)
    total -= log_density(y, energy, replacement, present)
  return total


def _cohorts(prior):
  """Counts of the canary and of others in a cohort, and log-probabilities."""
  m = prior.mechanism
  n, q = m.population, m.sampling_probability
  if m.unit == 'sample':  # a round shows the sum of its steps
    canary = np.arange(prior.steps + 1)
    weight = stats.binom.pmf(canary, prior.steps, q)
    others = np.zeros_like(canary)
  elif m.sampling is types.Sampling.FULL:
    canary, others, weight = np.ones(1), np.full(1, n - 1), np.ones(1)
  elif m.sampling is types.Sampling.FIXED_WITHOUT_REPLACEMENT:
    canary = np.arange(2)
    others = m.max_cohort - canary
    weight = np.array([1 - m.max_cohort / n, m.max_cohort / n])
  else:
    counts = np.arange(n)
    canary, others = (x.ravel() for x in np.meshgrid(np.arange(2), counts))
    weight = stats.binom.pmf(others, n - 1, q) * np.where(canary, q, 1 - q)
  kept = weight > _RARE
  parts = canary[kept], others[kept], np.log(weight[kept])
  return tuple(np.asarray(x, np.float64) for x in parts)
