"""Scores of an attacker who looks for a canary: log-likelihood ratios."""

from typing import NamedTuple

from fl_sketch.privacy import types
import numpy as np
from scipy import special, stats

_NO_NOISE = 1e-9  # relative variance that float32 leaves where there is none
_RARE = 1e-12  # cohorts less likely than this are left out


class Seen(NamedTuple):
  """What is left of broadcasts, f64[runs, rounds].

  Attributes:
    along: coordinate along one clipped contribution, in units of it.
    across: squared norm of the rest, in units of its square.
  """

  along: np.ndarray
  across: np.ndarray


class Prior(NamedTuple):
  """What an attacker knows of a round beforehand.

  Attributes:
    mechanism: claimed.
    other: what every other unit contributes, in units of the canary.
    honest: participants whose shares of noise add up to all of it.
    numbers: of one broadcast.
    steps: of the mechanism in one round.
  """

  mechanism: types.GaussianMechanism
  other: float
  honest: float
  numbers: int
  steps: int = 1


def look(sent: np.ndarray, canary: np.ndarray, steps: int) -> Seen:
  """Splits broadcasts at one contribution.

  Args:
    sent: f[runs, rounds, numbers].
    canary: f[rounds, numbers], without noise: of ``steps`` contributions.
    steps: of the mechanism in one round.
  """
  sent, canary = sent.astype(np.float64), canary.astype(np.float64)
  square = np.square(canary).sum(-1)[None]
  along = np.einsum('itn,tn->it', sent, canary) / square
  rest = sent - along[:, :, None] * canary[None]
  across = np.square(rest).sum(-1) / square
  return Seen(steps * along, steps**2 * across)


def absence(mechanism: types.GaussianMechanism) -> tuple[bool, float]:
  """The world without the canary: (does it stay away, what it adds if not)."""
  replaced = mechanism.adjacency is types.Adjacency.REPLACE_ONE
  away = mechanism.adjacency is types.Adjacency.ADD_OR_REMOVE_ONE
  return away, -1.0 if replaced else 0.0


def projection(seen: Seen, prior: Prior) -> np.ndarray:
  """Of `Seen.along`, if the noise is as claimed: f64[runs], the best there is.

  Sums over rounds the log-likelihood ratio of Gaussians that coins mix.
  """
  ones = lambda participants: np.ones_like(participants)
  return _log_ratio(seen.along, np.zeros_like(seen.along), 1, prior, ones)


def noise_size(seen: Seen, prior: Prior) -> np.ndarray:
  """The same of both parts, if every participant adds a share of the noise.

  The energy across then tells how many took part, and with that what they sent.
  """

  def share(participants):
    return np.maximum(participants / prior.honest, _NO_NOISE)

  return _log_ratio(seen.along, seen.across, prior.numbers, prior, share)


def _log_ratio(along, across, numbers, prior, relative_variance):
  """Log-likelihood of having the canary less that of not, over all rounds."""
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
  """How often the canary and the others take part, and its log-probability."""
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
