"""Scores and guesses of who was in a run, and the power of such an audit."""

from fl_sketch.privacy.accounting import events, types
from fl_sketch.privacy.auditing import canary_scores, one_run
import numpy as np
from scipy import special

_QUIET = 1e-3  # least deviation that is assumed


def log_ratio(
  along: np.ndarray, mechanism: types.GaussianMechanism
) -> np.ndarray:
  """Return log-likelihood ratios of being in to being out, f64[canaries].

  `along`, f[rounds, canaries], are releases along each canary's contribution,
  in units of it, NaN where it has none. The deviation of the noise is estimated
  by the median, since a score for much noise is biased where there is little.
  """
  along = np.asarray(along, np.float64)
  spread = np.nanmedian(np.abs(along - np.nanmedian(along)))
  variance = max(spread / special.ndtri(0.75), _QUIET) ** 2
  q = events.probability_of(mechanism)
  return np.nansum(canary_scores.log_ratio(along, mechanism, variance, q), 0)


def sure_right(scores: np.ndarray, coins: np.ndarray, guesses: int) -> int:
  """Count right guesses of the highest and the lowest scores, half each.

  >>> sure_right(np.array([3.0, 0.0, -1.0]), np.array([1, 1, 0]) == 1, 2)
  2
  """
  order, out = np.argsort(scores, kind='stable'), guesses // 2
  high = order[len(order) - (guesses - out) :]
  return int(coins[high].sum() + (~coins[order[:out]]).sum())


def right(scores: np.ndarray, coins: np.ndarray) -> int:
  """Count right guesses of all coins: in where a score is above 0."""
  return int(((scores > 0) == coins).sum())


def power(
  mechanism: types.GaussianMechanism,
  claim: one_run.Claim,
  *,
  canaries: int,
  guesses: int,
  significance: float,
  noise: float = 0.5,
  participation: float | None = None,
  turns: float = 1.0,
  independent: bool = True,
  trials: int = 200,
) -> float:
  """Simulate the share of runs in which noise that is too small is caught.

  The significance is of both tests together, `guesses` are those of the test by
  f-DP alone. `noise` is in units of the claimed noise. Canaries take part with
  probability `participation` (None: of the claim), and send in a share `turns`
  of the rounds.
  """
  share = significance / 2 if independent else significance
  least = one_run.least_right(guesses, canaries, claim.curve, share)
  rng, caught = np.random.default_rng(0), 0
  _, left_out = canary_scores.absence(mechanism)
  stddev = noise * mechanism.noise_multiplier
  shape = max(1, round(turns * mechanism.steps)), canaries
  if participation is None:
    participation = events.probability_of(mechanism)
  for _ in range(trials):
    coins = rng.random(canaries) < 0.5
    here = rng.random(shape) < participation
    sent = np.where(coins, 1.0, left_out)
    scores = log_ratio(here * sent + stddev * rng.normal(size=shape), mechanism)
    refuted = sure_right(scores, coins, guesses) >= least
    if independent:
      count = right(scores, coins)
      tail = one_run.independent_chance(count, canaries, claim.accuracy)
      refuted |= tail <= share
    caught += refuted
  return caught / trials
